#include "checkpoint/collect.h"

#include <stdlib.h>

#include "error.h"

bool rows_allocate(struct rows *rows, uint32_t ranks)
{
	*rows = (struct rows){ .counts = calloc(ranks, sizeof(*rows->counts)),
		.firsts = calloc(ranks, sizeof(*rows->firsts)) };
	return (rows->counts && rows->firsts) || train_fail("no memory for the rows of %u ranks", ranks);
}

void rows_place(struct rows *rows, uint32_t ranks)
{
	rows->total = 0;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		rows->firsts[rank] = rows->total;
		rows->total += rows->counts[rank];
	}
}

void rows_deinit(struct rows *rows)
{
	free(rows->counts);
	free(rows->firsts);
	free(rows->bytes);
	*rows = (struct rows){ 0 };
}

bool rows_collect(struct rows *rows, collet_comm *comm, const void *mine, uint64_t bytes)
{
	const uint32_t size = collet_comm_size(comm);
	if (!rows_allocate(rows, size) ||
		!train_check(collet_allgather(comm, &bytes, rows->counts, 1, COLLET_U64, NULL), "collecting rows"))
		return false;
	rows_place(rows, size);
	if (collet_comm_rank(comm) == 0)
		rows->bytes = malloc((size_t)rows->total + 1);
	if (collet_comm_rank(comm) == 0 && !rows->bytes)
		return train_fail("no memory for %llu bytes of all ranks", (unsigned long long)rows->total);
	return rows->total == 0 ||
		train_check(collet_gatherv(comm, mine, bytes, rows->bytes, rows->counts, rows->firsts, COLLET_U8, 0,
				    NULL),
			"collecting rows");
}

bool rows_deal(const struct rows *rows, collet_comm *comm, void **mine, uint64_t *bytes)
{
	uint64_t total = rows->total;
	*mine = NULL;
	if (!train_check(collet_scatter(comm, rows->counts, bytes, 1, COLLET_U64, 0, NULL), "dealing out rows") ||
		!train_check(collet_broadcast(comm, &total, &total, 1, COLLET_U64, 0, NULL), "dealing out rows"))
		return false;
	*mine = malloc((size_t)*bytes + 1);
	if (!*mine)
		return train_fail("no memory for %llu bytes", (unsigned long long)*bytes);
	return total == 0 ||
		train_check(collet_scatterv(comm, rows->bytes, rows->counts, rows->firsts, *mine, *bytes, COLLET_U8,
				    0, NULL),
			"dealing out rows");
}

/* ---- Parts of an array --------------------------------------------------------------------------------------- */

struct places {
	uint64_t *both, *firsts, *counts;
};

/* Computes where each rank's part lies. */
static bool find_places(collet_comm *comm, uint64_t first, uint64_t count, struct places *places)
{
	const uint32_t size = collet_comm_size(comm);
	const uint64_t mine[2] = { first, count };
	uint64_t *all = calloc(size, 4 * sizeof(*all));
	if (!all)
		return train_fail("no memory for the parts of %u ranks", size);
	*places = (struct places){ all, all + 2 * (size_t)size, all + 3 * (size_t)size };
	if (!train_check(collet_allgather(comm, mine, all, 2, COLLET_U64, NULL), "collecting parts")) {
		free(all);
		return false;
	}
	for (uint32_t rank = 0; rank < size; rank++) {
		places->firsts[rank] = all[2 * (size_t)rank];
		places->counts[rank] = all[2 * (size_t)rank + 1];
	}
	return true;
}

bool parts_collect(collet_comm *comm, const float *mine, uint64_t first, uint64_t count, float *whole)
{
	struct places places;
	if (!find_places(comm, first, count, &places))
		return false;
	const bool fine = train_check(collet_gatherv(comm, mine, count, whole, places.counts, places.firsts,
					      COLLET_F32, 0, NULL),
		"collecting parts");
	free(places.both);
	return fine;
}

bool parts_deal(collet_comm *comm, float *mine, uint64_t first, uint64_t count, const float *whole)
{
	struct places places;
	if (!find_places(comm, first, count, &places))
		return false;
	const bool fine = train_check(collet_scatterv(comm, whole, places.counts, places.firsts, mine, count,
					      COLLET_F32, 0, NULL),
		"dealing out parts");
	free(places.both);
	return fine;
}
