/* Tests that a collet_ddp that is saved and created again continues bit for bit, and refuses states that are not its
 * own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/ddp_hook.h>

#include "thread_ranks.h"

enum { RANKS = 3, PARAMETERS = 4, HALF = 5, ELEMENTS = 40 * 60 + 37 + 3 + 24 * 50 };

static const uint64_t shapes[PARAMETERS][2] = { { 40, 60 }, { 37, 1 }, { 3, 1 }, { 24, 50 } };

struct row {
	const char *words;        /* specification of the hook */
	bool remembers;           /* it continues differently if nothing is loaded */
	bool keep_order;
	collet_ddp_unused unused; /* if this allows it, parameter 1 is not used */
};

/* Only the main thread asserts. */
struct run {
	const struct row *row;
	uint64_t through[RANKS][2 * HALF], resumed[RANKS][HALF], anew[RANKS][HALF];
	uint32_t layouts[RANKS][2];
	bool unused[RANKS];
	unsigned char *saved[RANKS];
	uint64_t bytes[RANKS];
	char sentence[RANKS][512];
	collet_status status[RANKS];
};

struct member {
	struct run *run;
	uint32_t rank;
	collet_comm *comm;
	collet_ddp *ddp;
	collet_ddp_hook *hook;
	float values[ELEMENTS];
};

static bool note(struct member *member, collet_status status)
{
	member->run->status[member->rank] = status;
	if (status != COLLET_OK)
		snprintf(member->run->sentence[member->rank], sizeof(member->run->sentence[0]), "%s",
			collet_last_error());
	return status == COLLET_OK;
}

static bool make(struct member *member, const char *words)
{
	const struct row *row = member->run->row;
	collet_ddp_parameter parameters[PARAMETERS];
	float *value = member->values;
	for (uint32_t p = 0; p < PARAMETERS; value += shapes[p][0] * shapes[p][1], p++)
		parameters[p] = (collet_ddp_parameter){ .name = "w", .value = value, .shape = shapes[p],
			.dimensions = shapes[p][1] > 1 ? 2 : 1, .dtype = COLLET_F32 };
	if (words && !note(member, collet_ddp_hook_create(&member->hook, words, 7)))
		return false;
	const collet_ddp_options options = { .hook = member->hook, .keep_order = row->keep_order,
		.unused = row->unused, .algorithm = "ring", .first_bucket_bytes = 6000, .bucket_bytes = 6000 };
	return note(member, collet_ddp_create(&member->ddp, member->comm, parameters, PARAMETERS, &options));
}

static bool unmake(struct member *member)
{
	const bool fine = note(member, collet_ddp_destroy(&member->ddp));
	return member->hook ? collet_ddp_hook_destroy(&member->hook) == COLLET_OK && fine : fine;
}

static uint64_t hash_of(uint64_t hash, const float *values, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		uint32_t bits;
		memcpy(&bits, &values[i], sizeof(bits));
		hash = (hash ^ bits) * UINT64_C(0x100000001b3);
	}
	return hash;
}

/* Trains with gradients that depend on (rank, step, element) alone; hashes are of the results. Gradients become ready
 * first to last, so that the layout by readiness differs from that of creation. */
static bool train(struct member *member, uint32_t from, uint32_t to, uint64_t *hashes)
{
	for (uint32_t step = from; step < to; step++) {
		for (uint32_t p = 0; p < PARAMETERS; p++) {
			if (p == 1 && member->run->row->unused != COLLET_DDP_ALL_USED)
				continue;
			float *gradient = collet_ddp_gradient(member->ddp, p);
			uint32_t x = (step * 31 + p) * 7919 + member->rank * 104729 + 1;
			for (uint64_t i = 0; i < shapes[p][0] * shapes[p][1]; i++) {
				x = x * 1664525 + 1013904223;
				gradient[i] = (float)(int32_t)x * 0x1p-31F;
			}
			if (!note(member, collet_ddp_ready(member->ddp, p)))
				return false;
		}
		if (!note(member, collet_ddp_wait(member->ddp)))
			return false;
		hashes[step - from] = UINT64_C(0xcbf29ce484222325);
		for (uint32_t p = 0; p < PARAMETERS; p++)
			hashes[step - from] = hash_of(hashes[step - from], collet_ddp_gradient(member->ddp, p),
				shapes[p][0] * shapes[p][1]);
	}
	return true;
}

