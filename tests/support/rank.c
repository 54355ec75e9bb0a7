/* Implements one rank of a run: its communicator, its reports, its end. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <collet/tools.h>

#include "ranks_run.h"

bool rank_check(struct rank *rank, bool ok, const char *format, ...)
{
	struct rank_report *report = rank->report;
	if (ok)
		return true;
	pthread_mutex_lock(&rank->report_lock);
	if (!report->failed) {
		va_list arguments;
		va_start(arguments, format);
		vsnprintf(report->sentence, sizeof(report->sentence), format, arguments);
		va_end(arguments);
		report->failed = true;
	}
	pthread_mutex_unlock(&rank->report_lock);
	return false;
}

bool rank_status(struct rank *rank, collet_status status, collet_status wanted, const char *what)
{
	return rank_check(rank, status == wanted, "%s: %s instead of %s: %s", what, collet_status_name(status),
		collet_status_name(wanted), status == COLLET_OK ? "" : collet_last_error());
}

bool rank_ok(struct rank *rank, collet_status status, const char *what)
{
	return rank_status(rank, status, COLLET_OK, what);
}

void rank_doing(struct rank *rank, const char *format, ...)
{
	ranks_give_sign(rank->run);
	pthread_mutex_lock(&rank->report_lock);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(rank->report->doing, sizeof(rank->report->doing), format, arguments);
	va_end(arguments);
	pthread_mutex_unlock(&rank->report_lock);
}

void rank_fill_options(const struct rank *rank, uint32_t world, collet_options *options, char store[64])
{
	snprintf(store, 64, "%s-%u", rank->run->store, world);
	*options = (collet_options){
		.explicit_rank = true,
		.rank = rank->rank,
		.world_size = rank->size,
		.local_rank = rank->rank,
		.store = store,
		.transport = rank->options->transport,
		.algorithm = rank->options->algorithm,
		.timeout_ns = rank->options->timeout_ns ? rank->options->timeout_ns : COLLET_NO_TIMEOUT,
		.rendezvous_timeout_ns = COLLET_NO_TIMEOUT,
		.progress_thread = rank->options->progress_thread ? 1 : -1,
	};
}

bool rank_create(struct rank *rank)
{
	char store[64];
	collet_options options;
	rank_fill_options(rank, 0, &options, store);
	collet_comm *comm = NULL;
	const collet_status status = collet_comm_create(&comm, &options);
	pthread_mutex_lock(&rank->comm_lock);
	rank->comm = comm;
	pthread_mutex_unlock(&rank->comm_lock);
	return rank_ok(rank, status, "collet_comm_create");
}

bool rank_create_tuned(struct rank *rank, const char *file)
{
	if (rank->rank == 0)
		setenv("COLLET_TUNING", file, 1);
	return rank_create(rank);
}

bool rank_destroy(struct rank *rank)
{
	pthread_mutex_lock(&rank->comm_lock);
	const collet_status status = rank->comm ? collet_comm_destroy(&rank->comm) : COLLET_OK;
	pthread_mutex_unlock(&rank->comm_lock);
	return rank_ok(rank, status, "collet_comm_destroy");
}

void rank_run(struct rank *rank, ranks_body *body)
{
	rank_doing(rank, "creating its communicator");
	if (rank->options->bare || rank_create(rank)) {
		rank_doing(rank, "in the body");
		body(rank);
	}
	/* After a failure, keep what the rank was doing then. */
	if (!rank->report->failed)
		rank_doing(rank, "destroying its communicator");
	rank_destroy(rank);
	rank->report->returned = true;
}

/* Prints the last lines of the flight recorder: earlier calls have ended well. */
static void dump(struct rank *rank)
{
	enum { LINES = 24 };
	const int file = memfd_create("dump", MFD_CLOEXEC);
	if (file < 0 || collet_comm_dump(rank->comm, file) != COLLET_OK) {
		fprintf(stderr, "rank %u has no dump: %s\n", rank->rank,
			file < 0 ? strerror(errno) : collet_last_error());
	} else {
		const off_t bytes = lseek(file, 0, SEEK_END);
		char *text = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
		if (text != MAP_FAILED) {
			off_t from = bytes;
			for (uint32_t lines = 0; from > 0 && lines <= LINES; from--)
				lines += text[from - 1] == '\n';
			fprintf(stderr, "%.*s", (int)(bytes - from), text + from);
			munmap(text, (size_t)bytes);
		}
	}
	if (file >= 0)
		close(file);
}

void rank_end_stuck(struct rank *rank)
{
	pthread_mutex_lock(&rank->report_lock);
	fprintf(stderr, "rank %u of %u is stuck: %s\n", rank->rank, rank->size, rank->report->doing);
	pthread_mutex_unlock(&rank->report_lock);
	if (pthread_mutex_trylock(&rank->comm_lock) != 0) {
		fprintf(stderr, "rank %u: inside collet_comm_destroy()\n", rank->rank);
		return;
	}
	if (rank->comm) {
		dump(rank);
		collet_comm_abort(rank->comm);
	}
	pthread_mutex_unlock(&rank->comm_lock);
}

/* The largest number of rows of a test's communicator. */
enum { STATS = 128 };

static size_t read_stats(struct rank *rank, collet_stat stats[STATS])
{
	size_t count = 0;
	rank_ok(rank, collet_comm_stats(rank->comm, stats, STATS, &count), "statistics");
	rank_check(rank, count <= STATS, "%zu rows of statistics", count);
	return count < STATS ? count : STATS;
}

uint64_t rank_uses(struct rank *rank, const char *name)
{
	collet_stat stats[STATS];
	const size_t count = read_stats(rank, stats);
	uint64_t calls = 0;
	for (size_t i = 0; i < count; i++)
		if (stats[i].kind == COLLET_STAT_ALGORITHM && strstr(stats[i].name, name))
			calls += stats[i].calls;
	return calls;
}

struct rank_sent rank_sent(struct rank *rank)
{
	collet_stat stats[STATS];
	const size_t count = read_stats(rank, stats);
	struct rank_sent sent = { 0 };
	for (size_t i = 0; i < count; i++) {
		if (stats[i].kind != COLLET_STAT_TRANSPORT)
			continue;
		sent.messages += stats[i].messages_sent;
		sent.bytes += stats[i].bytes_sent;
	}
	return sent;
}

uint64_t rank_received(struct rank *rank, const char *transport)
{
	collet_stat stats[STATS];
	const size_t count = read_stats(rank, stats);
	uint64_t messages = 0;
	for (size_t i = 0; i < count; i++)
		if (stats[i].kind == COLLET_STAT_TRANSPORT && strcmp(stats[i].name, transport) == 0)
			messages += stats[i].messages_received;
	return messages;
}
