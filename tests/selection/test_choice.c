/* Tests the choice table: its programs and order of sizes, its equality on all ranks, forced algorithms, and the
 * programs' descriptions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "links.h"
#include "selection/choice.h"
#include "selection/total_work.h"

/* One core per rank unless `cores` says less. */
static struct collet_choice_inputs inputs_on(const char *transport, uint32_t size, uint32_t cores)
{
	const collet_link_cost *link = collet_tuning_find(links, 3, transport, size, cores);
	assert_non_null(link);
	return (struct collet_choice_inputs){ .size = size,
		.host_count = 1,
		.local = link,
		.remote = link,
		.cores_per_host = cores,
		.scratch_bytes = 8 << 20 };
}

static struct collet_choice_inputs inputs_of(const char *transport, uint32_t size)
{
	return inputs_on(transport, size, size);
}

/* Two hosts of four ranks; nothing is known of their network yet. */
static const uint32_t two_hosts[] = {0, 4, 8};

static struct collet_choice_inputs inputs_of_two_hosts(void)
{
	struct collet_choice_inputs inputs = inputs_on("shm", 8, 4);
	inputs.host_count = 2;
	inputs.host_first = two_hosts;
	inputs.remote = collet_tuning_find(links, 3, "tcp", 4, 4);
	return inputs;
}

static struct collet_shape shape_of_two_hosts(enum collet_collective c, uint64_t count)
{
	struct collet_shape shape = collet_shape_of(c, 0, 8, 0, count);
	shape.host_count = 2;
	shape.host_first = two_hosts;
	return shape;
}

static const char *chosen(struct collet_choice_table *table, enum collet_collective c, bool commutative,
	uint32_t size, uint64_t bytes)
{
	const struct collet_shape shape = collet_shape_of(c, 0, size, 0, bytes / 4);
	return collet_choose(table, c, commutative, &shape, 4).program->name;
}

/* Every collective, world, size and kind of operation gets a program that can run it; tables are flat and ascending. */
static void every_call_has_a_program(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	static const char *const transports[] = {"self", "shm", "tcp"};
	for (uint32_t size = 1; size <= 70; size += size < 9 ? 1 : 13) {
		for (size_t t = 0; t < 3; t++) {
			const struct collet_choice_inputs inputs = inputs_of(transports[t], size);
			collet_choice_table_init(&table, &inputs);
			for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
				const struct collet_choice_rows *rows =
					collet_choice_table_rows(&table, c, COLLET_CHOICE_COMMUTATIVE);
				assert_in_range(rows->count, 1, COLLET_CHOICE_ROWS);
				for (uint32_t i = 1; i < rows->count; i++)
					assert_true(rows->row[i - 1].max_bytes < rows->row[i].max_bytes);
				for (uint64_t count = 0; count < (uint64_t)1 << 34; count = 3 * count + 1) {
					const struct collet_shape shape = collet_shape_of(c, 0, size, 0, count);
					const struct collet_decision any = collet_choose(&table, c, true, &shape, 8);
					const struct collet_decision ordered =
						collet_choose(&table, c, false, &shape, 8);
					assert_true(collet_program_fits(any.program, &shape));
					assert_true(collet_program_fits(ordered.program, &shape) &&
						    ordered.program->rank_ordered);
					assert_in_range(any.channels, 1, 4);
					assert_true(any.segment_bytes >= 4096);
				}
			}
		}
	}
}

static void shared_memory_goes_direct(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	struct collet_choice_inputs inputs = inputs_of("shm", 2);
	collet_choice_table_init(&table, &inputs);
	assert_string_equal(chosen(&table, COLLET_ALLREDUCE, true, 2, 4), "direct");
	assert_string_equal(chosen(&table, COLLET_ALLREDUCE, true, 2, 1 << 20), "exchange");
	inputs = inputs_of("shm", 4);
	collet_choice_table_init(&table, &inputs);
	assert_string_equal(chosen(&table, COLLET_ALLREDUCE, true, 4, 4), "direct");
	assert_string_equal(chosen(&table, COLLET_ALLREDUCE, true, 4, 1 << 20), "two_shot");
	assert_string_equal(chosen(&table, COLLET_ALLREDUCE, false, 4, 64 << 20), "two_shot");
}

