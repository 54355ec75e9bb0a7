/* Shared by the parts of compare. compare.c selects libraries and runs collectives and sizes. comparison_rounds.c
 * measures one size. comparison_table.c and comparison_json.c print it. comparison_core_latency.c prints the latency
 * between cores during the run. */
#ifndef BENCH_COMPARISON_H
#define BENCH_COMPARISON_H

#include "baseline.h"
#include "competitor.h"
#include "judge.h"
#include "options.h"
#include "report/output.h"

enum { COMPETITORS_MAX = 64 };

/* One library at one size. */
struct cell {
	bool measured;
	bool slow;                 /* so slow that it was not measured to the end */
	struct bench_ratio ratio;  /* collet's time to this one's */
	uint64_t iterations;
	/* By repeat; in the comparison's. */
	double *times_ns;          /* of one call; 0: not measured then */
	double *flags_ns;          /* what a flag took between two cores then; 0: unknown, or it changed */
	double median_ns, cpu_ns;  /* cpu: of one call, all ranks together */
	double least_ns;           /* of the repeats so far; 0: none */
	double loopback_bytes;     /* of one call, over lo; the least of the repeats, as others use lo too */
	uint32_t taken;            /* repeats that have a time */
	uint32_t tries, undisturbed;   /* in all of them; those that no other process disturbed */
	struct bench_reply prepared, sampled;
};

struct comparison {
	const struct bench_options *options;
	struct bench_work work;                          /* the collective at hand */
	struct bootstrap bootstrap;
	struct competitor competitors[COMPETITORS_MAX];  /* the first is collet */
	size_t count;
	struct cell cells[COMPETITORS_MAX];              /* of the size at hand */
	size_t best;                                     /* the peer with the least median; 0: none */
	double *medians_us;                              /* [competitor][size] of the collective; < 0: none */
	bool *slow;                                      /* the same places */
	double *times_ns, *flags_ns;                     /* [size][competitor][repeat] of the collective: see cell */
	struct bench_baseline standings;                 /* all of this run's */
	FILE *table, *json, *markdown;
	char host[65];
	bool oversubscribed;                                    /* ranks outnumber cores */
	uint64_t wrong;
	bool collet_lied;                                /* about its transport */
	uint64_t disturbed, repeated, timed;             /* repeats: still disturbed, done again, all */
};

/* collet's own memory is compared with a peer's ordinary memory, and with its own where a variant is for that. */
enum bench_buffer_kind comparison_buffers(const struct comparison *all, size_t at);
/* Reports a dropped library on standard error, so that it stays out of the table. */
void comparison_report_dropped(const char *name, const char *why);

/* Returns the index in times_ns and flags_ns of a competitor's first repeat of a size. */
static inline size_t comparison_times_at(const struct comparison *all, size_t size, size_t competitor)
{
	return (size * COMPETITORS_MAX + competitor) * all->options->repeats;
}

/* Measures all->work with this count, which is that of the collective's size'th size: fills cells, best, ratio. */
void comparison_measure(struct comparison *all, size_t size, uint64_t count, uint64_t bytes);

/* Does a library's column start here? The first of its competitors stands for it. */
bool comparison_opens_library(const struct comparison *all, size_t at);
/* The best variant, at the size at hand, of the library whose column starts there; NULL: it has no time. */
const struct cell *comparison_leader(const struct comparison *all, size_t first);
void comparison_print_header(const struct comparison *all);
void comparison_print_row(const struct comparison *all, uint64_t bytes);
/* Every variant at every size, and how disturbed the machine was. */
void comparison_print_end(const struct comparison *all, size_t sizes);
/* Prints the same table as Markdown: the header of a collective, then a row a size. */
void comparison_markdown_header(const struct comparison *all);
void comparison_markdown_row(const struct comparison *all, uint64_t bytes);

/* Prints the latency between cores. If it changed during the run, prints the ratios of all sizes for either state.
 * Follows their rows in the table and the document. */
void comparison_print_core_latency(const struct comparison *all, size_t sizes);

/* Keeps how collet stood, for --baseline. False: out of memory. */
bool comparison_note_standings(struct comparison *all, uint64_t bytes);

/* Draws time and bus bandwidth of collet and of each library's best variant, with the machine's limits. Returns
 * false after printing the reason. */
bool comparison_plot(const struct comparison *all);

void comparison_print_json(const struct comparison *all, uint64_t count, uint64_t bytes);

#endif
