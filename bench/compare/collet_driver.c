/* collet as one of the libraries compared: its ranks serve as any peer's driver does. */
#include "compare.h"

#include <stdio.h>

#include "driver.h"
#include "measure/collet_side.h"
#include "pin.h"

static const void *plan(void *context, const struct bench_command *command, struct bench_reply *reply)
{
	struct collet_side *side = context;
	side->piece_bytes = command->piece_bytes;
	side->channels = command->channels;
	const void *how = collet_side_plan(side, &command->work, command->count, command->algorithm);
	if (side->plan.algorithm != NULL)
		snprintf(reply->algorithm, sizeof(reply->algorithm), "%s", side->plan.algorithm);
	snprintf(reply->transport, sizeof(reply->transport), "%s", side->plan.transport);
	reply->predicted_ns = side->plan.predicted_ns;
	return how;
}

int bench_collet_driver(const struct bench_options *options)
{
	static const char *const rank[] = { "LOCAL_RANK", NULL }, *const size[] = { "LOCAL_WORLD_SIZE", NULL };
	struct collet_side side;
	bench_pin(bench_env_u32(rank, 0), bench_env_u32(size, 1), true);
	if (collet_side_init(&side, options->transport) != COLLET_OK) {
		fprintf(stderr, "%s\n", collet_last_error());
		return 1;
	}
	const struct bench_driver driver = { .library = side.library, .version = collet_version(), .plan = plan };
	const int status = bench_driver_serve(&driver);
	collet_side_deinit(&side);
	return status;
}