/* The link between hosts is slower than anything on a host. The chosen program sends no more bytes through it than the
 * hierarchical one. A ring over all ranks sends 7/4 as many, and is predicted to take that much longer. */
static void hosts_that_share_a_slow_link(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	static const struct {
		enum collet_collective collective;
		uint64_t count;
		const char *by_hosts;
	} rows[] = {
		{COLLET_ALLREDUCE, 4 << 20, "hierarchical_ring"},
		{COLLET_ALLGATHER, 512 << 10, "hierarchical"},
		{COLLET_REDUCE_SCATTER, 512 << 10, "hierarchical"},
	};
	struct collet_choice_inputs inputs = inputs_of_two_hosts();
	inputs.network_byte_ns = collet_tuning_network_byte_ns(links, 3, 0);
	collet_choice_table_init(&table, &inputs);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const enum collet_collective c = rows[i].collective;
		const struct collet_shape shape = shape_of_two_hosts(c, rows[i].count);
		const struct collet_decision decision = collet_choose(&table, c, true, &shape, 4);
		const struct collet_segmentation way = { .segment_bytes = decision.segment_bytes, .channels = 1 };
		const double chosen = collet_choice_cost(&inputs, decision.program, &shape, 4, way),
			     hierarchical = collet_choice_cost(
				     &inputs, collet_program_find(c, rows[i].by_hosts), &shape, 4, way),
			     ring = collet_choice_cost(&inputs, collet_program_find(c, "ring"), &shape, 4, way);
		if (chosen > 1.001 * hierarchical)
			fail_msg("%s: %s takes %g times as long", collet_collective_name(c), decision.program->name,
				chosen / hierarchical);
		if (ring < 1.74 * hierarchical || ring > 1.76 * hierarchical)
			fail_msg("%s: the ring takes %g times as long", collet_collective_name(c), ring / hierarchical);
	}
}

/* A faster link saves less by more work inside the hosts. */
static void faster_links_are_chosen_for(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	static const struct {
		enum collet_collective collective;
		uint64_t count;
		uint32_t mbps;
		const char *name;
	} rows[] = {
		{COLLET_ALLREDUCE, 4 << 20, 0, "halves"},
		{COLLET_ALLREDUCE, 4 << 20, 1000, "halves"},
		{COLLET_ALLREDUCE, 4 << 20, 10000, "halves"},
		{COLLET_ALLREDUCE, 4 << 20, 100000, "hierarchical_ring"},
		{COLLET_ALLGATHER, 64 << 10, 1000, "hierarchical"},
		{COLLET_ALLGATHER, 64 << 10, 25000, "ring"},
		{COLLET_ALLGATHER, 64 << 10, 100000, "direct"},
		{COLLET_REDUCE_SCATTER, 64 << 10, 1000, "hierarchical"},
		{COLLET_REDUCE_SCATTER, 64 << 10, 10000, "ring"},
		{COLLET_BROADCAST, 1 << 20, 10000, "hierarchical"},
		{COLLET_BROADCAST, 1 << 20, 25000, "chain"},
	};
	struct collet_choice_inputs inputs = inputs_of_two_hosts();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		inputs.network_byte_ns = collet_tuning_network_byte_ns(links, 3, rows[i].mbps);
		collet_choice_table_init(&table, &inputs);
		const struct collet_shape shape = shape_of_two_hosts(rows[i].collective, rows[i].count);
		const char *name = collet_choose(&table, rows[i].collective, true, &shape, 4).program->name;
		if (strcmp(name, rows[i].name) != 0)
			fail_msg("%s at %u Mb/s: %s, not %s", collet_collective_name(rows[i].collective), rows[i].mbps,
				name, rows[i].name);
	}
}

/* A tuning that has measured its network has a link of that name, which overrules the interfaces. A network of which
 * nothing is known counts as 1 Gbit/s. */
