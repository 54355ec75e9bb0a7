/* One time for each of many things that were timed in turns, on a machine that is not always the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tune/tune_polish.h"

enum { THINGS = 5, TURNS = 8 };

static const double takes[THINGS] = { 100, 104, 150, 90, 400 };

static void polish(double time[THINGS][TURNS], double out[THINGS])
{
	assert_true(tune_polish(&time[0][0], THINGS, TURNS, out));
}

static void all_in_proportion(double time[THINGS][TURNS], const double *speed)
{
	for (int i = 0; i < THINGS; i++)
		for (int k = 0; k < TURNS; k++)
			time[i][k] = takes[i] * speed[k];
}

static void about(double value, double expected)
{
	if (fabs(value / expected - 1) > 0.02)
		fail_msg("%.2f, expected %.2f", value, expected);
}

static void a_machine_of_two_speeds(void **state)
{
	(void)state;
	const double speed[TURNS] = { 1, 1, 2, 2, 2, 1, 2, 2 };
	double time[THINGS][TURNS], out[THINGS];
	all_in_proportion(time, speed);
	polish(time, out);
	for (int i = 0; i < THINGS; i++)
		about(out[i], takes[i]);
}

/* Who was there only while the machine was slow is not slower for it, nor one who was away then faster. */
static void some_are_not_always_there(void **state)
{
	(void)state;
	const double speed[TURNS] = { 2, 2, 2, 2, 1, 1, 1, 1 };
	double time[THINGS][TURNS], out[THINGS];
	all_in_proportion(time, speed);
	for (int k = 4; k < TURNS; k++)
		time[4][k] = 0;
	for (int k = 0; k < 4; k++)
		time[3][k] = 0;
	polish(time, out);
	for (int i = 0; i < THINGS; i++)
		about(out[i] / out[0], takes[i] / takes[0]);
}

static void one_is_disturbed(void **state)
{
	(void)state;
	const double speed[TURNS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	double time[THINGS][TURNS], out[THINGS];
	all_in_proportion(time, speed);
	time[3][2] *= 30;
	time[3][5] *= 3;
	time[0][1] *= 10;
	polish(time, out);
	for (int i = 0; i < THINGS; i++)
		about(out[i], takes[i]);
}

static void nobody_was_there(void **state)
{
	(void)state;
	double time[THINGS][TURNS] = { { 0 } }, out[THINGS];
	time[1][3] = 7;
	polish(time, out);
	about(out[1], 7);
	assert_true(out[0] == 0 && out[4] == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_machine_of_two_speeds),
		cmocka_unit_test(some_are_not_always_there),
		cmocka_unit_test(one_is_disturbed),
		cmocka_unit_test(nobody_was_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