static bool save(struct member *member)
{
	struct run *run = member->run;
	const uint32_t rank = member->rank;
	if (!note(member, collet_ddp_state_bytes(member->ddp, &run->bytes[rank])))
		return false;
	run->saved[rank] = malloc(run->bytes[rank]);
	return note(member, collet_ddp_state_save(member->ddp, run->saved[rank], run->bytes[rank]));
}

static bool stop_and_go(struct member *member)
{
	struct run *run = member->run;
	const uint32_t rank = member->rank;
	const char *words = run->row->words;
	uint64_t before[HALF];
	if (!make(member, words) || !train(member, 0, 2 * HALF, run->through[rank]) || !unmake(member) ||
		!make(member, words) || !train(member, 0, HALF, before) || !save(member))
		return false;
	run->layouts[rank][0] = collet_ddp_layout(member->ddp);
	if (!unmake(member) || !make(member, words) ||
		!note(member, collet_ddp_state_load(member->ddp, run->saved[rank], run->bytes[rank])))
		return false;
	run->layouts[rank][1] = collet_ddp_layout(member->ddp);
	run->unused[rank] = !collet_ddp_used(member->ddp, 1);
	return train(member, HALF, 2 * HALF, run->resumed[rank]) && unmake(member) && make(member, words) &&
		train(member, HALF, 2 * HALF, run->anew[rank]) && unmake(member);
}

static void body(collet_comm *comm, void *context)
{
	struct run *run = context;
	struct member *member = calloc(1, sizeof(*member));
	*member = (struct member){ .run = run, .rank = collet_comm_rank(comm), .comm = comm };
	if (!stop_and_go(member) && member->ddp)
		(void)collet_ddp_destroy(&member->ddp);
	free(member);
}

static void free_run(struct run *run)
{
	for (uint32_t rank = 0; rank < RANKS; rank++)
		free(run->saved[rank]);
	free(run);
}

static void what_is_saved_goes_on(void **state)
{
	static const struct row rows[] = {
		{ NULL, false, true, COLLET_DDP_ALL_USED },
		{ NULL, true, false, COLLET_DDP_ALL_USED },
		{ NULL, false, true, COLLET_DDP_FIND_UNUSED },
		{ NULL, false, true, COLLET_DDP_STATIC_UNUSED },
		{ "bf16", false, true, COLLET_DDP_ALL_USED },
		{ "topk:0.1", true, true, COLLET_DDP_ALL_USED },
		{ "topk:0.1", true, false, COLLET_DDP_ALL_USED },
		{ "randomk:0.1", true, true, COLLET_DDP_ALL_USED },
		{ "qsgd:8", true, true, COLLET_DDP_ALL_USED },
		{ "qsgd:4", true, true, COLLET_DDP_ALL_USED },
		{ "sign", true, true, COLLET_DDP_ALL_USED },
		{ "sign", true, false, COLLET_DDP_STATIC_UNUSED },
		{ "powersgd:2", true, true, COLLET_DDP_ALL_USED },
		{ "bf16,momentum:0.9", true, true, COLLET_DDP_ALL_USED },
		{ "sign,momentum:0.9", true, false, COLLET_DDP_ALL_USED },
		{ "powersgd:2", true, false, COLLET_DDP_FIND_UNUSED },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct run *run = calloc(1, sizeof(*run));
		run->row = &rows[i];
		thread_ranks_run(RANKS, body, run);
		for (uint32_t rank = 0; rank < RANKS; rank++) {
			if (run->status[rank] != COLLET_OK)
				fail_msg("row %zu, rank %u: %s", i, rank, run->sentence[rank]);
			assert_memory_equal(run->resumed[rank], run->through[rank] + HALF, sizeof(run->resumed[0]));
			assert_memory_equal(run->resumed[rank], run->resumed[0], sizeof(run->resumed[0]));
			assert_int_equal(run->layouts[rank][0], !rows[i].keep_order);
			assert_int_equal(run->layouts[rank][1], !rows[i].keep_order);
			assert_int_equal(run->unused[rank], rows[i].unused != COLLET_DDP_ALL_USED);
		}
		/* What is loaded matters. */
		const bool same = memcmp(run->anew[0], run->resumed[0], sizeof(run->anew[0])) == 0;
		if (same == rows[i].remembers)
			fail_msg("row %zu: without loading it goes on %s", i, same ? "alike" : "otherwise");
		free_run(run);
	}
}

