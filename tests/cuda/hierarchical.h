/* Calls of ranks on several hosts, made by COLLET_HOST_ID, whose ranks have a GPU each or share some. */
#ifndef TESTS_CUDA_HOSTS_H
#define TESTS_CUDA_HOSTS_H

#include "gpu.h"

enum { SMALL = 37, MIDDLE = 70001, LARGE = 400000 };

/* A letter a rank: the host that it is on. The context of a run's options. */
struct world {
	const char *hosts;
	const char *gpus;            /* likewise a digit: the GPU that it has; NULL: all have the first */
	const char *fail;            /* FAKE_CUDA_FAIL, of rank 0 */
	enum call_kind kind;         /* what fails */
	uint32_t root;               /* of it: nobody gets on without rank 0 */
	uint32_t lost;               /* who dies */
};

bool hosts_leads(const struct rank *rank, const struct world *world);
/* Ranks are processes: each has an environment of its own. */
bool hosts_begin(struct gpu *gpu, struct rank *rank);
/* Whatever the run's context is. */
bool hosts_begin_in(struct gpu *gpu, struct rank *rank, const struct world *world);

/* By enum call_kind. */
extern const char *const hosts_kind_names[];

struct row {
	collet_dtype dtype;
	collet_op op;
	uint64_t count;
	bool in_place, request, stream;
	bool mixed;                  /* of rank 1, the buffer that is written is the host's */
	bool chosen;                 /* it is not asked for by name */
	enum call_kind kind;         /* up to reduce-scatter */
	uint32_t root;
};

/* Anything; but where a float's sum is to be the same in any order, small whole numbers. */
void hosts_fill(const struct row *row, char *bytes, size_t count, uint32_t seed);
collet_how hosts_how(const struct rank *rank, const struct row *row);

/* Bytes of a rank's buffers, and where the one is in the other if the call is in place. */
struct sides {
	size_t send, recv, send_at, recv_at;
};
struct sides hosts_sides(const struct rank *rank, const struct row *row);
collet_status hosts_call(
	const struct rank *rank, const struct row *row, const void *send, void *recv, const collet_how *how);

#endif