static void the_network_is_a_link(void **state)
{
	(void)state;
	collet_link_cost known[2] = {links[2], links[2]};
	strcpy(known[1].transport, "network");
	static const struct {
		const char *name;
		size_t links;
		uint32_t mbps;
		double byte_ns;
	} rows[] = {
		{"nothing is known", 1, 0, 8},
		{"interfaces of 10 Gbit/s", 1, 10000, 0.8},
		{"interfaces of 100 Mbit/s", 1, 100, 80},
		{"the tuning alone", 2, 0, 0.333},
		{"the tuning before interfaces", 2, 10000, 0.333},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const double byte_ns = collet_tuning_network_byte_ns(known, rows[i].links, rows[i].mbps);
		if (fabs(byte_ns / rows[i].byte_ns - 1) > 1e-9)
			fail_msg("%s: %g ns, not %g", rows[i].name, byte_ns, rows[i].byte_ns);
	}
}

/* Two ranks exchange on every transport; no ring is chosen there. */
static void two_ranks_exchange(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	const struct collet_choice_inputs inputs = inputs_of("tcp", 2);
	collet_choice_table_init(&table, &inputs);
	assert_string_equal(chosen(&table, COLLET_ALLREDUCE, true, 2, 64 << 20), "exchange");
}

/* Programs that need more scratch than available are not chosen. */
static void scratch_is_bounded(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	struct collet_choice_inputs inputs = inputs_of("tcp", 16);
	inputs.scratch_bytes = 4096;
	collet_choice_table_init(&table, &inputs);
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		for (uint64_t bytes = 4; bytes < 1 << 28; bytes *= 4) {
			for (uint32_t rank = 0; rank < 16; rank++) {
				const struct collet_shape shape = collet_shape_of(c, rank, 16, 0, bytes / 16 / 4);
				const struct collet_decision choice = collet_choose(&table, c, true, &shape, 4);
				assert_true(collet_program_scratch(choice.program, &shape) * 4 <= 4096);
			}
		}
	}
}

/* v-forms use only programs that need no counts but a rank's own. */
static void listed(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	const struct collet_choice_inputs inputs = inputs_of("tcp", 3);
	collet_choice_table_init(&table, &inputs);
	const uint64_t counts[3] = {5, 0, 7}, displacements[3] = {0, 5, 5};
	const enum collet_collective of[] = {COLLET_ALLGATHER, COLLET_GATHER, COLLET_SCATTER, COLLET_ALLTOALL};
	for (size_t i = 0; i < 4; i++) {
		struct collet_shape shape = collet_shape_of(of[i], 1, 3, 0, 0);
		shape.input = shape.result =
			(struct collet_partition){ COLLET_PARTITION_VECTOR, 0, counts, displacements };
		assert_true(collet_choose(&table, of[i], true, &shape, 4).program->has_vector_form);
	}
}

enum { LISTING = 5 };

static void must_be_cut_alike(const struct collet_choice_inputs *inputs, enum collet_collective collective,
	const struct collet_program *program)
{
	static const uint64_t counts[LISTING] = {16, 3 << 20, 0, 70000, 4096}, displacements[LISTING];
	struct collet_decision own[LISTING];
	for (uint32_t rank = 0; rank < LISTING; rank++) {
		struct collet_shape shape = collet_shape_of(collective, rank, LISTING, 0, counts[rank]);
		shape.input = shape.result =
			(struct collet_partition){ COLLET_PARTITION_VECTOR, 0, counts, displacements };
		own[rank] = collet_choose_segmentation(inputs, program, &shape, 4);
		assert_int_equal(own[rank].segment_bytes, own[0].segment_bytes);
		assert_int_equal(own[rank].channels, own[0].channels);
	}
}

/* A named program's messages are cut alike on all ranks, whatever counts a rank has itself. Short segments pay here. */
static void listed_is_cut_alike(void **state)
{
	(void)state;
	static const enum collet_collective of[] = {COLLET_ALLGATHER, COLLET_GATHER, COLLET_SCATTER, COLLET_ALLTOALL};
	for (uint32_t cores = 2; cores <= LISTING; cores += LISTING - 2) {
		struct collet_choice_inputs inputs = inputs_on("tcp", LISTING, cores);
		collet_link_cost link = *inputs.local;
		link.segment_ns = 0;
		link.overhead_ns = 10;
		inputs.local = inputs.remote = &link;
		for (size_t c = 0; c < sizeof(of) / sizeof(of[0]); c++) {
			size_t programs;
			const struct collet_program *const *program = collet_programs(of[c], &programs);
			for (size_t i = 0; i < programs; i++)
				if (program[i]->has_vector_form)
					must_be_cut_alike(&inputs, of[c], program[i]);
		}
	}
}

