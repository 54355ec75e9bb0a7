/* Breaks text into lines for a terminal. */
#ifndef BENCH_WRAP_H
#define BENCH_WRAP_H

#include <stdio.h>

enum { BENCH_WRAP_COLUMNS = 100 };

/* Prints the words of text, with a blank between two. Further lines are indented to column. at is where the first word
 * would stand: column at the beginning. Returns where the next word would stand. A word longer than a line is not
 * broken. Prints no newline at the end. */
int bench_wrap(FILE *out, int column, int at, const char *text);

#endif
