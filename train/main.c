/* collet-train: trains a network on all ranks of a job, on the public interface of collet alone. */
#include <stdlib.h>

#include <collet/collet.h>

#include "cuda/choose.h"
#include "error.h"
#include "options.h"
#include "report/report.h"
#include "threads.h"
#include "trainer.h"

static bool run(collet_comm *comm, const struct options *options)
{
	struct report report = { 0 };
	struct trainer_watch watch = { 0 };
	if (collet_comm_rank(comm) == 0) {
		if (!report_init(&report, options, collet_comm_size(comm))) {
			report_deinit(&report);
			return false;
		}
		watch = (struct trainer_watch){ .step = report_step, .epoch = report_epoch, .context = &report,
			.resumed = report_resumed };
	}
	bool fine = trainer_run(comm, options, &watch);
	if (fine && watch.epoch)
		fine = report_end(&report);
	return report_deinit(&report) && fine;
}

static bool run_or_abort(collet_comm *comm, const struct options *options)
{
	const bool fine = run(comm, options);
	if (!fine)
		collet_comm_abort(comm);  /* the others may be waiting for this rank */
	return fine;
}

/* With --threads this process must be alone. */
static bool connect_and_run(const struct options *options, const collet_options *comm_options)
{
	collet_comm *comm = NULL;
	bool fine;
	if (collet_comm_create(&comm, comm_options) != COLLET_OK)
		return train_fail("%s", collet_last_error());
	if (options->threads == 1)
		fine = run_or_abort(comm, options);
	else
		fine = collet_comm_size(comm) == 1 ||
			train_fail("--threads %u: this is one of %u ranks already: leave one of both away",
				options->threads, collet_comm_size(comm));
	collet_comm_destroy(&comm);
	return fine;
}

/* Ranks that a launcher has started, or this process alone. */
static bool run_process(const struct options *options)
{
	const collet_options comm_options = { .transport = options->transport };
	struct gpu_device gpu = { 0 };
	const bool fine = (options->threads > 1 || device_enter(&gpu, options, &comm_options)) &&
		connect_and_run(options, &comm_options);
	gpu_device_close(&gpu);
	return fine;
}

int main(int argc, char **argv)
{
	struct options options;
	switch (options_parse(&options, argc, argv)) {
	case OPTIONS_RUN: break;
	case OPTIONS_DONE: return EXIT_SUCCESS;
	case OPTIONS_WRONG: return 2;
	}
	bool fine = run_process(&options);
	if (fine && options.threads > 1)
		fine = threads_run(&options, run);
	return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}
