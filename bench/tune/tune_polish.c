/* Runs a median polish on logarithms of times. A time is the product of the thing's own time and the slowness of its
 * turn. The medians over turns compare the things; the medians over things compare the turns. Each is removed from
 * the other in rounds. So things are compared within the turns they shared, and one disturbed turn does no harm. */
#include "tune_polish.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 8 };

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double tune_median(double *values, size_t count)
{
	qsort(values, count, sizeof(values[0]), by_value);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* level[i] of rows from others[k] of columns, where there is a time; a stride for each direction. */
static void level_rows(const double *time, size_t rows, size_t row_stride, size_t columns, size_t column_stride,
	const double *others, double *level, double *room)
{
	for (size_t i = 0; i < rows; i++) {
		size_t count = 0;
		for (size_t k = 0; k < columns; k++) {
			const double t = time[i * row_stride + k * column_stride];
			if (t > 0)
				room[count++] = log(t) - others[k];
		}
		level[i] = count > 0 ? tune_median(room, count) : 0;
	}
}

static size_t used_turns(const double *time, size_t things, size_t turns, const double *slow, double *used)
{
	size_t count = 0;
	for (size_t k = 0; k < turns; k++) {
		size_t i = 0;
		while (i < things && time[i * turns + k] <= 0)
			i++;
		if (i < things)
			used[count++] = slow[k];
	}
	return count;
}

bool tune_polish(const double *time, size_t things, size_t turns, double *out)
{
	const size_t most = things > turns ? things : turns;
	double *takes = calloc(things + 1, sizeof(double)), *slow = calloc(turns + 1, sizeof(double)),
	       *room = calloc(most + 1, sizeof(double));
	const bool done = takes != NULL && slow != NULL && room != NULL;
	for (int round = 0; done && round < ROUNDS; round++) {
		level_rows(time, things, turns, turns, 1, slow, takes, room);
		level_rows(time, turns, 1, things, turns, takes, slow, room);
	}
	const size_t used = done ? used_turns(time, things, turns, slow, room) : 0;
	if (used > 0)
		qsort(room, used, sizeof(room[0]), by_value);
	for (size_t i = 0; done && i < things; i++) {
		size_t k = 0;
		while (k < turns && time[i * turns + k] <= 0)
			k++;
		out[i] = k < turns ? exp(takes[i] + room[used / 4]) : 0;
	}
	free(takes);
	free(slow);
	free(room);
	return done;
}
