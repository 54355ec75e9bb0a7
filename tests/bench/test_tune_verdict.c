/* How sure it is which of two takes longer: surer with more turns, whatever the machine was in each of them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tune/tune_verdict.h"

enum { TURNS = 32 };

/* Of two things of which b takes `lead` times as long as a, each time up to `noise` off, on a machine of two speeds. */
static void take_turns(double a[TURNS], double b[TURNS], double lead, double noise)
{
	uint32_t seed = 5;
	for (int k = 0; k < TURNS; k++) {
		const double speed = k % 3 == 0 ? 2 : 1;
		for (int of = 0; of < 2; of++) {
			seed = seed * 1664525u + 1013904223u;
			const double off = 1 + noise * (2 * ((double)(seed >> 8) / (1 << 24)) - 1);
			(of == 0 ? a : b)[k] = 100 * speed * off * (of == 0 ? 1 : lead);
		}
	}
}

static void turns_make_sure(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		double lead, noise, limit;
		size_t turns;
		enum tune_verdict verdict;
	} rows[] = {
		{ "far ahead", 1.5, 0.05, 1.1, 8, TUNE_BEYOND },
		{ "far below the limit", 1.02, 0.02, 1.1, 8, TUNE_WITHIN },
		{ "behind", 0.8, 0.05, 1.04, 8, TUNE_WITHIN },
		{ "near the limit", 1.09, 0.1, 1.1, 8, TUNE_OPEN },
		{ "noise, few turns", 1.04, 0.2, 1.1, 6, TUNE_OPEN },
		{ "noise, many turns", 1.04, 0.05, 1.1, TURNS, TUNE_WITHIN },
		{ "two turns", 1.5, 0, 1.1, 2, TUNE_OPEN },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double a[TURNS], b[TURNS];
		take_turns(a, b, rows[i].lead, rows[i].noise);
		const double standard_error = tune_standard_error(b, a, rows[i].turns);
		const enum tune_verdict verdict = tune_verdict(log(rows[i].lead), standard_error, log(rows[i].limit));
		if (verdict != rows[i].verdict)
			fail_msg("%s: verdict %d, doubt %.4f", rows[i].name, (int)verdict, standard_error);
	}
}

/* Turns in which one of both was not there, or somebody else ran, say nothing. */
static void only_turns_together_count(void **state)
{
	(void)state;
	double a[TURNS], b[TURNS];
	take_turns(a, b, 1.2, 0.02);
	const double before = tune_standard_error(a, b, TURNS);
	for (int k = 4; k < TURNS; k += 4)
		b[k] = k % 8 == 0 ? 0 : 50 * b[k];
	assert_true(tune_standard_error(a, b, TURNS) < 2 * before);
	for (int k = 2; k < TURNS; k++)
		a[k] = 0;
	assert_true(isinf(tune_standard_error(a, b, TURNS)));
}

/* That a few turns agree to the last digit is chance. */
static void nothing_is_quite_sure(void **state)
{
	(void)state;
	double a[TURNS], b[TURNS];
	take_turns(a, b, 1.2, 0);
	assert_true(tune_standard_error(a, b, TURNS) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(turns_make_sure),
		cmocka_unit_test(only_turns_together_count),
		cmocka_unit_test(nothing_is_quite_sure),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