static struct collet_decision decided(
	const struct collet_choice_inputs *inputs, const char *program, uint32_t size, uint64_t bytes)
{
	const struct collet_shape shape = collet_shape_of(COLLET_ALLREDUCE, 0, size, 0, bytes / 4);
	return collet_choose_segmentation(inputs, collet_program_find(COLLET_ALLREDUCE, program), &shape, 4);
}

/* A pipeline prefers short segments while they are cheap, else long ones. Channels are for segmented programs, where
 * they were measured to make bytes cheaper, and for calls large enough to give each channel a segment. */
static void the_model_cuts(void **state)
{
	(void)state;
	struct collet_choice_inputs inputs = inputs_of("tcp", 4);
	collet_link_cost link = *inputs.local;
	inputs.local = inputs.remote = &link;
	assert_int_equal(decided(&inputs, "ring", 4, 16 << 20).channels, 4);
	assert_int_equal(decided(&inputs, "ring", 4, 64 << 10).channels, 1);
	assert_int_equal(decided(&inputs, "halving_doubling", 4, 16 << 20).channels, 1);
	link.channel_ratios[1] = 0.99;
	link.channel_ratios[2] = 1.1;
	assert_int_equal(decided(&inputs, "ring", 4, 16 << 20).channels, 1);
	link.channel_ratios[1] = 0;
	link.channel_ratios[2] = 0.8;
	assert_int_equal(decided(&inputs, "ring", 4, 16 << 20).channels, 4);
	const struct collet_shape shape = collet_shape_of(COLLET_REDUCE, 0, 4, 0, 1 << 20);
	const struct collet_program *chain = collet_program_find(COLLET_REDUCE, "chain");
	link.segment_ns = 10;
	const uint32_t cheap = collet_choose_segmentation(&inputs, chain, &shape, 4).segment_bytes;
	link.segment_ns = 200000;
	const uint32_t dear = collet_choose_segmentation(&inputs, chain, &shape, 4).segment_bytes;
	assert_true(cheap < dear);
}

/* Measurements overrule the formulas near the measured sizes, and in that world alone. */
static void measured_ways_are_taken(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	collet_link_cost link = *inputs_of("tcp", 2).local;
	const uint32_t exchange = collet_program_index(collet_program_find(COLLET_ALLREDUCE, "exchange"));
	link.size_count = 2;
	link.size_bytes[0] = 1 << 20;
	link.size_bytes[1] = 16 << 20;
	link.factor[exchange][0] = link.factor[exchange][1] = 0.01F;
	/* Programs that were not measured count as bad as the worst that was. */
	link.factor[collet_program_index(collet_program_find(COLLET_ALLREDUCE, "direct"))][0] = 5;
	link.segment_log2[exchange][1] = 15;
	link.channels_log2[exchange][1] = 1;
	struct collet_choice_inputs inputs = inputs_of("tcp", 2);
	inputs.local = inputs.remote = &link;
	assert_int_equal(decided(&inputs, "exchange", 2, 16 << 20).segment_bytes, 32768);
	assert_int_equal(decided(&inputs, "exchange", 2, 16 << 20).channels, 2);
	assert_int_equal(decided(&inputs, "exchange", 2, 8 << 20).segment_bytes, 32768);
	const struct collet_decision below = decided(&inputs, "exchange", 2, 2 << 20);
	link.size_count = 0;
	const struct collet_decision model = decided(&inputs, "exchange", 2, 2 << 20);
	link.size_count = 2;
	assert_true(below.segment_bytes == model.segment_bytes && below.channels == model.channels);
	collet_choice_table_init(&table, &inputs);
	const struct collet_shape shape = collet_shape_of(COLLET_ALLREDUCE, 0, 2, 0, 4 << 20);
	const struct collet_decision chosen = collet_choose(&table, COLLET_ALLREDUCE, true, &shape, 4);
	assert_string_equal(chosen.program->name, "exchange");
	assert_int_equal(chosen.segment_bytes, 32768);
	assert_int_equal(chosen.channels, 2);
	inputs.size = 3;
	inputs.cores_per_host = 3;
	assert_int_equal(decided(&inputs, "tree", 3, 16 << 20).channels, 1);
}

