#include "wrap.h"

#include <string.h>

int bench_wrap(FILE *out, int column, int at, const char *text)
{
	for (const char *word = text + strspn(text, " "); *word != '\0'; word += strspn(word, " ")) {
		const int length = (int)strcspn(word, " ");
		const int blank = at > column;
		if (blank && at + blank + length > BENCH_WRAP_COLUMNS) {
			fprintf(out, "\n%*s%.*s", column, "", length, word);
			at = column + length;
		} else {
			fprintf(out, "%*s%.*s", blank, "", length, word);
			at += blank + length;
		}
		word += length;
	}
	return at;
}
