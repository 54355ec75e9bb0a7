/* Message sizes as a user writes them: "4:256M:x4", "0,4,1K", "4:64:+4,1M". */
#ifndef BENCH_SIZES_H
#define BENCH_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_SIZES_MAX = 256 };

/* The letters that may follow a number: powers of 1024, see option_number(). */
#define BENCH_UNITS "KMGkmg"

struct bench_sizes {
	size_t count;
	uint64_t bytes[BENCH_SIZES_MAX];
};

/* A comma-separated list of numbers (K, M, G: powers of 1024) and ranges FIRST:LAST:xFACTOR or FIRST:LAST:+STEP. NULL
 * on success, else what is wrong with it (static text); *sizes is then unchanged. */
const char *bench_sizes_parse(const char *text, struct bench_sizes *sizes);

/* One number with its suffix, all of text from start to end. */
bool bench_bytes_parse(const char *start, const char *end, uint64_t *bytes);

/* "4", "1 KiB", "256 MiB": the unit that divides, else bytes. Returns into. */
const char *bench_bytes_text(uint64_t bytes, char into[24]);

#endif
