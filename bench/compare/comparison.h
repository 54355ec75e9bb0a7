/* Shared by the parts of compare. compare.c selects libraries and runs collectives and sizes. comparison_rounds.c
 * measures one size. comparison_results.c evaluates the repeats. comparison_table.c, comparison_markdown.c,
 * comparison_json.c and comparison_plot.c print the results. */
#ifndef BENCH_COMPARISON_H
#define BENCH_COMPARISON_H

#include "baseline.h"
#include "competitor.h"
#include "judge.h"
#include "options.h"
#include "report/output.h"

enum { COMPETITORS_MAX = 96 };

/* One library at the size at hand. */
struct cell {
	bool measured;
	bool slow;                 /* so slow that it was not measured to the end */
	uint64_t iterations;
	double calibrated_ns;      /* of one call, when iterations were found out: the least batch; 0: unknown */
	uint64_t rewritten_iterations; /* --rewrite: calls whose input is rewritten; 0: not known yet */
	double least_ns;           /* of the repeats so far; 0: none */
	double loopback_bytes;     /* of one call, over lo; the least of the repeats, as others use lo too */
	uint32_t taken;            /* repeats that have a time */
	uint32_t tries, undisturbed;   /* in all of them; those that no other process disturbed */
	struct bench_reply prepared, sampled;
	enum bench_cores sampled_cores;   /* the state while single calls were timed */
};

/* One library's part in one round. */
struct repeat {
	double time_ns, cpu_ns;    /* of one call, cpu of all ranks together; 0: not measured */
	double rewritten_ns;       /* --rewrite: of one call between a rewritten input and a result that is read */
	double flag_ns;            /* the mean of before and after; 0: unknown */
	enum bench_cores cores;
};

struct comparison {
	const struct bench_options *options;
	struct bench_work work;                          /* the collective at hand */
	struct bootstrap bootstrap;
	struct competitor competitors[COMPETITORS_MAX];  /* the first is collet */
	size_t count;
	struct cell cells[COMPETITORS_MAX];              /* of the size at hand */
	struct repeat *repeats;                          /* [size][competitor][repeat] of the collective */
	bool *slow;                                      /* [size][competitor] */
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

static inline struct repeat *comparison_repeats(const struct comparison *all, size_t size, size_t competitor)
{
	return &all->repeats[(size * COMPETITORS_MAX + competitor) * all->options->repeats];
}

/* Measures all->work with this count, which is that of the collective's size'th size: fills cells and repeats. */
void comparison_measure(struct comparison *all, size_t size, uint64_t count, uint64_t bytes);

/* Prints a table for each state of the cores, with every variant, and how disturbed the machine was. */
void comparison_print_table(const struct comparison *all, size_t sizes);
/* Prints the same tables as Markdown, without the variants. */
void comparison_print_markdown(const struct comparison *all, size_t sizes);

/* Keeps how collet stood, for --baseline. False: out of memory. */
bool comparison_note_standings(struct comparison *all, size_t size);

/* Draws time and bus bandwidth of collet and of each library's best variant, a curve for each state, with the
 * machine's limits. Returns false after printing the reason. */
bool comparison_plot(const struct comparison *all);

/* An object for each library and state. */
void comparison_print_json(const struct comparison *all, size_t size);

#endif
