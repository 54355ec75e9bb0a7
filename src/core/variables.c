#include "core/variables.h"

#include <stddef.h>
#include <string.h>

#include "closest_name.h"

const char *const collet_variables[] = {
	"COLLET_ALGORITHM",
	"COLLET_BENCH_PEERS",
	"COLLET_CUDA",
	"COLLET_CUDA_DIRECT",
	"COLLET_CUDA_LEADER",
	"COLLET_DATA",
	"COLLET_DETERMINISTIC",
	"COLLET_FAULTY",
	"COLLET_FAULTY_SEED",
	"COLLET_HOST_ID",
	"COLLET_INTERFACE",
	"COLLET_ISA",
	"COLLET_JOB",
	"COLLET_LOG",
	"COLLET_PORT",
	"COLLET_PORT_RANGE",
	"COLLET_PROGRESS_CPU",
	"COLLET_PROGRESS_THREAD",
	"COLLET_RENDEZVOUS_TIMEOUT",
	"COLLET_RESTART",
	"COLLET_RUN_TERMINAL",
	"COLLET_SECRET",
	"COLLET_SECRET_FILE",
	"COLLET_SHM_CMA",
	"COLLET_STORE",
	"COLLET_THREAD_MULTIPLE",
	"COLLET_TIMEOUT",
	"COLLET_TRACE",
	"COLLET_TRANSPORT",
	"COLLET_TRANSPORT_PATH",
	"COLLET_TUNING",
	"COLLET_VERBS_DEVICES",
	"COLLET_VERBS_GID_INDEX",
	"COLLET_VERBS_PINNED_MIB",
	"COLLET_VERBS_RETRY_COUNT",
	"COLLET_VERBS_SERVICE_LEVEL",
	"COLLET_VERBS_TIMEOUT",
	"COLLET_VERBS_TRAFFIC_CLASS",
	"COLLET_VERBS_WIDE",
	NULL,
};

/* Paths that scripts and tests give each other. */
static const char *const internal[] = {
	"COLLET_BENCH",
	"COLLET_PEERS_CACHE",
	"COLLET_RUN",
	"COLLET_TRAIN",
	"COLLET_VM_CACHE",
	NULL,
};

/* What collet-bench tells its processes, and what the tests read. */
static const char *const prefixes[] = { "COLLET_BENCH_", "COLLET_TEST_", NULL };

static bool lists(const char *const *names, const char *name)
{
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

bool collet_variable_is_known(const char *name)
{
	for (const char *const *prefix = prefixes; *prefix; prefix++)
		if (strncmp(name, *prefix, strlen(*prefix)) == 0)
			return true;
	return lists(collet_variables, name) || lists(internal, name);
}

/* Compares what follows COLLET_, so that a short name is not close to every other short one. */
const char *collet_variable_closest(const char *name)
{
	enum { COUNT = sizeof(collet_variables) / sizeof(collet_variables[0]) - 1, HEAD_BYTES = sizeof("COLLET_") - 1 };
	const char *tails[COUNT];
	for (size_t i = 0; i < COUNT; i++)
		tails[i] = collet_variables[i] + HEAD_BYTES;
	const char *closest = collet_closest_name(name + HEAD_BYTES, tails, COUNT);
	return closest ? closest - HEAD_BYTES : NULL;
}
