/* How a call of a given size is divided for kernels: small ones use the LL protocol, large ones several channels, with
 * segments that fit a window's slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/peer_gpus/internal.h"

enum { SLOT_BYTES = 128 << 10, CHANNELS = 8, LANE_BYTES = 64 << 10 };

struct row {
	uint32_t size;
	const char *algorithm;
	uint64_t bytes;
	uint32_t segment_bytes, wanted;        /* set by the caller; 0: default */
	bool is_ll;
	uint32_t channels;
	uint64_t segment;
};

static void check(const struct row *row)
{
	struct collet_device_comm device_comm = { .channels_per_part = CHANNELS, .segment_bytes = SLOT_BYTES,
		.channel_limits = { CHANNELS, LANE_BYTES },
		.window = collet_window_for(row->size, CHANNELS, SLOT_BYTES) };
	const struct collet_program *program = collet_program_find(COLLET_ALLREDUCE, row->algorithm);
	const struct collet_shape shape = collet_shape_of(COLLET_ALLREDUCE, 0, row->size, 0, row->bytes / 4);
	const struct collet_plan_options cut = collet_device_comm_options(
		&device_comm, program, &shape, 4, row->bytes, row->segment_bytes, row->wanted);
	if (cut.is_ll != row->is_ll || cut.channels_per_part != row->channels || cut.segment_bytes != row->segment)
		fail_msg("%s of %llu bytes, %u ranks: %sLL, %u channels, segments of %llu bytes", row->algorithm,
			(unsigned long long)row->bytes, row->size, cut.is_ll ? "" : "not ", cut.channels_per_part,
			(unsigned long long)cut.segment_bytes);
	assert_int_equal(cut.element_bytes, 4);
	assert_true(collet_program_part_count(program, &shape) * cut.channels_per_part <= device_comm.window.channels);
}

static void calls_are_cut_by_their_size(void **state)
{
	static const struct row rows[] = {
		{ 2, "direct", 8, 0, 0, true, 1, COLLET_LL_BYTES },
		{ 2, "direct", COLLET_LL_BYTES + 4, 0, 0, true, 2, COLLET_LL_BYTES },
		{ 8, "tree", 8 << 10, 0, 0, true, 4, COLLET_LL_BYTES },
		{ 2, "direct", (8 << 10) + 4, 0, 0, false, 1, 4 << 10 },
		{ 2, "direct", 64 << 10, 0, 0, false, 1, 16 << 10 },
		{ 4, "ring", 128 << 10, 0, 0, false, 2, 8 << 10 },
		{ 4, "ring", 1 << 20, 0, 0, false, CHANNELS, 16 << 10 },
		{ 4, "ring", 64 << 20, 0, 0, false, CHANNELS, SLOT_BYTES },
		{ 8, "double_tree", 64 << 20, 0, 0, false, CHANNELS, SLOT_BYTES },
		{ 4, "ring", 1 << 20, 100, 3, false, 3, 96 },
		{ 4, "ring", 8, 0, 2, false, 2, 4 << 10 },
		{ 4, "ring", 1 << 20, UINT32_MAX, 100, false, CHANNELS, SLOT_BYTES },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		check(&rows[i]);
}

static void channels_follow_the_link(void **state)
{
	static const struct {
		uint32_t channel_bytes, channels;
	} rows[] = { { 16 << 10, CHANNELS }, { 36000, 3 }, { LANE_BYTES, 2 }, { 16 << 20, 1 } };
	const struct collet_program *program = collet_program_find(COLLET_ALLREDUCE, "ring");
	const struct collet_shape shape = collet_shape_of(COLLET_ALLREDUCE, 0, 4, 0, 32 << 10);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct collet_device_comm device_comm = { .channels_per_part = CHANNELS,
			.segment_bytes = SLOT_BYTES,
			.channel_limits = { CHANNELS, rows[i].channel_bytes },
			.window = collet_window_for(4, CHANNELS, SLOT_BYTES) };
		const struct collet_plan_options cut =
			collet_device_comm_options(&device_comm, program, &shape, 4, 128 << 10, 0, 0);
		if (cut.channels_per_part != rows[i].channels)
			fail_msg("%u bytes a channel: %u channels", rows[i].channel_bytes, cut.channels_per_part);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_are_cut_by_their_size),
		cmocka_unit_test(channels_follow_the_link),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
