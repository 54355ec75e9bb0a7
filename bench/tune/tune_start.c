/* The ranks of tune have its own command line, and are told by the environment that they are ranks. */
#include "tune_start.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "ranks/process.h"
#include "report/output.h"
#include "tune.h"

FILE *tune_start_ranks(const struct tune_start *start, char **argv)
{
	static const char own_rank[] = BENCH_TUNE_RANK "=1";
	char transport[64], job[64], tuning[TUNE_PATH_BYTES + 16], limits[TUNE_PATH_BYTES + 64];
	snprintf(transport, sizeof(transport), BENCH_TUNE_TRANSPORT "=%s", start->transport);
	const char *env[5] = { own_rank, transport };
	size_t count = 2;
	if (start->tuning != NULL) {
		snprintf(tuning, sizeof(tuning), "COLLET_TUNING=%s", start->tuning);
		env[count++] = tuning;
	}
	if (start->limits != NULL) {
		snprintf(limits, sizeof(limits), BENCH_TUNE_LIMITS "=%s", start->limits);
		env[count++] = limits;
	}
	const int fd = memfd_create("collet-bench-tune", MFD_CLOEXEC);
	FILE *printed = fd >= 0 ? fdopen(fd, "r+") : NULL;
	const char *own = bench_own_path();
	if (printed == NULL || own == NULL) {
		fprintf(stderr, "collet-bench: tune: %s\n", strerror(errno));
		if (printed != NULL)
			fclose(printed);
		return NULL;
	}
	bench_unique_name(job, sizeof(job));
	argv[0] = (char *)(uintptr_t)own;
	const struct bench_program program = { .argv = (const char *const *)argv, .env = env, .ranks = start->ranks,
		.job = job, .output = fd };
	const int ended = bench_ranks_run(&program);
	bench_progress_clear();
	rewind(printed);
	if (!ended)
		return printed;
	for (int c = fgetc(printed); c != EOF; c = fgetc(printed))
		fputc(c, stderr);
	fclose(printed);
	fprintf(stderr, "collet-bench: tune: %u ranks over %s: nothing measured\n", start->ranks, start->transport);
	return NULL;
}
