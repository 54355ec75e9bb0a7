#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "error.h"

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

bool report_init(struct report *report, const char *json_path, uint32_t epochs, uint32_t ranks)
{
	*report = (struct report){ .epochs = epochs, .ranks = ranks, .terminal = on_terminal(), .width = width() };
	if (json_path)
		report->json = strcmp(json_path, "-") == 0 ? stdout : fopen(json_path, "w");
	return report->json || !json_path || train_fail("%s: %s", json_path, strerror(errno));
}

bool report_deinit(struct report *report)
{
	bool arrived = true;
	if (report->json)
		arrived = report->json == stdout ? fflush(stdout) == 0 : fclose(report->json) == 0;
	report->json = NULL;
	return arrived || train_fail("--json: %s", strerror(errno));
}

void report_step(void *context, const struct trainer_progress *progress)
{
	struct report *report = context;
	const double now = now_s();
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
	report->times.travel += times->travel;
	report->times.hidden += times->hidden;
}

void report_times(const struct report *report)
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
	if (report->ranks > 1 && times->travel > 0)
		printf("communication: gradients travelled for %.2f s, of which %.0f %% were hidden behind computing\n",
			times->travel, 100 * times->hidden / times->travel);
	fflush(stdout);
}

bool report_epoch(void *context, const struct trainer_epoch *epoch)
{
	struct report *report = context;
	if (report->terminal)
		fputc('\n', stderr);
	/* With JSON on standard output, nothing else goes there. */
	if (report->json != stdout) {
		printf("epoch %u/%u: loss %.4f, test accuracy %.2f %%, %.0f images/s on %u rank%s\n", epoch->epoch,
			report->epochs, epoch->loss, 100 * epoch->test_accuracy, epoch->images_per_s, report->ranks,
			report->ranks == 1 ? "" : "s");
		fflush(stdout);
	}
	report_add(report, &epoch->times);
	if (!report->json)
		return true;
	fprintf(report->json, "{\"epoch\": %u, \"loss\": %.9g, \"test_accuracy\": %.9g, \"images_per_s\": %.6g",
		epoch->epoch, epoch->loss, epoch->test_accuracy, epoch->images_per_s);
	for (int phase = 0; phase < PHASES; phase++)
		fprintf(report->json, ", \"%s_s\": %.6g", phase_name((enum phase)phase), epoch->times.phases[phase]);
	fprintf(report->json, ", \"travel_s\": %.6g, \"hidden_s\": %.6g}\n", epoch->times.travel, epoch->times.hidden);
	return fflush(report->json) == 0 || train_fail("--json: %s", strerror(errno));
}
