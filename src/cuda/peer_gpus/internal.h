/* What the executor's files know of each other. */
#ifndef COLLET_CUDA_PEER_GPUS_INTERNAL_H
#define COLLET_CUDA_PEER_GPUS_INTERNAL_H

#include <stdatomic.h>

#include "cuda/driver/vmm.h"
#include "cuda/peer_gpus/device_comm.h"

enum {
	COMMS_PER_GPU = 4,           /* all lanes of so many communicators run on a GPU at the same time */
	CACHED_PLANS = 256,          /* that are kept, but for those of graphs */
	PLAN_BLOCK_BYTES = 1 << 20
};

/* What the GPU and the host tell each other, in page-locked memory. */
struct host_flags {
	_Atomic uint32_t abort; /* 1: by the host, when the group has ended; by a kernel COLLET_ABORT_TIMEOUT ... */
	uint32_t unused;
	_Atomic uint64_t done;       /* by kernels: a ticket */
	_Atomic uint64_t left_ranks; /* by the host: ranks that have, a bit each */
};

/* A tape on the GPU. Good for every call of its key. */
struct collet_device_plan {
	struct collet_device_plan *next;     /* the latest used first */
	const struct collet_program *program;        /* NULL: for one call alone (a v-form) */
	uint64_t count;
	uint32_t root;
	struct collet_plan_options options;
	uint32_t channels, bytes, capacity;
	cu_pointer address;
	uint32_t pending_launches;   /* launches that are still to come */
	uint64_t last_launch;        /* by the launch of this number, and none after it; 0: by none */
	bool is_captured;            /* a graph has it: it stays */
};

struct plan_block {
	struct plan_block *next;
	cu_pointer memory;
	size_t used, bytes;
};

struct collet_device_comm {
	struct collet_device_comm *next_leaked; /* in the device's list */
	struct collet_device *device;
	const struct collet_cuda *cuda;
	struct collet_comm_state *state;
	const struct collet_host_exchange *exchange;         /* while it is made */
	bool has_leader;             /* larger calls go by a leader */
	struct collet_channel_limits channel_limits;
	uint32_t ranks_per_gpu;      /* ranks on one GPU, at most, this one with them */
	struct collet_co_resident *co_resident; /* NULL: each rank has a GPU of its own */
	uint32_t reserved_blocks;    /* blocks of this rank's GPU */
	struct collet_copy_stream *copy_stream;
	struct collet_kernel_set *kernels;
	uint32_t channels_per_part;
	uint32_t segment_bytes;      /* most of a message */
	struct collet_window window;
	struct collet_vmm_memory window_memory; /* the window; then the addresses of all ranks' */
	struct collet_ipc_mapping **peer_windows; /* by rank */
	struct host_flags *host_flags;
	cu_pointer host_flags_gpu;
	cu_stream stream;
	cu_event last_launch_event;  /* after the last launch that is no graph's */
	cu_event last_captured_event; /* the same in the last capture */
	uint64_t launch_count;       /* no graph's; */
	uint64_t completed_count;    /* and of those, so many have, as far as is known */
	unsigned long long last_stream, last_captured_stream;        /* their ids */
	uint64_t last_capture;
	cu_pointer scratch;          /* 0: none has been needed */
	struct collet_device_plan *plans;
	uint32_t cached_plans;       /* tapes that are no graph's */
	struct plan_block *blocks;
};

static inline cu_pointer window_addresses(const struct collet_device_comm *device_comm)
{
	return device_comm->window_memory.address + collet_window_bytes(&device_comm->window);
}

/* ---- device_comm.c */
/* Is it the same GPU? */
bool collet_device_comm_same_gpu(const struct collet_comm_state *state, uint32_t rank, uint32_t other);

/* ---- device_comm_connect.c */
/* All but the tapes; *fine false: some rank has a complaint. */
COLLET_MUST_USE collet_status collet_device_comm_connect(struct collet_device_comm *device_comm, bool *ok);

/* ---- device_comm_test.c. In the executor's context. */
/* A kernel's first launch, of one that does nothing. */
COLLET_MUST_USE collet_status collet_device_comm_warm_up(struct collet_device_comm *device_comm);
/* To each peer a line; and what all of them have written here. */
COLLET_MUST_USE collet_status collet_device_comm_write_probes(struct collet_device_comm *device_comm);
COLLET_MUST_USE collet_status collet_device_comm_check_probes(struct collet_device_comm *device_comm);
/* What is allocated is so before any rank's kernel waits for another's. A zeroed one may be freed. */
struct device_comm_test {
	uint32_t *words;
	cu_pointer memory;
	uint64_t count;              /* of words in use */
	bool is_ll;
	struct collet_device_plan *plan;
};
COLLET_MUST_USE collet_status collet_device_comm_create_test(
	const struct collet_device_comm *device_comm, struct device_comm_test *test);
/* One collective, quick or through all lanes. launch: all ranks have prepared theirs. check: it has ended. stop: some
 * rank's will not, and a kernel of this one may be on its way. */
COLLET_MUST_USE collet_status collet_device_comm_prepare_test(
	struct collet_device_comm *device_comm, struct device_comm_test *test, bool is_ll);
COLLET_MUST_USE collet_status collet_device_comm_launch_test(
	struct collet_device_comm *device_comm, const struct device_comm_test *test);
COLLET_MUST_USE collet_status collet_device_comm_check_test(
	struct collet_device_comm *device_comm, const struct device_comm_test *test);
void collet_device_comm_abort_test(struct collet_device_comm *device_comm);
void collet_device_comm_destroy_test(const struct collet_device_comm *device_comm, const struct device_comm_test *test);

/* ---- device_comm_plans.c */
/* What calls would allocate else, when others' kernels wait for theirs already. In the executor's context. */
COLLET_MUST_USE collet_status collet_device_comm_preallocate(struct collet_device_comm *device_comm);
/* Nothing runs any more. In the executor's context. */
void collet_device_comm_free_plans(struct collet_device_comm *device_comm);

#endif
