/* Tests that parsing a tuning takes at most 4 KiB of stack, since threads may have little. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "selection/tuning.h"

enum { STACK_BYTES = 256 << 10, MOST_BYTES = 4096, PAINT = 0xa5 };

/* The lines of a link but the last two. */
#define LINK                                                                                                           \
	"collet-tuning 2\nmachine any\nlink shm 4 2\nlatency 250\nmessage 30\npiece 20\n"                             \
	"byte 0.5 0.25 0.125 0.0625\nfar_byte 0\nreduce_byte 0.05\nfar_reduce_byte 0\nnear 1048576\n"

static const struct row {
	const char *name, *text; /* NULL: the built-in tuning */
	collet_status status;
} rows[] = {
	{ "built in", NULL, COLLET_OK },
	{ "a good text", LINK "pieces 8192 131072\nchannels 1 0 0 0\nend\n", COLLET_OK },
	{ "no number", LINK "pieces 8192 131072\nchannels 1 x 0 0\nend\n", COLLET_ERR_CONFIG },
	{ "a wrong number", LINK "pieces 8192 131072\nchannels 2 0 0 0\nend\n", COLLET_ERR_CONFIG },
};

static collet_link_cost links[COLLET_TUNING_LINKS];
static unsigned char stack[STACK_BYTES] __attribute__((aligned(4096)));

static collet_status parse(const char *text)
{
	uint32_t count;
	if (text)
		return collet_tuning_parse(text, "some/file", NULL, links, &count);
	return collet_tuning_builtin(links) > 0 ? COLLET_OK : COLLET_ERR_CONFIG;
}

struct run {
	const struct row *row;
	collet_status status;
	size_t used_bytes;
};

/* Paints the stack below this frame, parses, and finds the lowest byte that was written. */
static void *parse_on_paint(void *context)
{
	struct run *run = context;
	const size_t frame = (size_t)((unsigned char *)__builtin_frame_address(0) - stack);
	const size_t painted = frame - 512; /* the rest: this frame and memset()'s */
	memset(stack, PAINT, painted);
	run->status = parse(run->row->text);
	size_t lowest = 0;
	while (lowest < painted && stack[lowest] == PAINT)
		lowest++;
	run->used_bytes = frame - lowest;
	return NULL;
}

static void parsing_needs_little_stack(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct run run = { .row = &rows[i] };
		parse(rows[i].text); /* here the dynamic linker resolves what parsing calls */
		pthread_t thread;
		pthread_attr_t attributes;
		assert_int_equal(pthread_attr_init(&attributes), 0);
		assert_int_equal(pthread_attr_setstack(&attributes, stack, sizeof(stack)), 0);
		assert_int_equal(pthread_create(&thread, &attributes, parse_on_paint, &run), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		pthread_attr_destroy(&attributes);
		print_message("%s: %zu bytes\n", rows[i].name, run.used_bytes);
		assert_int_equal(run.status, rows[i].status);
		assert_in_range(run.used_bytes, 1, MOST_BYTES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(parsing_needs_little_stack) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
