/* Calls of ranks on several hosts, simulated by COLLET_HOST_ID, whose ranks have a GPU each or share some. */
#ifndef TESTS_CUDA_HIERARCHICAL_H
#define TESTS_CUDA_HIERARCHICAL_H

#include "gpu.h"

enum { SMALL = 37, MIDDLE = 70001, LARGE = 400000 };

/* One letter per rank: the host that it is on. The context of a run's options. */
struct world {
	const char *hosts;
	const char *gpus;            /* one digit per rank: its GPU; NULL if all have the first */
	const char *fail;            /* FAKE_CUDA_FAIL of rank 0 */
	enum call_kind kind;         /* the call that fails */
	uint32_t root;               /* of that call: no other rank can continue without rank 0 */
	uint32_t lost;               /* the rank that dies */
};

bool hosts_leads(const struct rank *rank, const struct world *world);
/* Ranks are processes, with an environment each. */
bool hosts_begin(struct gpu *gpu, struct rank *rank);
/* The same with another world than the run's context. */
bool hosts_begin_in(struct gpu *gpu, struct rank *rank, const struct world *world);

/* By enum call_kind. */
extern const char *const hosts_kind_names[];

struct row {
	collet_dtype dtype;
	collet_op op;
	uint64_t count;
	bool in_place, request, stream;
	bool mixed;                  /* rank 1 writes to a host buffer */
	bool chosen;                 /* the library chooses the algorithm */
	enum call_kind kind;         /* up to reduce-scatter */
	uint32_t root;
};

/* Any bytes; but small whole numbers if a sum of floats must not depend on the order. */
void hosts_fill(const struct row *row, char *bytes, size_t count, uint32_t seed);
collet_how hosts_how(const struct rank *rank, const struct row *row);

/* Sizes of a rank's buffers in bytes, and the offset of one in the other if the call is in place. */
struct sides {
	size_t send, recv, send_at, recv_at;
};
struct sides hosts_sides(const struct rank *rank, const struct row *row);
collet_status hosts_call(
	const struct rank *rank, const struct row *row, const void *send, void *recv, const collet_how *how);

#endif
