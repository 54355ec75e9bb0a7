# Writes each line of a text as a C string literal.
s/[\\"]/\\&/g
s/.*/"&\\n"/
