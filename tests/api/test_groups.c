/* Tests collet_comm_create_group(): communicators that their members alone create. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "entries.h"
#include "members.h"
#include "ranks.h"

enum { GONE }; /* an event of rank_post() */

/* ---- Members ---- */

struct list {
	const char *name;
	uint32_t count, ranks[5], tag;
};

/* Of five ranks. Some are disjoint, some share members, some are equal but for the order, the tag or nothing. */
static const struct list lists[] = {
	{ "ends", 2, { 0, 4 }, 0 },
	{ "inner", 3, { 1, 2, 3 }, 0 },
	{ "alone", 1, { 2 }, 0 },
	{ "all", 5, { 0, 1, 2, 3, 4 }, 0 },
	{ "falling", 5, { 4, 3, 2, 1, 0 }, 0 },
	{ "neighbours", 2, { 1, 2 }, 0 },
	{ "neighbours with a tag", 2, { 1, 2 }, 7 },
	{ "neighbours again", 2, { 1, 2 }, 0 },
};
enum { LISTS = sizeof(lists) / sizeof(lists[0]) };

static bool is_member(const struct list *list, uint32_t rank)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->ranks[i] == rank)
			return true;
	return false;
}

static collet_comm *create(struct rank *rank, const struct list *list)
{
	collet_comm *group = NULL;
	rank_doing(rank, "creating %s", list->name);
	rank_ok(rank, collet_comm_create_group(rank->comm, list->ranks, list->count, list->tag, &group), list->name);
	return group;
}

/* Odd ranks create them in the opposite order, but for those that are equal. */
static void create_in_any_order(struct rank *rank)
{
	collet_comm *groups[LISTS] = { NULL };
	for (uint32_t i = 0; i < LISTS; i++) {
		const uint32_t turned = rank->rank % 2 && i < LISTS - 1 ? LISTS - 2 - i : i;
		if (is_member(&lists[turned], rank->rank))
			groups[turned] = create(rank, &lists[turned]);
	}
	/* Groups outlive the whole. */
	rank_destroy(rank);
	for (uint32_t i = 0; i < LISTS; i++) {
		if (!groups[i])
			continue;
		rank_doing(rank, "using %s", lists[i].name);
		members_are(rank, groups[i], lists[i].ranks, lists[i].count);
		rank_ok(rank, collet_comm_destroy(&groups[i]), "destroy");
	}
}

static void groups_have_their_members_in_order(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 5 }, create_in_any_order);
}

static void create_a_group_of_a_group(struct rank *rank)
{
	static const struct list outer = { "outer", 3, { 3, 2, 0 }, 1 };
	static const uint32_t numbers[] = { 2, 0 }, ranks[] = { 0, 3 };
	collet_comm *group = NULL;
	if (!is_member(&outer, rank->rank))
		return;
	collet_comm *whole = create(rank, &outer);
	if (whole && rank->rank != 2 &&
		rank_ok(rank, collet_comm_create_group(whole, numbers, 2, 1, &group), "a group of a group")) {
		members_are(rank, group, ranks, 2);
		rank_ok(rank, collet_comm_destroy(&group), "destroy");
	}
	members_are(rank, whole, outer.ranks, outer.count);
	rank_ok(rank, collet_comm_destroy(&whole), "destroy");
}

static void a_group_can_have_groups(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 4 }, create_a_group_of_a_group);
}

/* ---- Threads ---- */

struct creator {
	struct rank *rank;
	struct list list;
	pthread_t thread;
};

static void *create_and_use(void *argument)
{
	struct creator *creator = argument;
	for (uint32_t i = 0; i < 20; i++) {
		collet_comm *group = create(creator->rank, &creator->list);
		if (!group || !members_are(creator->rank, group, creator->list.ranks, creator->list.count))
			break;
		rank_ok(creator->rank, collet_comm_destroy(&group), "destroy");
	}
	return NULL;
}

