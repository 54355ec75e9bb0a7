#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "gnuplot.h"
#include "report/curves.h"

enum { BAR_WIDTH = 24 };

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* collet-run reads what ranks print from pipes, and tells the rank whose unfinished lines a terminal shows. */
static bool on_terminal(void)
{
	const char *passed_on = getenv("COLLET_RUN_TERMINAL");
	return isatty(STDERR_FILENO) || (passed_on && *passed_on);
}

/* A bar that wraps would stay on the screen. */
static int width(void)
{
	const char *columns = getenv("COLUMNS");
	const long count = columns ? strtol(columns, NULL, 10) : 0;
	return count > 1 && count < 1000 ? (int)count - 1 : 79;
}

bool report_init(struct report *report, const struct options *options, uint32_t ranks)
{
	const char *json = options->json;
	*report = (struct report){ .options = options, .epochs = options->epochs, .ranks = ranks,
		.terminal = on_terminal(), .width = width(), .began_s = now_s() };
	if (json)
		report->json = strcmp(json, "-") == 0 ? stdout : fopen(json, "w");
	if (json && !report->json)
		return train_fail("--json %s: %s", json, strerror(errno));
	if (options->plot && !gnuplot_found())
		return train_fail("--plot %s: gnuplot is not installed; install it by scripts/install-deps plot, or "
				  "leave --plot away", options->plot);
	return journal_open(&report->journal, options->log, options->log_every, options->resume);
}

bool report_deinit(struct report *report)
{
	bool arrived = true;
	if (report->json)
		arrived = report->json == stdout ? fflush(stdout) == 0 : fclose(report->json) == 0;
	report->json = NULL;
	free(report->history);
	report->history = NULL;
	if (!arrived)
		train_fail("--json: %s", strerror(errno));
	return journal_close(&report->journal) && arrived;
}

void report_step(void *context, const struct trainer_progress *progress)
{
	struct report *report = context;
	const double now = now_s();
	/* A full disk is seen again at the epoch's line, and ends the run there. */
	(void)journal_step(&report->journal, progress);
	if (!report->terminal || (now - report->shown_s < 0.1 && progress->step < progress->steps))
		return;
	report->shown_s = now;
	char bar[BAR_WIDTH + 1], line[200];
	const uint64_t filled = (uint64_t)progress->step * BAR_WIDTH / progress->steps;
	for (uint64_t i = 0; i < BAR_WIDTH; i++)
		bar[i] = i < filled ? '#' : '.';
	bar[BAR_WIDTH] = 0;
	snprintf(line, sizeof(line), "epoch %u/%u [%s] %u/%u  loss %.4f  %.0f images/s", progress->epoch,
		report->epochs, bar, progress->step, progress->steps, progress->loss, progress->images_per_s);
	fprintf(stderr, "\r%.*s\033[K", report->width, line);
	fflush(stderr);
}

static void report_add(struct report *report, const struct times *times)
{
	for (int phase = 0; phase < PHASES; phase++)
		report->times.phases[phase] += times->phases[phase];
	report->times.transfer += times->transfer;
	report->times.hidden += times->hidden;
}

static void report_times(const struct report *report)
{
	const struct times *times = &report->times;
	double all = 0;
	for (int phase = 0; phase < PHASES; phase++)
		all += phase == PHASE_EVALUATE ? 0 : times->phases[phase];
	if (all <= 0 || report->json == stdout)
		return;
	printf("training %.1f s:", all);
	for (int phase = PHASE_LOAD; phase < PHASE_EVALUATE; phase++)
		printf(" %s %.1f %%%s", phase_name((enum phase)phase), 100 * times->phases[phase] / all,
			phase + 1 < PHASE_EVALUATE ? "," : "\n");
	if (report->ranks > 1 && times->transfer > 0)
		printf("communication: gradients travelled for %.2f s, of which %.0f %% were hidden behind computing\n",
			times->transfer, 100 * times->hidden / times->transfer);
	fflush(stdout);
}

/* Prints the training of this run, and the best epoch of all. */
static void report_summary(const struct report *report)
{
	double images = 0, seconds = 0;
	const struct trainer_epoch *best = NULL;
	for (uint32_t e = 0; e < report->history_count; e++) {
		const struct trainer_epoch *epoch = &report->history[e];
		images += epoch->images;
		seconds += epoch->seconds;
		if (!best || epoch->test_accuracy > best->test_accuracy)
			best = epoch;
	}
	if (!best || seconds <= 0 || report->json == stdout)
		return;
	const struct trainer_epoch *last = &report->history[report->history_count - 1];
	printf("%u epoch%s, %u steps: test accuracy %.2f %%", last->epoch, last->epoch == 1 ? "" : "s",
		last->steps_done, 100 * last->test_accuracy);
	if (best != last)
		printf(" (%.2f %% after epoch %u)", 100 * best->test_accuracy, best->epoch);
	printf(", %.0f images/s; %.1f s in all, of which %.1f s of training\n", images / seconds,
		now_s() - report->began_s, seconds);
}

