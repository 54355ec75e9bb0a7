/* The engine's lock, and the usual thread's shorter way in: who may take it, when it is gone, and that never two are
 * inside, whoever comes when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/lock.h"

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

static void *introduce_once(void *argument)
{
	collet_engine_register_thread(&engine);
	return NULL;
}

static bool stepped_in_elsewhere;

static void *step_in_once(void *argument)
{
	stepped_in_elsewhere = collet_engine_enter_biased(&engine);
	if (stepped_in_elsewhere)
		collet_engine_leave_biased(&engine);
	return NULL;
}

static bool may_step_in(void)
{
	const bool may = collet_engine_enter_biased(&engine);
	if (may)
		collet_engine_leave_biased(&engine);
	return may;
}

static void must_fence(void)
{
	if (!engine.has_fence)
		skip();  /* this kernel has no membarrier for it: nobody steps in */
}

static void nobody_steps_in_before_a_thread_has_called(void **state)
{
	assert_false(may_step_in());
	assert_false(collet_engine_knows_thread(&engine));
}

static void the_first_to_call_may_step_in(void **state)
{
	must_fence();
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_knows_thread(&engine));
	assert_true(may_step_in());
	run_beside(step_in_once, NULL);
	assert_false(stepped_in_elsewhere);
	/* By the mutex it may come as well, and that takes nothing away from it. */
	lock_once(NULL);
	assert_true(may_step_in());
}

static void nobody_steps_in_twice(void **state)
{
	must_fence();
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_enter_biased(&engine));
	assert_false(collet_engine_enter_biased(&engine));
	collet_engine_leave_biased(&engine);
	assert_true(may_step_in());
}

static void who_must_wait_goes_over_to_the_mutex(void **state)
{
	must_fence();
	collet_engine_register_thread(&engine);
	bool stepped_in = collet_engine_lock_biased(&engine);
	assert_true(stepped_in);
	collet_engine_upgrade_lock(&engine, &stepped_in);
	assert_false(stepped_in);
	assert_int_not_equal(pthread_mutex_trylock(&engine.mutex), 0);
	collet_engine_unlock_biased(&engine, stepped_in);
	assert_int_equal(pthread_mutex_trylock(&engine.mutex), 0);
	pthread_mutex_unlock(&engine.mutex);
	assert_true(may_step_in());
}

/* The first row's way of taking it over is the lock, the second's a call. */
static void another_thread_takes_it_over_for_good(void **state)
{
	static void *(*const bodies[])(void *) = { lock_once, introduce_once };
	must_fence();
	for (size_t b = 0; b < sizeof(bodies) / sizeof(bodies[0]); b++) {
		collet_engine_deinit(&engine);
		assert_int_equal(set_up(NULL), 0);
		collet_engine_register_thread(&engine);
		run_beside(bodies[b], NULL);
		assert_false(may_step_in());
		collet_engine_register_thread(&engine);
		assert_false(may_step_in());
		run_beside(step_in_once, NULL);
		assert_false(stepped_in_elsewhere);
		/* And both have the mutex. */
		bool stepped_in = collet_engine_lock_biased(&engine);
		assert_false(stepped_in);
		collet_engine_upgrade_lock(&engine, &stepped_in);
		collet_engine_unlock_biased(&engine, stepped_in);
	}
}

static bool known_elsewhere;

static void *ask_whether_known(void *argument)
{
	known_elsewhere = collet_engine_knows_thread(&engine);
	return NULL;
}

/* Who comes while another takes it over has to wait, too, until the usual thread is out. */
static void nobody_is_known_before_the_usual_thread_is_out(void **state)
{
	must_fence();
	pthread_t taker;
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_enter_biased(&engine));
	assert_int_equal(pthread_create(&taker, NULL, lock_once, NULL), 0);
	while (atomic_load(&engine.bias_owner) == collet_this_thread())
		;
	run_beside(ask_whether_known, NULL);
	assert_false(known_elsewhere);
	collet_engine_leave_biased(&engine);
	pthread_join(taker, NULL);
	run_beside(ask_whether_known, NULL);
	assert_true(known_elsewhere);
	assert_true(collet_engine_knows_thread(&engine));
	assert_false(may_step_in());
}

static void with_a_progress_thread_nobody_steps_in(void **state)
{
	engine.has_progress_thread = true;
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_knows_thread(&engine));
	assert_false(may_step_in());
	engine.has_progress_thread = false;
}

static void without_fences_nobody_steps_in(void **state)
{
	engine.has_fence = false;
	collet_engine_register_thread(&engine);
	assert_true(collet_engine_knows_thread(&engine));
	assert_false(may_step_in());
}