static void create_in_threads(struct rank *rank)
{
	enum { THREADS = 3 };
	struct creator creators[THREADS];
	uint32_t sum = 1;
	for (uint32_t i = 0; i < THREADS; i++) {
		creators[i] = (struct creator){ .rank = rank, .list = { "a thread's", 3, { 2, 0, 1 }, i } };
		const int error = pthread_create(&creators[i].thread, NULL, create_and_use, &creators[i]);
		if (!rank_check(rank, !error, "no thread: %s", strerror(error)))
			return;
	}
	/* The whole is used meanwhile, by one thread as ever. */
	for (uint32_t i = 0; i < 100; i++)
		rank_ok(rank, collet_allreduce(rank->comm, &sum, &sum, 1, COLLET_U32, COLLET_MAX, NULL), "allreduce");
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(creators[i].thread, NULL);
}

static void threads_create_groups_of_the_same_ranks_by_tag(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, create_in_threads);
}

/* ---- What a group needs ---- */

static void count_resources(struct rank *rank)
{
	enum { GROUPS = 20 };
	collet_comm *groups[GROUPS] = { NULL };
	const uint32_t descriptors = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
	for (uint32_t i = 0; i < GROUPS; i++)
		groups[i] = create(rank, &lists[3]);
	rank_check(rank, count_entries("/proc/self/fd") == descriptors, "%u descriptors more",
		count_entries("/proc/self/fd") - descriptors);
	/* Members that go on would connect to those that still count. */
	rank_barrier(rank);
	for (uint32_t i = 0; i < GROUPS; i++) {
		members_are(rank, groups[i], lists[3].ranks, lists[3].count);
		rank_ok(rank, collet_comm_destroy(&groups[i]), "destroy");
	}
	rank_check(rank, count_entries("/proc/self/task") == threads, "%u threads more",
		count_entries("/proc/self/task") - threads);
}

static void a_new_group_has_no_descriptor_and_no_thread(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = 5, .transport = "shm" }, count_resources);
	ranks_must_pass(&(struct ranks_options){ .size = 5, .transport = "tcp" }, count_resources);
}

/* ---- Mistakes and faults ---- */

static void pass_bad_lists(struct rank *rank)
{
	const struct {
		const char *name, *sentence;
		uint32_t count, ranks[3];
	} rows[] = {
		{ "none", "not listed", 0, { 0 } },
		{ "one too many", "comm has 2 ranks", 3, { 0, 1, 2 } },
		{ "one twice", "ranks[2] is 0, which is listed before", 3, { 0, 1, 0 } },
		{ "another", "not listed; only members call it", 1, { 1 - rank->rank } },
	};
	collet_comm *const untouched = rank->comm;
	collet_comm *group = untouched;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		rank_status(rank, collet_comm_create_group(rank->comm, rows[i].ranks, rows[i].count, 0, &group),
			COLLET_ERR_ARGUMENT, rows[i].name);
		rank_check(rank, strstr(collet_last_error(), rows[i].sentence) && group == untouched, "%s: %s",
			rows[i].name, collet_last_error());
	}
	rank_status(rank, collet_comm_create_group(rank->comm, NULL, 1, 0, &group), COLLET_ERR_ARGUMENT, "no ranks");
	rank_status(rank, collet_comm_create_group(NULL, rows[0].ranks, 1, 0, &group), COLLET_ERR_ARGUMENT, "no comm");
	rank_status(rank, collet_comm_create_group(rank->comm, rows[0].ranks, 1, 0, NULL), COLLET_ERR_ARGUMENT,
		"no group");
	/* Mistakes count for nothing: the next group is every member's first. */
	const struct list both = { "both", 2, { 0, 1 }, 0 };
	group = create(rank, &both);
	members_are(rank, group, both.ranks, both.count);
	rank_ok(rank, collet_comm_destroy(&group), "destroy");
	collet_comm_abort(rank->comm);
	rank_status(rank, collet_comm_create_group(rank->comm, both.ranks, 2, 0, &group), COLLET_ERR_ABORTED,
		"a group of an ended communicator");
}

