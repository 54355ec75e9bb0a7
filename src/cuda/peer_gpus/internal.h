/* Declarations that the files of device_comm.h share. */
#ifndef COLLET_CUDA_PEER_GPUS_INTERNAL_H
#define COLLET_CUDA_PEER_GPUS_INTERNAL_H

#include <stdatomic.h>

#include "cuda/driver/vmm.h"
#include "cuda/peer_gpus/device_comm.h"

enum {
	COMMS_PER_GPU = 4,           /* communicators whose channels all fit on a GPU at the same time */
	CACHED_PLANS = 256,          /* number of plans kept, without those of graphs */
	PLAN_BLOCK_BYTES = 1 << 20
};

/* Flags between GPU and host, in page-locked memory. */
struct host_flags {
	/* The host writes 1 when the communicator has ended; kernels write COLLET_ABORT_*. */
	_Atomic uint32_t abort;
	uint32_t unused;
	_Atomic uint64_t done;       /* written by kernels: a ticket */
	_Atomic uint64_t left_ranks; /* written by the host: ranks that have left, a bit each */
};

/* A kernel plan on the GPU, for every call with the same key. */
struct collet_device_plan {
	struct collet_device_plan *next;     /* the list is by use, the latest first */
	/* NULL if it serves one call only (a v-form). */
	const struct collet_program *program;
	uint64_t count;
	uint32_t root;
	struct collet_plan_options options;
	uint32_t channels, bytes, capacity;
	cu_pointer address;
	uint32_t pending_launches;   /* launches still to come */
	uint64_t last_launch;        /* number of the last launch that used it; 0 if none has */
	bool is_captured;            /* a graph uses it, so it is never freed */
};

struct plan_block {
	struct plan_block *next;
	cu_pointer memory;
	size_t used, bytes;
};

struct wide_memory {
	struct wide_memory *next;
	cu_pointer memory;
	size_t bytes;
};

struct collet_device_comm {
	struct collet_device_comm *next_leaked; /* in the device's list */
	struct collet_device *device;
	const struct collet_cuda *cuda;
	struct collet_comm_state *state;
	const struct collet_host_exchange *exchange;         /* during setup */
	bool has_leader;             /* a leader does larger calls */
	struct collet_channel_limits channel_limits;
	uint32_t ranks_per_gpu;      /* largest number of ranks on one GPU */
	struct collet_co_resident *co_resident; /* NULL if each rank has a GPU of its own */
	uint32_t reserved_blocks;    /* on this rank's GPU */
	struct collet_copy_stream *copy_stream;
	struct collet_kernel_set *kernels;
	uint32_t channels_per_part;
	uint32_t segment_bytes;      /* maximum size of a message */
	struct collet_window window;
	struct collet_vmm_memory window_memory; /* the window, then the addresses of all ranks' windows */
	struct collet_ipc_mapping **peer_windows; /* by rank */
	struct host_flags *host_flags;
	cu_pointer host_flags_gpu;
	cu_stream stream;
	cu_event last_launch_event;  /* after the last launch that is not a graph's */
	cu_event last_captured_event; /* after the last launch in the latest capture */
	uint64_t launch_count;       /* without those of graphs */
	uint64_t completed_count;    /* launches of these known to have ended */
	unsigned long long last_stream; /* the id of the last launch's stream that was not captured */
	uint64_t last_capture;
	cu_pointer scratch;          /* 0 until one is needed */
	struct collet_device_plan *plans;
	uint32_t cached_plans;       /* plans that no graph uses */
	struct plan_block *blocks;
	struct wide_memory *wide_memories;
};

static inline cu_pointer window_addresses(const struct collet_device_comm *device_comm)
{
	return device_comm->window_memory.address + collet_window_bytes(&device_comm->window);
}

/* ---- device_comm.c ---- */
/* True if both ranks have the same GPU. */
bool collet_device_comm_same_gpu(const struct collet_comm_state *state, uint32_t rank, uint32_t other);

/* ---- device_comm_connect.c ---- */
/* Sets up everything but the plans. *ok is false if any rank has failed. */
COLLET_MUST_USE collet_status collet_device_comm_connect(struct collet_device_comm *device_comm, bool *ok);

/* ---- device_comm_test.c. Needs the copy stream's context. ---- */
/* Launches the kernel for the first time, with nothing to do. */
COLLET_MUST_USE collet_status collet_device_comm_warm_up(struct collet_device_comm *device_comm);
/* Writes a line to each peer's window, and checks what all peers have written here. */
COLLET_MUST_USE collet_status collet_device_comm_write_probes(struct collet_device_comm *device_comm);
COLLET_MUST_USE collet_status collet_device_comm_check_probes(struct collet_device_comm *device_comm);
/* The memory of a test. It is allocated before any rank's kernel waits for another's. A zeroed object may be freed. */
struct device_comm_test {
	uint32_t *words;
	cu_pointer memory;
	uint64_t count;              /* words in use */
	bool is_ll;
	struct collet_device_plan *plan;
};
COLLET_MUST_USE collet_status collet_device_comm_create_test(
	const struct collet_device_comm *device_comm, struct device_comm_test *test);
/* Tests one collective, with the LL protocol or through all channels. Launch when all ranks have prepared. When the
 * kernel has ended, check that it ended well; when all ranks' have, check the result. Abort if some rank's launch will
 * not come, while this rank's kernel may run. */
COLLET_MUST_USE collet_status collet_device_comm_prepare_test(
	struct collet_device_comm *device_comm, struct device_comm_test *test, bool is_ll);
COLLET_MUST_USE collet_status collet_device_comm_launch_test(
	struct collet_device_comm *device_comm, const struct device_comm_test *test);
COLLET_MUST_USE collet_status collet_device_comm_check_test_end(struct collet_device_comm *device_comm);
COLLET_MUST_USE collet_status collet_device_comm_check_test(
	struct collet_device_comm *device_comm, const struct device_comm_test *test);
void collet_device_comm_abort_test(struct collet_device_comm *device_comm);
void collet_device_comm_destroy_test(const struct collet_device_comm *device_comm, const struct device_comm_test *test);

/* ---- device_comm_plans.c ---- */
/* Allocates what calls would allocate later, while other ranks' kernels already wait for theirs. Needs the context. */
COLLET_MUST_USE collet_status collet_device_comm_preallocate(struct collet_device_comm *device_comm);
/* Requires that nothing runs any more. Needs the context. */
void collet_device_comm_free_plans(struct collet_device_comm *device_comm);

/* ---- device_comm_wide.c: for calls that are wide. The context is current. ---- */
/* Allocates memory for sums of so many elements; and for those of a call, before it is launched. */
COLLET_MUST_USE collet_status collet_device_wide_reserve(struct collet_device_comm *device_comm, uint64_t elements);
COLLET_MUST_USE collet_status collet_device_wide_prepare(
	struct collet_device_comm *device_comm, const struct collet_devcoll_call *call);
void collet_device_wide_free(struct collet_device_comm *device_comm);
/* Makes the plan kernel add f32 in that memory. */
void collet_device_wide_set_arguments(const struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, struct collet_plan_arguments *arguments);
/* Launch what comes before and after the plan kernel. done: the address that gets the ticket; 0: none. */
COLLET_MUST_USE collet_status collet_device_wide_launch_before(const struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, const struct collet_plan_arguments *arguments, uint32_t blocks,
	cu_stream stream);
COLLET_MUST_USE collet_status collet_device_wide_launch_after(const struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, const struct collet_plan_arguments *arguments, uint32_t blocks,
	uint64_t done, cu_stream stream);

#endif
