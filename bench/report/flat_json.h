/* Reading back what collet-bench writes with --json: one flat object a line, strings, numbers, true, false and null. */
#ifndef BENCH_FLAT_JSON_H
#define BENCH_FLAT_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* The member's text without its quotes and escapes. False: there is none, or it is null, or does not fit. */
bool bench_flat_text(const char *line, const char *member, char *into, size_t bytes);
/* False: there is none, or it is no number. true and false are 1 and 0. */
bool bench_flat_number(const char *line, const char *member, double *value);

#endif