/* Factors and cuts hold for one world. If ranks share cores, other worlds on as many cores use those of the nearest
 * one. */
static void measured_factors_are_borrowed_when_oversubscribed(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	collet_link_cost link = links[1];
	link.ranks = 8;
	link.size_count = 1;
	link.size_bytes[0] = 8;
	size_t count;
	const struct collet_program *const *programs = collet_programs(COLLET_ALLREDUCE, &count);
	for (size_t i = 0; i < count; i++)
		link.factor[collet_program_index(programs[i])][0] = 100;
	const uint32_t ring = collet_program_index(collet_program_find(COLLET_ALLREDUCE, "ring"));
	link.factor[ring][0] = 0.01F;
	link.segment_log2[ring][0] = 15;
	static const struct {
		const char *name;
		uint32_t ranks, cores, measured_ranks;
		bool borrowed;
	} rows[] = {
		{"the world itself", 8, 2, 8, true},
		{"more ranks a core", 64, 2, 8, true},
		{"fewer ranks a core", 5, 2, 8, true},
		{"very many", 1000, 2, 8, true},
		{"other cores", 16, 4, 8, false},
		{"a core each", 2, 2, 8, false},
		{"measured with a core each", 8, 2, 2, false},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct collet_choice_inputs inputs = inputs_on("shm", rows[i].ranks, rows[i].cores);
		inputs.local = inputs.remote = &link;
		link.ranks = rows[i].measured_ranks;
		collet_choice_table_init(&table, &inputs);
		const bool borrowed = strcmp(chosen(&table, COLLET_ALLREDUCE, true, rows[i].ranks, 8), "ring") == 0;
		const bool cut = decided(&inputs, "ring", rows[i].ranks, 8).segment_bytes == 32768;
		if (borrowed != rows[i].borrowed || cut != rows[i].borrowed)
			fail_msg("%s: factors %s, ways %s", rows[i].name, borrowed ? "lent" : "not lent",
				cut ? "lent" : "not lent");
	}
}

