#include "transport_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <collet/collet.h>

#include "process.h"

enum { REFUSED = 2 };

static int create_alone(const char *transports)
{
	char name[64], store[80];
	collet_comm *comm = NULL;
	bench_unique_name(name, sizeof(name));
	snprintf(store, sizeof(store), "unix:%s", name);
	unsetenv("COLLET_LOG");   /* the ranks log */
	const collet_options options = { .explicit_rank = true, .world_size = 1, .store = store, .job = name,
		.transport = transports };
	const collet_status status = collet_comm_create(&comm, &options);
	if (status == COLLET_ERR_CONFIG)
		fprintf(stderr, "collet-bench: --transport %s: %s\n", transports, collet_last_error());
	return status == COLLET_ERR_CONFIG ? REFUSED : 0;
}

int bench_transport_check(const char *transports)
{
	int status;
	const pid_t child = bench_process_fork();
	if (child == 0) {
		const int refused = create_alone(transports);
		fflush(stderr);
		_exit(refused);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == REFUSED ? REFUSED : 0;
}
