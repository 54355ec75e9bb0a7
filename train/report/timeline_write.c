/* Writes all ranks' spans as one file of Chrome's trace events. A process is a rank, its thread 0 the rank's phases,
 * thread 1 + b the transfers of bucket b. Times are microseconds since the first event. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "error.h"
#include "report/timeline_spans.h"

enum { CLOCK_ROUNDS = 16, CLOCK_TAG = 1 };

/* All of it on rank 0; elsewhere count and offset of this rank alone are used. */
struct gathered {
	struct span *spans; /* rank by rank */
	uint64_t *counts, *places;
	int64_t *offsets_ns; /* what a rank's clock lags behind rank 0's */
	uint64_t dropped;
};

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- Clocks --------------------------------------------------------------------------------------------------- */

/* Asks a rank for its time, which it reads between two readings of this clock: the quickest answer says best. Clocks
 * that agree as far as this can tell are one clock, that of a host. */
static bool ask_clock(collet_comm *comm, uint32_t rank, int64_t *offset_ns)
{
	int64_t best = INT64_MAX;
	for (int round = 0; round < CLOCK_ROUNDS; round++) {
		int64_t theirs = 0;
		const int64_t asked = now_ns();
		if (!train_check(collet_send(comm, &theirs, 1, COLLET_I64, rank, CLOCK_TAG, NULL), "--trace: clocks") ||
			!train_check(collet_recv(comm, &theirs, 1, COLLET_I64, rank, CLOCK_TAG, NULL, NULL),
				"--trace: clocks"))
			return false;
		const int64_t heard = now_ns();
		if (heard - asked >= best)
			continue;
		best = heard - asked;
		*offset_ns = asked + best / 2 - theirs;
	}
	if (llabs(*offset_ns) <= best)
		*offset_ns = 0;
	return true;
}

static bool tell_clock(collet_comm *comm)
{
	for (int round = 0; round < CLOCK_ROUNDS; round++) {
		int64_t mine = 0;
		if (!train_check(collet_recv(comm, &mine, 1, COLLET_I64, 0, CLOCK_TAG, NULL, NULL), "--trace: clocks"))
			return false;
		mine = now_ns();
		if (!train_check(collet_send(comm, &mine, 1, COLLET_I64, 0, CLOCK_TAG, NULL), "--trace: clocks"))
			return false;
	}
	return true;
}

static bool compare_clocks(struct gathered *gathered, collet_comm *comm)
{
	if (collet_comm_rank(comm) != 0)
		return tell_clock(comm);
	for (uint32_t rank = 1; rank < collet_comm_size(comm); rank++)
		if (!ask_clock(comm, rank, &gathered->offsets_ns[rank]))
			return false;
	return true;
}

/* ---- Gathering ------------------------------------------------------------------------------------------------ */

static bool gather(struct gathered *gathered, const struct spans *spans, collet_comm *comm)
{
	const uint32_t size = collet_comm_size(comm);
	uint64_t mine[2] = {spans->count * sizeof(struct span), spans->dropped}, total = 0;
	uint64_t *all = calloc(2 * (size_t)size, sizeof(*all));
	gathered->counts = calloc(size, sizeof(uint64_t));
	gathered->places = calloc(size, sizeof(uint64_t));
	gathered->offsets_ns = calloc(size, sizeof(int64_t));
	bool fine = (all && gathered->counts && gathered->places && gathered->offsets_ns) ||
		    train_fail("--trace: no memory for %u ranks", size);
	fine = fine && train_check(collet_allgather(comm, mine, all, 2, COLLET_U64, NULL), "--trace");
	for (uint32_t rank = 0; fine && rank < size; rank++) {
		gathered->counts[rank] = all[2 * rank];
		gathered->dropped += all[2 * rank + 1];
		gathered->places[rank] = total;
		total += all[2 * rank];
	}
	free(all);
	if (fine && collet_comm_rank(comm) == 0) {
		gathered->spans = malloc(total + 1);
		fine = gathered->spans || train_fail("--trace: no memory for %" PRIu64 " bytes", total);
	}
	return fine && train_check(collet_gatherv(comm, spans->spans, mine[0], gathered->spans, gathered->counts,
					   gathered->places, COLLET_U8, 0, NULL),
			       "--trace");
}

static void gathered_deinit(struct gathered *gathered)
{
	free(gathered->spans);
	free(gathered->counts);
	free(gathered->places);
	free(gathered->offsets_ns);
}

/* ---- The file ------------------------------------------------------------------------------------------------- */