/* ---- Refusals --------------------------------------------------------------------------------------------------- */

enum { REFUSALS = 7 };

struct refused {
	struct run run;
	collet_status status[RANKS][REFUSALS];
	char sentence[RANKS][REFUSALS][512];
	uint64_t after[RANKS][HALF], expected[RANKS][HALF];
};

/* One rank has another state, in several forms. Every rank is told, and continues training unchanged. */
static bool try_to_load(struct member *member, struct refused *refused)
{
	struct run *run = member->run;
	const uint32_t rank = member->rank;
	uint64_t before[HALF];
	if (!make(member, "topk:0.1") || !save(member))
		return false;
	unsigned char *early = run->saved[rank];
	const uint64_t early_bytes = run->bytes[rank];
	if (!train(member, 0, HALF, before) || !save(member))
		return false;
	const uint64_t bytes = run->bytes[rank];
	unsigned char *own = run->saved[rank], *other = malloc(bytes + 8);
	for (int r = 0; r < REFUSALS; r++) {
		uint64_t given = bytes;
		memcpy(other, own, bytes);
		if (rank == 1 && r == 0)
			given = 16;
		if (rank == 1 && r == 1)
			given = bytes - 8;
		if (rank == 1 && r == 2)
			other[0]++;
		if (rank == 1 && r == 3)
			other[16] = 2;  /* the rank */
		if (rank == 1 && r == 4)
			other[56]++;    /* the hook */
		if (rank == 1 && r == 5)
			other[64] = 99; /* the parameter of the first position */
		if (rank == 1 && r == 6) {
			given = early_bytes;
			memcpy(other, early, early_bytes);
		}
		refused->status[rank][r] = collet_ddp_state_load(member->ddp, other, given);
		snprintf(refused->sentence[rank][r], sizeof(refused->sentence[0][0]), "%s", collet_last_error());
	}
	free(other);
	free(early);
	return train(member, HALF, 2 * HALF, refused->after[rank]) && unmake(member) && make(member, "topk:0.1") &&
		train(member, 0, HALF, before) && train(member, HALF, 2 * HALF, refused->expected[rank]) &&
		unmake(member);
}

static void refused_body(collet_comm *comm, void *context)
{
	struct refused *refused = context;
	struct member *member = calloc(1, sizeof(*member));
	*member = (struct member){ .run = &refused->run, .rank = collet_comm_rank(comm), .comm = comm };
	if (!try_to_load(member, refused) && member->ddp)
		(void)collet_ddp_destroy(&member->ddp);
	free(member);
}

static void what_is_not_its_own_is_refused(void **state)
{
	static const struct row row = { .keep_order = false };
	static const char *const sentences[REFUSALS] = {"16 bytes are too few",
		"not written by collet_ddp_state_save", "not written by collet_ddp_state_save",
		"saved by rank 2 of 3, and is loaded by rank 1 of 3",
		"another hook", "layout does not match", "saved after 0 steps, at another time than rank 0's"};
	struct refused *refused = calloc(1, sizeof(*refused));
	refused->run.row = &row;
	thread_ranks_run(RANKS, refused_body, refused);
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		if (refused->run.status[rank] != COLLET_OK)
			fail_msg("rank %u: %s", rank, refused->run.sentence[rank]);
		for (int r = 0; r < REFUSALS; r++)
			if (refused->status[rank][r] != COLLET_ERR_ARGUMENT ||
				(rank == 1 && !strstr(refused->sentence[rank][r], sentences[r])) ||
				!strstr(refused->sentence[rank][r], rank == 1 ? sentences[r] : "rank 1"))
				fail_msg("rank %u, %d: %s", rank, r, refused->sentence[rank][r]);
		assert_memory_equal(refused->after[rank], refused->expected[rank], sizeof(refused->after[0]));
		free(refused->run.saved[rank]);
	}
	free(refused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_saved_goes_on),
		cmocka_unit_test(what_is_not_its_own_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