/* ---- Never two at once ---- */

static struct {
	uint64_t before, after;      /* plain: what the lock is there for */
	uint64_t torn;
	uint64_t by_stepping_in;
	_Atomic uint32_t ready;
} shared;

static void touch(void)
{
	shared.torn += shared.before != shared.after;
	shared.before++;
	shared.after++;
}

static void *touch_by_the_mutex(void *argument)
{
	atomic_fetch_add(&shared.ready, 1);
	for (uint32_t i = 0; i < TURNS; i++) {
		collet_engine_lock(&engine);
		touch();
		collet_engine_unlock(&engine);
	}
	return NULL;
}

/* The usual thread: every eighth time it turns out to have to wait. */
static void touch_by_any_way(uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++) {
		bool stepped_in = collet_engine_lock_biased(&engine);
		shared.by_stepping_in += stepped_in;
		touch();
		if (i % 8 == 0) {
			collet_engine_upgrade_lock(&engine, &stepped_in);
			touch();
		}
		collet_engine_unlock_biased(&engine, stepped_in);
	}
}

static void never_two_are_inside(void **state)
{
	must_fence();
	shared.before = shared.after = shared.torn = shared.by_stepping_in = 0;
	for (uint32_t trial = 0; trial < TRIALS; trial++) {
		pthread_t threads[OTHERS];
		collet_engine_deinit(&engine);
		assert_int_equal(set_up(NULL), 0);
		atomic_store(&shared.ready, 0);
		collet_engine_register_thread(&engine);
		touch_by_any_way(1);
		for (uint32_t t = 0; t < OTHERS; t++)
			assert_int_equal(pthread_create(&threads[t], NULL, touch_by_the_mutex, NULL), 0);
		/* They come in the midst of this. */
		while (atomic_load(&shared.ready) < OTHERS)
			touch_by_any_way(1);
		touch_by_any_way(TURNS);
		for (uint32_t t = 0; t < OTHERS; t++)
			pthread_join(threads[t], NULL);
		assert_int_equal(shared.before, shared.after);
	}
	assert_int_equal(shared.torn, 0);
	assert_true(shared.by_stepping_in >= TRIALS);
	assert_true(shared.before >= (uint64_t)TRIALS * (OTHERS + 1) * TURNS);
}

/* ---- Of who steps in and who takes over, one sees the other ---- */

enum { TAKEOVERS = 3000, LOOKS = 30 };

static struct {
	_Atomic bool ready, taken;
} over;

static void *take_over_once(void *argument)
{
	atomic_store(&over.ready, true);
	collet_engine_lock(&engine);
	atomic_store_explicit(&over.taken, true, memory_order_relaxed);
	collet_engine_unlock(&engine);
	return NULL;
}

/* Steps in again and again until it cannot any more. How often it was inside when it had been taken over already. */
static uint32_t step_in_until_taken_over(void)
{
	uint32_t too_late = 0;
	while (collet_engine_enter_biased(&engine)) {
		for (uint32_t look = 0; look < LOOKS && !too_late; look++)
			too_late += atomic_load_explicit(&over.taken, memory_order_relaxed);
		collet_engine_leave_biased(&engine);
	}
	return too_late;
}

static void nobody_is_inside_when_it_has_been_taken_over(void **state)
{
	must_fence();
	uint32_t too_late = 0;
	for (uint32_t trial = 0; trial < TAKEOVERS; trial++) {
		pthread_t thread;
		collet_engine_deinit(&engine);
		assert_int_equal(set_up(NULL), 0);
		atomic_store(&over.ready, false);
		atomic_store(&over.taken, false);
		collet_engine_register_thread(&engine);
		assert_int_equal(pthread_create(&thread, NULL, take_over_once, NULL), 0);
		while (!atomic_load(&over.ready))
			;
		too_late += step_in_until_taken_over();
		pthread_join(thread, NULL);
	}
	assert_int_equal(too_late, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nobody_steps_in_before_a_thread_has_called, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_first_to_call_may_step_in, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nobody_steps_in_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(who_must_wait_goes_over_to_the_mutex, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_thread_takes_it_over_for_good, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			nobody_is_known_before_the_usual_thread_is_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(with_a_progress_thread_nobody_steps_in, set_up, tear_down),
		cmocka_unit_test_setup_teardown(without_fences_nobody_steps_in, set_up, tear_down),
		cmocka_unit_test_setup_teardown(never_two_are_inside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nobody_is_inside_when_it_has_been_taken_over, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
