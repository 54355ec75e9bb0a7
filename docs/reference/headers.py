"""Reads the public headers, and the plain comments that document them.

A header is a sequence of units: a comment and the declarations right below it. Its first comment describes the file,
/* ---- Title ---- */ begins a section, and a comment with a blank line below it holds for the whole section."""
import re

SECTION = re.compile(r"/\* ---- (.*?) -+ \*/")
# An item of a list: "- text", "1. text", or a term with two spaces behind it.
ITEM = re.compile(r" *((?:-|\d+\.)(?= )|\S.*?(?=  )) +(\S.*)")
FUNCTION = re.compile(r"^(?:COLLET_MUST_USE )?(?:COLLET_API|static inline) ([^;{}()]*?(\bcollet_\w+)\([^;{}]*\))[;\s]",
                      re.MULTILINE)


def read(path):
    """Returns a header's text. Conditional parts are blank: they serve compilers, not readers."""
    with open(path, encoding="utf-8") as file:
        return re.sub(r"(?ms)^#if(?!ndef).*?^#endif$", lambda part: "\n" * part[0].count("\n"), file.read())


def units(text):
    """Yields (comment, code) in order, with nothing left out. Either of the two may be empty."""
    for part in re.split(r"(?<=\n)(?=/\*)|(?<=\n\n)(?=\S)", text):
        yield re.match(r"(?s)(/\*.*?\*/)?(.*)", part).groups(default="")


def blocks(comment):
    """Returns the parts of a comment as (kind, term, lines). kind is text, title, code, bullet, number or term."""
    found, depth, goes_on = [], 0, False
    for line in comment[2:-2].rstrip().splitlines():
        line = re.sub(r"^\s*\*( ?)|^\s+", "", line).expandtabs()
        indent, item = len(line) - len(line.lstrip()), ITEM.fullmatch(line)
        kind = found[-1][0] if found else ""
        if item:
            kind = "bullet" if item[1] == "-" else "number" if item[1][0].isdigit() else "term"
            found.append((kind, item[1], [item[2]]))
        elif goes_on and line and (indent == depth if kind == "text" else indent > depth or kind == "code"):
            found[-1][2].append(line[depth:] if kind == "code" else line.strip())
            continue
        elif line:
            found.append(("code" if indent >= 4 else "text", "", [line.strip()]))
        goes_on, depth = bool(line), indent
    return [("title" if kind == "text" and len(lines) == 1 and lines[0][-1].isalnum() and lines is not found[-1][2]
             else kind, term, lines) for kind, term, lines in found]


def summary(comment):
    """Returns the first clause of a comment, without a full stop."""
    text = re.sub(r"^collet: ", "", " ".join(blocks(comment)[0][2]))
    clause = re.split(r"(?<![.\s])[.;:](?=\s|$)", text)[0]
    return clause[:1].lower() + clause[1:]
