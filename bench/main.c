/* collet-bench: the command line, and who does what. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <collet/tools.h>

#include "compare/compare.h"
#include "driver.h"
#include "explain/explain.h"
#include "explain/explain_device.h"
#include "explain/list.h"
#include "limits/limits.h"
#include "measure/faults.h"
#include "measure/init.h"
#include "measure/measure.h"
#include "measure/overlap.h"
#include "measure/request.h"
#include "measure/waiting.h"
#include "options.h"
#include "peers/variants.h"
#include "pin.h"
#include "ranks/process.h"
#include "ranks/threads.h"
#include "ranks/transport_check.h"
#include "report/plot.h"
#include "training/training.h"
#include "tune/tune.h"
#include "tune/tune_device.h"

/* Set for ranks that collet-bench has started itself. */
#define OWN_RANK "COLLET_BENCH_RANK"

static int start_own_ranks(const struct bench_options *options, char **argv)
{
	static const char own_rank[] = OWN_RANK "=1";
	static const char *const env[] = { own_rank, NULL };
	char job[64];
	bench_unique_name(job, sizeof(job));
	const char *own = bench_own_path();
	if (own == NULL) {
		fprintf(stderr, "collet-bench: /proc does not say which program this is\n");
		return 1;
	}
	argv[0] = (char *)(uintptr_t)own;
	const struct bench_program program = { .argv = (const char *const *)argv, .env = env,
		.ranks = options->ranks > 0 ? options->ranks : bench_core_count(), .job = job, .output = -1 };
	return bench_ranks_run(&program);
}

/* Runs one rank, started by this process or by a launcher. */
static int run_ranks(const struct bench_options *options, char **argv, int (*rank_main)(const struct bench_options *))
{
	static const char *const rank[] = { "LOCAL_RANK", NULL }, *const size[] = { "LOCAL_WORLD_SIZE", NULL };
	const char *launcher;
	if (getenv(OWN_RANK) != NULL) {
		bench_pin(bench_env_u32(rank, 0), bench_env_u32(size, 1), true);
		return rank_main(options);
	}
	const uint32_t launched = bench_launcher_size(&launcher);
	if (options->ranks > 0 && launched > 1) {
		fprintf(stderr, "collet-bench: this is one of %u ranks already (%s): leave -n %u away\n", launched,
			launcher, options->ranks);
		return 2;
	}
	if (launched > 0 && options->ranks == 0)
		return rank_main(options);   /* binding is the launcher's business */
	return start_own_ranks(options, argv);
}

static int list(const struct bench_options *options)
{
	const int status = bench_list(options);
	if (status == 0 && options->json == NULL)
		bench_peer_list(stdout);
	return status;
}

static int explain(const struct bench_options *options, char **argv)
{
	if (options->mode.device)
		return run_ranks(options, argv, bench_explain_device);
	return bench_explain_starts_ranks(options) ? run_ranks(options, argv, bench_explain_as_rank)
						   : bench_explain(options);
}

static int tune(const struct bench_options *options, char **argv)
{
	static const char *const rank[] = { "LOCAL_RANK", NULL }, *const size[] = { "LOCAL_WORLD_SIZE", NULL };
	if (options->mode.device)
		return bench_tune_device(options);
	if (getenv(BENCH_TUNE_RANK) == NULL)
		return bench_tune(options, argv);
	bench_pin(bench_env_u32(rank, 0), bench_env_u32(size, 1), true);
	const char *transport = getenv(BENCH_TUNE_TRANSPORT), *limits = getenv(BENCH_TUNE_LIMITS);
	return limits != NULL ? bench_tune_limits_rank(options, transport, limits)
			      : bench_tune_rank(options, transport);
}

/* Returns an exit status if what the options name is not there; 0 to go on. Ranks that were started have been through
 * this, and of a launcher's ranks each has its own error. */
static int check_surroundings(const struct bench_options *options)
{
	static const uint32_t with_ranks = 1U << BENCH_COMMAND_MEASURE | 1U << BENCH_COMMAND_INIT |
		1U << BENCH_COMMAND_FAULTS | 1U << BENCH_COMMAND_OVERLAP | 1U << BENCH_COMMAND_REQUEST |
		1U << BENCH_COMMAND_WAITING | 1U << BENCH_COMMAND_COMPARE | 1U << BENCH_COMMAND_EXPLAIN;
	const char *launcher;
	if (options->plot != NULL && !bench_plot_is_possible(options->plot))
		return 1;
	const bool is_explained_alone =
		options->command == BENCH_COMMAND_EXPLAIN && !bench_explain_starts_ranks(options);
	if (options->transport == NULL || (with_ranks >> options->command & 1) == 0 || is_explained_alone ||
		getenv(OWN_RANK) != NULL || bench_launcher_size(&launcher) > 0)
		return 0;
	return bench_transport_check(options->transport);
}

int main(int argc, char **argv)
{
	struct bench_options options;
	char problem[256];
	/* getopt reorders its words; ranks of our own get them as they were typed. */
	char **typed = calloc((size_t)argc + 1, sizeof(typed[0]));
	if (typed == NULL)
		return 1;
	memcpy(typed, argv, (size_t)argc * sizeof(typed[0]));
	int status = 2;
	if (!bench_options_parse(argc, argv, &options, problem)) {
		fprintf(stderr, "collet-bench: %s\n", problem);
		free(typed);
		return status;
	}
	status = check_surroundings(&options);
	if (status != 0) {
		free(typed);
		return status;
	}
	if (!options.mode.pin)
		setenv(BENCH_NO_PIN_VARIABLE, "1", 1);
	switch (options.command) {
	case BENCH_COMMAND_MEASURE:
		status = options.mode.threads ? bench_threads_run(&options, bench_measure_as)
						: run_ranks(&options, typed, bench_measure);
		break;
	case BENCH_COMMAND_LIST: status = list(&options); break;
	case BENCH_COMMAND_EXPLAIN: status = explain(&options, typed); break;
	case BENCH_COMMAND_LIMITS: status = bench_limits(&options); break;
	case BENCH_COMMAND_INIT: status = bench_init(&options); break;
	case BENCH_COMMAND_FAULTS: status = bench_faults(&options); break;
	case BENCH_COMMAND_OVERLAP: status = run_ranks(&options, typed, bench_overlap); break;
	case BENCH_COMMAND_REQUEST: status = run_ranks(&options, typed, bench_request); break;
	case BENCH_COMMAND_WAITING: status = run_ranks(&options, typed, bench_waiting); break;
	case BENCH_COMMAND_COMPARE: status = bench_compare(&options); break;
	case BENCH_COMMAND_TRAINING: status = bench_training(&options); break;
	case BENCH_COMMAND_DRIVER: status = bench_collet_driver(&options); break;
	case BENCH_COMMAND_TUNE: status = tune(&options, typed); break;
	case BENCH_COMMAND_HELP: bench_options_print_help(options.topic); status = 0; break;
	case BENCH_COMMAND_VERSION: printf("collet-bench %s\n", collet_version()); status = 0; break;
	}
	free(typed);
	/* Ranks that were killed, or could not be run, have other exit statuses. */
	return status == 0 || status == 2 ? status : 1;
}
