/* Checks the engine's biased lock: which thread may enter without the mutex, when the bias is revoked, and that two
 * threads are never inside at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/lock.h"
#include "skip.h"

enum { TRIALS = 300, TURNS = 400, OTHERS = 2 };

static struct collet_engine engine;

static int set_up(void **state)
{
	engine = (struct collet_engine){ 0 };
	if (collet_engine_init(&engine) != COLLET_OK)
		return -1;
	return 0;
}

static int tear_down(void **state)
{
	collet_engine_deinit(&engine);
	return 0;
}

static void run_beside(void *(*body)(void *), void *argument)
{
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, body, argument), 0);
	pthread_join(thread, NULL);
}

static void *lock_once(void *argument)
{
	collet_engine_lock(&engine);
	collet_engine_unlock(&engine);
	return NULL;
}

static void *register_once(void *argument)
{
	collet_engine_register_thread(&engine);
	return NULL;
}

static bool entered_beside;

static void *enter_once(void *argument)
{
	entered_beside = collet_engine_enter_biased(&engine);
	if (entered_beside)
		collet_engine_leave_biased(&engine);
	return NULL;
}

static bool may_enter(void)
{
	const bool may = collet_engine_enter_biased(&engine);
	if (may)
		collet_engine_leave_biased(&engine);
	return may;
}

static void must_fence(void)
{
	if (!engine.has_fence)
		skip_because("this kernel has no suitable membarrier, so there is no bias");
}

static void no_thread_enters_before_one_has_called(void **state)
{
	assert_false(may_enter());
	assert_false(collet_engine_knows_thread(&engine));
}

static void the_first_caller_may_enter(void **state)
{
	must_fence();
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_knows_thread(&engine));
	assert_true(may_enter());
	run_beside(enter_once, NULL);
	assert_false(entered_beside);
	/* It may also take the mutex, which does not revoke its own bias. */
	lock_once(NULL);
	assert_true(may_enter());
}

static void no_thread_enters_twice(void **state)
{
	must_fence();
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_enter_biased(&engine));
	assert_false(collet_engine_enter_biased(&engine));
	collet_engine_leave_biased(&engine);
	assert_true(may_enter());
}

static void a_holder_upgrades_to_the_mutex(void **state)
{
	must_fence();
	collet_engine_register_thread(&engine);
	bool is_biased = collet_engine_lock_biased(&engine);
	assert_true(is_biased);
	collet_engine_upgrade_lock(&engine, &is_biased);
	assert_false(is_biased);
	assert_int_not_equal(pthread_mutex_trylock(&engine.mutex), 0);
	collet_engine_unlock_biased(&engine, is_biased);
	assert_int_equal(pthread_mutex_trylock(&engine.mutex), 0);
	pthread_mutex_unlock(&engine.mutex);
	assert_true(may_enter());
}

/* The first row revokes the bias by the lock, the second by a call. */
static void another_thread_revokes_the_bias_for_good(void **state)
{
	static void *(*const bodies[])(void *) = { lock_once, register_once };
	must_fence();
	for (size_t b = 0; b < sizeof(bodies) / sizeof(bodies[0]); b++) {
		collet_engine_deinit(&engine);
		assert_int_equal(set_up(NULL), 0);
		collet_engine_register_thread(&engine);
		run_beside(bodies[b], NULL);
		assert_false(may_enter());
		collet_engine_register_thread(&engine);
		assert_false(may_enter());
		run_beside(enter_once, NULL);
		assert_false(entered_beside);
		/* Both threads take the mutex now. */
		bool is_biased = collet_engine_lock_biased(&engine);
		assert_false(is_biased);
		collet_engine_upgrade_lock(&engine, &is_biased);
		collet_engine_unlock_biased(&engine, is_biased);
	}
}

static bool known_beside;

static void *ask_whether_known(void *argument)
{
	known_beside = collet_engine_knows_thread(&engine);
	return NULL;
}

/* A thread that comes while another revokes the bias must wait as well until the owner has left. */
static void no_thread_is_known_before_the_owner_has_left(void **state)
{
	must_fence();
	pthread_t revoker;
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_enter_biased(&engine));
	assert_int_equal(pthread_create(&revoker, NULL, lock_once, NULL), 0);
	while (atomic_load(&engine.bias_owner) == collet_this_thread())
		;
	run_beside(ask_whether_known, NULL);
	assert_false(known_beside);
	collet_engine_leave_biased(&engine);
	pthread_join(revoker, NULL);
	run_beside(ask_whether_known, NULL);
	assert_true(known_beside);
	assert_true(collet_engine_knows_thread(&engine));
	assert_false(may_enter());
}

static void with_a_progress_thread_there_is_no_bias(void **state)
{
	engine.has_progress_thread = true;
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_knows_thread(&engine));
	assert_false(may_enter());
	engine.has_progress_thread = false;
}

