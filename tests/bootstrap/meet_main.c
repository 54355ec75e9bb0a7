/* Runs one rank as a launcher starts it: reads its environment, runs the bootstrap and prints its rank. */
#include <stdio.h>

#include "bootstrap/bootstrap.h"
#include "core/status.h"

int main(void)
{
	struct collet_launch launch;
	struct collet_bootstrap bootstrap;
	struct collet_peer_info info = { 0 };
	const struct collet_log log = { 0 };
	collet_status status = collet_launch_read(&launch, NULL);
	if (!status)
		status = collet_bootstrap_init(&bootstrap, &launch, &info, NULL, NULL, &log);
	if (status) {
		fprintf(stderr, "%s: %s\n", collet_status_name(status), collet_last_error());
		return 1;
	}
	printf("%s rank %u of %u, local %u\n", launch.launcher, launch.rank, launch.size, launch.local_rank);
	collet_bootstrap_deinit(&bootstrap);
	return 0;
}