/* Doubling is the fastest on far cores here, and direct on near ones. */
static void far_cores_change_no_bits(void **state)
{
	(void)state;
	static struct collet_choice_table table;
	static const enum collet_collective collectives[] = { COLLET_ALLREDUCE, COLLET_ALLGATHER };
	collet_link_cost near_link = links[SHM_LINK], far_link = links[SHM_LINK];
	near_link.size_count = far_link.size_count = 1;
	near_link.size_bytes[0] = far_link.size_bytes[0] = 8;
	for (size_t c = 0; c < 2; c++) {
		size_t count;
		const struct collet_program *const *programs = collet_programs(collectives[c], &count);
		for (size_t i = 0; i < count; i++) {
			const uint32_t index = collet_program_index(programs[i]);
			near_link.factor[index][0] = strcmp(programs[i]->name, "direct") == 0 ? 0.01F : 100;
			far_link.factor[index][0] = strcmp(programs[i]->name, "doubling") == 0 ? 0.01F : 100;
		}
	}
	static const struct {
		uint32_t ranks;
		bool is_far;
		const char *allreduce, *allgather;
	} rows[] = {
		{ 2, false, "direct", "direct" },
		{ 2, true, "doubling", "doubling" },
		{ 4, false, "direct", "direct" },
		{ 4, true, "direct", "doubling" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const uint32_t ranks = rows[i].ranks;
		struct collet_choice_inputs inputs = inputs_on("shm", ranks, ranks);
		near_link.ranks = near_link.cores = far_link.ranks = far_link.cores = ranks;
		inputs.local = &near_link;
		inputs.far = rows[i].is_far ? &far_link : NULL;
		collet_choice_table_init(&table, &inputs);
		assert_string_equal(chosen(&table, COLLET_ALLREDUCE, true, ranks, 8), rows[i].allreduce);
		assert_string_equal(chosen(&table, COLLET_ALLREDUCE, false, ranks, 8), rows[i].allreduce);
		assert_string_equal(chosen(&table, COLLET_ALLGATHER, true, ranks, 8), rows[i].allgather);
	}
}

static void forced(void **state)
{
	(void)state;
	const struct collet_program *programs[COLLET_COLLECTIVE_COUNT];
	assert_int_equal(collet_choice_parse_forced("ring", programs), COLLET_OK);
	assert_string_equal(programs[COLLET_ALLREDUCE]->name, "ring");
	assert_string_equal(programs[COLLET_ALLGATHER]->name, "ring");
	assert_null(programs[COLLET_BROADCAST]);
	assert_int_equal(collet_choice_parse_forced("allreduce:tree,broadcast:chain", programs), COLLET_OK);
	assert_ptr_equal(programs[COLLET_ALLREDUCE], collet_program_find(COLLET_ALLREDUCE, "tree"));
	assert_string_equal(programs[COLLET_BROADCAST]->name, "chain");
	assert_null(programs[COLLET_REDUCE]);
	assert_int_equal(collet_choice_parse_forced(NULL, programs), COLLET_OK);
	assert_null(programs[COLLET_ALLREDUCE]);

	static const char *const wrong[][2] = {
		{"rnig", "no collective has an algorithm \"rnig\" (did you mean \"ring\"?); there are: "},
		{"disemination", "\"disemination\" (did you mean \"dissemination\"?)"},
		{"allreduce:chain", "allreduce has no algorithm \"chain\"; it has: "},
		{"allreduce:tee", "allreduce has no algorithm \"tee\" (did you mean \"tree\"?); it has: "},
		{"allreduse:ring", "there is no collective \"allreduse\" (did you mean \"allreduce\"?)"},
		{"allreduce:", "ring"},
		{"a name that is far too long to be one of anything that this library has ever heard of", "too long"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		assert_int_equal(collet_choice_parse_forced(wrong[i][0], programs), COLLET_ERR_CONFIG);
		if (!strstr(collet_last_error(), wrong[i][1]))
			fail_msg("%s: %s", wrong[i][0], collet_last_error());
	}
}

/* Each program's description is complete, has one line, and differs from all others of the collective. */
static void every_program_is_described(void **state)
{
	(void)state;
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		const struct collet_program *const *programs = collet_programs(c, &count);
		assert_true(count > 0);
		for (size_t i = 0; i < count; i++) {
			const struct collet_program *p = programs[i];
			assert_true(p->collective == c && p->name && p->name[0]);
			if (!p->summary || !p->summary[0] || strlen(p->summary) > 100 || strchr(p->summary, '\n'))
				fail_msg("%s %s: its summary is no line", collet_collective_name(c), p->name);
			if (!p->source || !p->source[0])
				fail_msg("%s %s names no source", collet_collective_name(c), p->name);
			assert_ptr_equal(collet_program_find(c, p->name), p);   /* the first of that name */
			for (size_t j = 0; j < i; j++)
				assert_string_not_equal(programs[j]->summary, p->summary);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_has_a_program),
		cmocka_unit_test(shared_memory_goes_direct),
		cmocka_unit_test(two_ranks_exchange),
		cmocka_unit_test(hosts_that_share_a_slow_link),
		cmocka_unit_test(faster_links_are_chosen_for),
		cmocka_unit_test(the_network_is_a_link),
		cmocka_unit_test(scratch_is_bounded),
		cmocka_unit_test(listed),
		cmocka_unit_test(listed_is_cut_alike),
		cmocka_unit_test(the_model_cuts),
		cmocka_unit_test(measured_ways_are_taken),
		cmocka_unit_test(measured_factors_are_borrowed_when_oversubscribed),
		cmocka_unit_test(far_cores_change_no_bits),
		cmocka_unit_test(forced),
		cmocka_unit_test(every_program_is_described),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
