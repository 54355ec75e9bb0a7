/* Tests the copies of copy.h: the bytes, the bytes around them, and what a copy leaves in its source. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/copy.h"

enum { LINE = 64, GUARD = 2 * LINE, MOST = 64 * 1024, BUFFER = MOST + 2 * GUARD };

static _Alignas(64) unsigned char source[BUFFER], destination[BUFFER], expected[BUFFER], original[BUFFER];

static const struct row {
	const char *name;
	unsigned flags;
	size_t step;              /* of the source's offset in its line; touching needs a source that starts one */
} rows[] = {
	{ "plain", 0, 7 },
	{ "past the caches", COLLET_COPY_NONTEMPORAL, 7 },
	{ "touching", COLLET_COPY_TOUCH, LINE },
	{ "both", COLLET_COPY_NONTEMPORAL | COLLET_COPY_TOUCH, LINE },
};

static void check_copy(const struct row *row, size_t bytes, size_t from, size_t to)
{
	const size_t checked = bytes + 2 * GUARD;
	memcpy(source, original, checked);
	memset(destination, 0xa5, checked);
	memset(expected, 0xa5, checked);
	memcpy(expected + to, original + from, bytes);
	collet_copy(destination + to, source + from, bytes, row->flags);
	if (memcmp(destination, expected, checked) != 0)
		fail_msg("%s: %zu bytes from %zu to %zu: other bytes", row->name, bytes, from, to);
	memcpy(expected, original, checked);
	for (size_t at = 0; row->flags & COLLET_COPY_TOUCH && at < bytes; at += LINE)
		memset(expected + from + at, 0, 4);
	if (memcmp(source, expected, checked) != 0)
		fail_msg("%s: %zu bytes from %zu to %zu: another source", row->name, bytes, from, to);
}

/* Copies a size with each offset of source and destination in a line. */
static void check_size(const struct row *row, size_t bytes, size_t to_step)
{
	for (size_t from = 0; from < LINE; from += row->step)
		for (size_t to = 0; to < LINE; to += to_step)
			check_copy(row, bytes, GUARD + from, GUARD / 2 + to);
}

static void copies_are_exact(void **state)
{
	static const size_t long_sizes[] = { 4095, 4096, 4097, MOST };
	for (size_t i = 0; i < BUFFER; i++)
		original[i] = (unsigned char)(1 + i * 2654435761u % 251);  /* never 0 */
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		for (size_t bytes = 0; bytes <= 300; bytes++)
			check_size(&rows[r], bytes, 1);
		for (size_t i = 0; i < sizeof(long_sizes) / sizeof(long_sizes[0]); i++)
			check_size(&rows[r], long_sizes[i], 5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_are_exact),
	};
	return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