static void without_fences_there_is_no_bias(void **state)
{
	engine.has_fence = false;
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_knows_thread(&engine));
	assert_false(may_enter());
}

/* ---- Mutual exclusion ---- */

static struct {
	uint64_t before, after;      /* not atomic: the lock protects them */
	uint64_t torn;
	uint64_t biased_entries;
	_Atomic uint32_t ready;
} shared;

static void touch(void)
{
	shared.torn += shared.before != shared.after;
	shared.before++;
	shared.after++;
}

static void *touch_with_the_mutex(void *argument)
{
	atomic_fetch_add(&shared.ready, 1);
	for (uint32_t i = 0; i < TURNS; i++) {
		collet_engine_lock(&engine);
		touch();
		collet_engine_unlock(&engine);
	}
	return NULL;
}

/* Runs as the owner of the bias. Every eighth time it upgrades to the mutex. */
static void touch_as_owner(uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++) {
		bool is_biased = collet_engine_lock_biased(&engine);
		shared.biased_entries += is_biased;
		touch();
		if (i % 8 == 0) {
			collet_engine_upgrade_lock(&engine, &is_biased);
			touch();
		}
		collet_engine_unlock_biased(&engine, is_biased);
	}
}

static void two_threads_are_never_inside(void **state)
{
	must_fence();
	shared.before = shared.after = shared.torn = shared.biased_entries = 0;
	for (uint32_t trial = 0; trial < TRIALS; trial++) {
		pthread_t threads[OTHERS];
		collet_engine_deinit(&engine);
		assert_int_equal(set_up(NULL), 0);
		atomic_store(&shared.ready, 0);
		collet_engine_register_thread(&engine);
		touch_as_owner(1);
		for (uint32_t t = 0; t < OTHERS; t++)
			assert_int_equal(pthread_create(&threads[t], NULL, touch_with_the_mutex, NULL), 0);
		/* The other threads arrive during this loop. */
		while (atomic_load(&shared.ready) < OTHERS)
			touch_as_owner(1);
		touch_as_owner(TURNS);
		for (uint32_t t = 0; t < OTHERS; t++)
			pthread_join(threads[t], NULL);
		assert_int_equal(shared.before, shared.after);
	}
	assert_int_equal(shared.torn, 0);
	assert_true(shared.biased_entries >= TRIALS);
	assert_true(shared.before >= (uint64_t)TRIALS * (OTHERS + 1) * TURNS);
}

/* ---- Of an entering owner and a revoking thread, one sees the other ---- */

enum { REVOCATIONS = 3000, READS = 30 };

static struct {
	_Atomic bool ready, is_revoked;
} revocation;

static void *revoke_once(void *argument)
{
	atomic_store(&revocation.ready, true);
	collet_engine_lock(&engine);
	atomic_store_explicit(&revocation.is_revoked, true, memory_order_relaxed);
	collet_engine_unlock(&engine);
	return NULL;
}

/* Enters repeatedly until the bias is revoked. Returns how often it was inside although that had happened. */
static uint32_t enter_until_revoked(void)
{
	uint32_t too_late = 0;
	while (collet_engine_enter_biased(&engine)) {
		for (uint32_t look = 0; look < READS && !too_late; look++)
			too_late += atomic_load_explicit(&revocation.is_revoked, memory_order_relaxed);
		collet_engine_leave_biased(&engine);
	}
	return too_late;
}

static void the_owner_is_not_inside_after_a_revocation(void **state)
{
	must_fence();
	uint32_t too_late = 0;
	for (uint32_t trial = 0; trial < REVOCATIONS; trial++) {
		pthread_t thread;
		collet_engine_deinit(&engine);
		assert_int_equal(set_up(NULL), 0);
		atomic_store(&revocation.ready, false);
		atomic_store(&revocation.is_revoked, false);
		collet_engine_register_thread(&engine);
		assert_int_equal(pthread_create(&thread, NULL, revoke_once, NULL), 0);
		while (!atomic_load(&revocation.ready))
			;
		too_late += enter_until_revoked();
		pthread_join(thread, NULL);
	}
	assert_int_equal(too_late, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(no_thread_enters_before_one_has_called, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_first_caller_may_enter, set_up, tear_down),
		cmocka_unit_test_setup_teardown(no_thread_enters_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_holder_upgrades_to_the_mutex, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_thread_revokes_the_bias_for_good, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			no_thread_is_known_before_the_owner_has_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(with_a_progress_thread_there_is_no_bias, set_up, tear_down),
		cmocka_unit_test_setup_teardown(without_fences_there_is_no_bias, set_up, tear_down),
		cmocka_unit_test_setup_teardown(two_threads_are_never_inside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_owner_is_not_inside_after_a_revocation, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