static const struct span *spans_of(const struct gathered *gathered, uint32_t rank, uint64_t *count)
{
	*count = gathered->counts[rank] / sizeof(struct span);
	return gathered->spans + gathered->places[rank] / sizeof(struct span);
}

static int64_t first_of_all(const struct gathered *gathered, uint32_t size)
{
	int64_t first = INT64_MAX;
	for (uint32_t rank = 0; rank < size; rank++) {
		uint64_t count;
		const struct span *spans = spans_of(gathered, rank, &count);
		for (uint64_t i = 0; i < count; i++)
			if (spans[i].began_ns + gathered->offsets_ns[rank] < first)
				first = spans[i].began_ns + gathered->offsets_ns[rank];
	}
	return first;
}

static void write_name(
	FILE *file, const char *before, const char *what, uint32_t rank, uint32_t thread, const char *name)
{
	fprintf(file, "%s\n{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"%s\"}}", before,
		what, rank, thread, name);
}

static void write_names(FILE *file, const struct gathered *gathered, collet_comm *comm, uint32_t rank)
{
	uint64_t count;
	uint32_t buckets = 0;
	char name[300];
	const struct span *spans = spans_of(gathered, rank, &count);
	for (uint64_t i = 0; i < count; i++)
		if (spans[i].phase == PHASES && spans[i].bucket >= buckets)
			buckets = spans[i].bucket + 1;
	snprintf(name, sizeof(name), "rank %u on %s", rank, collet_comm_host(comm, rank));
	write_name(file, rank > 0 ? "," : "", "process_name", rank, 0, name);
	write_name(file, ",", "thread_name", rank, 0, "computing");
	for (uint32_t bucket = 0; bucket < buckets; bucket++) {
		snprintf(name, sizeof(name), "bucket %u", bucket);
		write_name(file, ",", "thread_name", rank, 1 + bucket, name);
	}
}

static void write_span(FILE *file, const struct span *span, uint32_t rank, int64_t zero_ns)
{
	const int64_t began = span->began_ns - zero_ns, took = span->ended_ns - span->began_ns;
	const bool transfers = span->phase >= PHASES;
	fprintf(file, ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%u,",
		transfers ? "travel" : phase_name((enum phase)span->phase), transfers ? "communication" : "computing",
		rank, transfers ? 1 + span->bucket : 0);
	fprintf(file, "\"ts\":%" PRId64 ".%03d,\"dur\":%" PRId64 ".%03d,\"args\":{\"step\":%u", began / 1000,
		(int)(began % 1000), took / 1000, (int)(took % 1000), span->step + 1);
	if (transfers)
		fprintf(file, ",\"bucket\":%u,\"bytes\":%" PRIu64, span->bucket, span->bytes);
	fprintf(file, "}}");
}

bool timeline_can_write(const char *path)
{
	FILE *file = fopen(path, "w");
	if (!file)
		return train_fail("--trace %s: %s", path, strerror(errno));
	fclose(file);
	return true;
}

static bool write_file(const struct gathered *gathered, collet_comm *comm, const char *path)
{
	const uint32_t size = collet_comm_size(comm);
	const int64_t first = first_of_all(gathered, size);
	FILE *file = fopen(path, "w");
	if (!file)
		return train_fail("--trace %s: %s", path, strerror(errno));
	fprintf(file,
		"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"collet-train %s\",\"spans left out\":%" PRIu64
		"},\"traceEvents\":[",
		collet_version(), gathered->dropped);
	for (uint32_t rank = 0; rank < size; rank++) {
		uint64_t count;
		const struct span *spans = spans_of(gathered, rank, &count);
		write_names(file, gathered, comm, rank);
		for (uint64_t i = 0; i < count; i++)
			write_span(file, &spans[i], rank, first - gathered->offsets_ns[rank]);
	}
	fprintf(file, "\n]}\n");
	const bool written = ferror(file) == 0;
	if (fclose(file) != 0 || !written)
		return train_fail("--trace %s: cannot be written: %s", path, strerror(errno));
	if (gathered->dropped > 0)
		train_fail("--trace %s: the first part of the run alone; --steps makes shorter ones", path);
	return true;
}

bool spans_write(const struct spans *spans, collet_comm *comm, const char *path)
{
	struct gathered gathered = {0};
	bool fine = gather(&gathered, spans, comm) && compare_clocks(&gathered, comm);
	if (fine && collet_comm_rank(comm) == 0)
		fine = write_file(&gathered, comm, path);
	gathered_deinit(&gathered);
	return fine;
}
