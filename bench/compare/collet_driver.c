/* collet as one of the libraries compared: its ranks serve as any peer's driver does. */
#include "compare.h"

#include <stdio.h>

#include "driver.h"
#include "measure/collet_library.h"
#include "pin.h"

static const void *plan(void *context, const struct bench_command *command, struct bench_reply *reply)
{
	struct collet_library *collet = context;
	collet->segment_bytes = command->segment_bytes;
	collet->channels = command->channels;
	const void *how = collet_library_plan(collet, &command->work, command->count, command->algorithm);
	if (collet->plan.algorithm != NULL)
		snprintf(reply->algorithm, sizeof(reply->algorithm), "%s", collet->plan.algorithm);
	snprintf(reply->transport, sizeof(reply->transport), "%s", collet->plan.transport);
	reply->predicted_ns = collet->plan.predicted_ns;
	return how;
}

int bench_collet_driver(const struct bench_options *options)
{
	static const char *const rank[] = { "LOCAL_RANK", NULL }, *const size[] = { "LOCAL_WORLD_SIZE", NULL };
	struct collet_library collet;
	bench_pin(bench_env_u32(rank, 0), bench_env_u32(size, 1), true);
	if (collet_library_init(&collet, options->transport) != COLLET_OK) {
		fprintf(stderr, "%s\n", collet_last_error());
		return 1;
	}
	const struct bench_driver driver = { .library = collet.library, .version = collet_version(), .plan = plan };
	const int status = bench_driver_serve(&driver);
	collet_library_deinit(&collet);
	return status;
}
