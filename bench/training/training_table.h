/* Prints the results of collet-bench training as a table and as JSON, and draws them. */
#ifndef BENCH_TRAINING_TABLE_H
#define BENCH_TRAINING_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "training_model.h"

/* A line of the table. < 0: not known. */
struct training_row {
	enum training_strategy strategy;
	uint32_t ranks, workers;
	bool predicted;
	double images_per_s;           /* measured: the median of the rounds */
	double efficiency;             /* against one rank, times ranks */
	double bytes, busiest_bytes;   /* a step: that a rank sends in the mean; of the busiest */
	double hidden, accuracy;       /* 0 to 1 */
	double memory_bytes;           /* on the rank that holds most */
	double staleness, apart;       /* steps at most; a weight's largest distance from the average */
};

void training_table(FILE *out, const struct training_row *rows, size_t count);
void training_json(FILE *json, const struct training_row *rows, size_t count, const char *transport);
/* Draws an SVG by gnuplot. Returns false after printing the reason. */
bool training_draw(const char *path, const char *title, const struct training_row *rows, size_t count);

#endif
