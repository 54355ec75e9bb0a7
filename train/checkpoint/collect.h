/* Gathers the ranks' data on rank 0 and scatters it again. All functions are collective; false after a line on
 * standard error. */
#ifndef TRAIN_COLLECT_H
#define TRAIN_COLLECT_H

#include <stdbool.h>
#include <stdint.h>

#include <collet/collet.h>

/* One row of bytes a rank, of any length each, one behind the other. Arrays live until deinit, on rank 0; elsewhere
 * there are none. deinit takes a zeroed one. */
struct rows {
	uint64_t *counts;          /* bytes, of each rank */
	uint64_t *firsts;
	uint8_t *bytes;
	uint64_t total;
};

bool rows_collect(struct rows *rows, collet_comm *comm, const void *mine, uint64_t bytes);
/* Back again: *mine (to be freed) and *bytes are this rank's. rows is read on rank 0. */
bool rows_deal(const struct rows *rows, collet_comm *comm, void **mine, uint64_t *bytes);
/* For so many ranks, with counts to be filled in and rows_place() to be called. */
bool rows_allocate(struct rows *rows, uint32_t ranks);
void rows_place(struct rows *rows, uint32_t ranks);
void rows_deinit(struct rows *rows);

/* One array, of which each rank has elements first .. first + count; ranks' parts do not overlap. whole: on rank 0,
 * all elements; those of nobody stay as they are. */
bool parts_collect(collet_comm *comm, const float *mine, uint64_t first, uint64_t count, float *whole);
bool parts_deal(collet_comm *comm, float *mine, uint64_t first, uint64_t count, const float *whole);

#endif