static void mistakes_are_refused(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, pass_bad_lists);
}

/* A group's end is no end of the whole, nor of another group. */
static void abort_a_group(struct rank *rank)
{
	const struct list both = { "both", 2, { 0, 1 }, 0 };
	collet_comm *aborted = create(rank, &both), *other = create(rank, &both);
	if (rank->rank == 0)
		collet_comm_abort(aborted);
	rank_status(rank, collet_barrier(aborted, NULL), COLLET_ERR_ABORTED, "barrier of the aborted group");
	members_are(rank, other, both.ranks, both.count);
	members_are(rank, rank->comm, both.ranks, both.count);
	rank_ok(rank, collet_comm_destroy(&aborted), "destroy");
	rank_ok(rank, collet_comm_destroy(&other), "destroy");
}

static void groups_end_alone(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, abort_a_group);
}

static void leave_one_out(struct rank *rank)
{
	const struct list both = { "both", 2, { 0, 1 }, 0 };
	const collet_how how = { .timeout_ns = INT64_C(2000000000) };
	/* The late one finds that the other has given up. */
	if (rank->rank == 1)
		rank_await(rank, GONE, 1);
	collet_comm *group = create(rank, &both);
	rank_status(rank, collet_barrier(group, &how), COLLET_ERR_TIMEOUT, "barrier");
	rank_check(rank, strstr(collet_last_error(), "1 on ") && strstr(collet_last_error(), "has not created"),
		"the error does not say who has not created the group: %s", collet_last_error());
	rank_ok(rank, collet_comm_destroy(&group), "destroy");
	if (rank->rank == 0)
		rank_post(rank, GONE);
	members_are(rank, rank->comm, both.ranks, both.count);
}

static void who_has_not_created_it_is_named(void **state)
{
	/* Each takes four seconds. */
	ranks_must_pass(&(struct ranks_options){ .size = 2, .transport = "shm" }, leave_one_out);
	ranks_must_pass(&(struct ranks_options){ .size = 2, .mode = RANKS_THREADS, .transport = "tcp" }, leave_one_out);
}

/* The third rank ends, before or after it creates the group. */
static void end_early(struct rank *rank)
{
	const struct list three = { "three", 3, { 0, 1, 2 }, 0 };
	const bool creates = *(const bool *)rank->options->context;
	if (rank->rank == 2) {
		collet_comm *group = creates ? create(rank, &three) : NULL;
		if (group)
			rank_ok(rank, collet_comm_destroy(&group), "destroy");
		rank_destroy(rank);
		rank_post(rank, GONE);
		return;
	}
	rank_await(rank, GONE, 1);
	collet_comm *group = create(rank, &three);
	rank_status(rank, collet_barrier(group, NULL), COLLET_ERR_PEER_LOST, "barrier without the third");
	rank_check(rank, strstr(collet_last_error(), "rank 2"), "the error does not say who left: %s",
		collet_last_error());
	rank_ok(rank, collet_comm_destroy(&group), "destroy");
}

static void who_has_left_before_is_named(void **state)
{
	static const bool creates[] = { false, true };
	for (size_t i = 0; i < 2; i++)
		ranks_must_pass_everywhere(
			&(struct ranks_options){ .size = 3, .context = &creates[i] }, end_early);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_have_their_members_in_order),
		cmocka_unit_test(a_group_can_have_groups),
		cmocka_unit_test(threads_create_groups_of_the_same_ranks_by_tag),
		cmocka_unit_test(a_new_group_has_no_descriptor_and_no_thread),
		cmocka_unit_test(mistakes_are_refused),
		cmocka_unit_test(groups_end_alone),
		cmocka_unit_test(who_has_not_created_it_is_named),
		cmocka_unit_test(who_has_left_before_is_named),
	};
	return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
