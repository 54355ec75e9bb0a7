/* Reading lists and ranges of sizes. */
#include "sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "option_table.h"

bool bench_bytes_parse(const char *start, const char *end, uint64_t *bytes)
{
	return option_number(start, end, BENCH_UNITS, bytes);
}

static const char *append(struct bench_sizes *sizes, uint64_t bytes)
{
	if (sizes->count == BENCH_SIZES_MAX)
		return "more than 256 sizes";
	sizes->bytes[sizes->count++] = bytes;
	return NULL;
}

/* The next size of a range; false: past the end of 64 bits. */
static bool advance(uint64_t *bytes, char kind, uint64_t by)
{
	if (kind == '+' ? *bytes > UINT64_MAX - by : *bytes > UINT64_MAX / by)
		return false;
	*bytes = kind == '+' ? *bytes + by : *bytes * by;
	return true;
}

static const char *append_range(struct bench_sizes *sizes, const char *start, const char *end)
{
	const char *first_end = memchr(start, ':', (size_t)(end - start));
	const char *last_end = memchr(first_end + 1, ':', (size_t)(end - first_end - 1));
	uint64_t first, last, by;
	if (last_end == NULL || last_end + 1 == end || (last_end[1] != 'x' && last_end[1] != '+'))
		return "a range is FIRST:LAST:xFACTOR or FIRST:LAST:+STEP";
	const char kind = last_end[1];
	if (!bench_bytes_parse(start, first_end, &first) || !bench_bytes_parse(first_end + 1, last_end, &last)
		|| !bench_bytes_parse(last_end + 2, end, &by))
		return "a size is a number, which may end in K, M or G";
	if (first > last)
		return "a range starts above its end";
	if (kind == '+' ? by == 0 : by < 2 || first == 0)
		return "a range that never reaches its end";
	do {
		const char *problem = append(sizes, first);
		if (problem != NULL)
			return problem;
	} while (advance(&first, kind, by) && first <= last);
	return NULL;
}

static const char *append_item(struct bench_sizes *sizes, const char *start, const char *end)
{
	uint64_t bytes;
	if (memchr(start, ':', (size_t)(end - start)) != NULL)
		return append_range(sizes, start, end);
	if (!bench_bytes_parse(start, end, &bytes))
		return "a size is a number, which may end in K, M or G";
	return append(sizes, bytes);
}

const char *bench_sizes_parse(const char *text, struct bench_sizes *sizes)
{
	struct bench_sizes read = { 0 };
	for (const char *start = text;; ) {
		const char *end = strchrnul(start, ',');
		const char *problem = append_item(&read, start, end);
		if (problem != NULL)
			return problem;
		if (*end == '\0')
			break;
		start = end + 1;
	}
	*sizes = read;
	return NULL;
}

const char *bench_bytes_text(uint64_t bytes, char into[24])
{
	static const char *const units[] = { "", " KiB", " MiB", " GiB" };
	size_t unit = 0;
	while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
		bytes /= 1024;
		unit++;
	}
	snprintf(into, 24, "%" PRIu64 "%s", bytes, units[unit]);
	return into;
}