/* Prints the strategy's costs and its own statistics. */
static void report_strategy(const struct report *report)
{
	if (report->ranks == 1 || report->history_count == 0 || report->json == stdout)
		return;
	const struct trainer_epoch *last = &report->history[report->history_count - 1];
	if (last->steps == 0)
		return;
	printf("%s: a rank sent %.1f KiB a step, the busiest moved %.1f KiB one way, and none held more than "
	       "%.1f MiB of weights, gradients, optimiser and exchange (%.0f MiB with all else)\n",
		last->strategy, last->bytes_per_step / 1024, last->busiest_bytes_per_step / 1024,
		(double)last->memory_bytes / 1048576, (double)last->resident_bytes / 1048576);
	if (last->staleness_bound != OPTIONS_NOT_GIVEN)
		printf("staleness: ranks were %.2f steps ahead of the slowest in the mean, at most %" PRIu64
		       " (%u are allowed)\n",
			last->staleness_mean, last->staleness_most, last->staleness_bound);
	if (last->apart >= 0)
		printf("gossip: what was evaluated is the average, from which no weight of any rank was further than "
		       "%.2g\n",
			last->apart);
	fflush(stdout);
}

bool report_end(const struct report *report)
{
	char title[200];
	const struct options *options = report->options;
	report_summary(report);
	report_times(report);
	report_strategy(report);
	snprintf(title, sizeof(title), "%s on %s, %u rank%s, batch %u a rank", options->model, options->dataset,
		report->ranks, report->ranks == 1 ? "" : "s", options->batch_size);
	return !options->plot || curves_draw(options->plot, title, report->history, report->history_count);
}

static bool remember(struct report *report, const struct trainer_epoch *epochs, uint32_t count)
{
	struct trainer_epoch *grown =
		realloc(report->history, (report->history_count + (size_t)count) * sizeof(*grown));
	if (!grown)
		return train_fail("no memory for %u epochs", count);
	report->history = grown;
	memcpy(report->history + report->history_count, epochs, count * sizeof(*epochs));
	report->history_count += count;
	return true;
}

bool report_resumed(void *context, const struct trainer_epoch *epochs, uint32_t count, uint32_t steps_done)
{
	struct report *report = context;
	return journal_cut(&report->journal, steps_done) && (count == 0 || remember(report, epochs, count));
}

bool report_epoch(void *context, const struct trainer_epoch *epoch)
{
	struct report *report = context;
	if (report->terminal)
		fputc('\n', stderr);
	/* JSON on standard output excludes all other output there. */
	if (report->json != stdout) {
		printf("epoch %u/%u: loss %.4f, test accuracy %.2f %%, %.0f images/s on %u rank%s\n", epoch->epoch,
			report->epochs, epoch->loss, 100 * epoch->test_accuracy, epoch->images_per_s, report->ranks,
			report->ranks == 1 ? "" : "s");
		fflush(stdout);
	}
	report_add(report, &epoch->times);
	if (!remember(report, epoch, 1) || !journal_epoch(&report->journal, epoch))
		return false;
	if (!report->json)
		return true;
	fprintf(report->json, "{\"epoch\": %u, \"loss\": %.9g, \"test_accuracy\": %.9g, \"images_per_s\": %.6g",
		epoch->epoch, epoch->loss, epoch->test_accuracy, epoch->images_per_s);
	for (int phase = 0; phase < PHASES; phase++)
		fprintf(report->json, ", \"%s_s\": %.6g", phase_name((enum phase)phase), epoch->times.phases[phase]);
	fprintf(report->json, ", \"travel_s\": %.6g, \"hidden_s\": %.6g", epoch->times.transfer, epoch->times.hidden);
	fprintf(report->json,
		", \"strategy\": \"%s\", \"ranks\": %u, \"workers\": %u, \"steps\": %" PRIu64
		", \"batch_size\": %u, \"model_bytes\": %" PRIu64 ", \"batch_bytes\": %" PRIu64
		", \"bytes_per_step\": %.9g, \"busiest_bytes_per_step\": %.9g, \"memory_bytes\": %" PRIu64
		", \"resident_bytes\": %" PRIu64,
		epoch->strategy, report->ranks, epoch->workers, epoch->steps, report->options->batch_size,
		epoch->model_bytes, epoch->batch_bytes, epoch->bytes_per_step, epoch->busiest_bytes_per_step,
		epoch->memory_bytes, epoch->resident_bytes);
	if (epoch->local_steps > 0)
		fprintf(report->json, ", \"local_steps\": %u", epoch->local_steps);
	if (epoch->staleness_bound != OPTIONS_NOT_GIVEN)
		fprintf(report->json,
			", \"staleness_bound\": %u, \"staleness_mean\": %.4g, \"staleness_most\": %" PRIu64,
			epoch->staleness_bound, epoch->staleness_mean, epoch->staleness_most);
	if (epoch->apart >= 0)
		fprintf(report->json, ", \"apart\": %.9g", epoch->apart);
	fputs("}\n", report->json);
	return fflush(report->json) == 0 || train_fail("--json: %s", strerror(errno));
}
