/* What a rank's context has for its GPU: which one that is, its kernels, and other processes' memory. */
#ifndef COLLET_CUDA_DRIVER_DEVICE_H
#define COLLET_CUDA_DRIVER_DEVICE_H

#include "cuda/driver/handle_exchange.h"
#include "cuda/driver/ipc.h"
#include "cuda/kernels/kernel_set.h"
#include "transport/registry.h"

enum {
	COLLET_OPENED_MOST = 256,    /* of other processes' allocations kept open, */
	COLLET_DESCRIBED = 64,       /* of this process's, with their descriptions */
	COLLET_RECEIVED_MOST = 64    /* descriptors that wait to be asked for */
};
static const uint64_t COLLET_OPENED_MOST_BYTES = UINT64_C(64) << 30;

/* A descriptor that has come. */
struct collet_received_file {
	struct collet_desk_note note;
	int file;                    /* -1: this entry is free */
};

/* What an allocation of this process's is for others. */
struct collet_described {
	struct collet_shared shared;         /* 0 bytes: this entry is free */
	uint64_t allocation;                 /* of its residence */
	cu_memory mapped;                    /* COLLET_SHARED_DESCRIPTOR: held, so that no other has this handle */
	uint64_t used;
};

struct collet_device {
	const struct collet_cuda *cuda;      /* NULL: there is no driver */
	struct collet_copiers *copiers;
	const struct collet_log *log;
	uint64_t process;                    /* the card's, */
	uint32_t rank;                       /* and its */
	int ordinal;                         /* of the GPU that the context's thread uses; -1: none that it knows */
	cu_context context;                  /* which it uses it by; NULL: by the primary one */
	bool leader_only;                    /* ranks that share a GPU have a leader do all of their collectives */
	struct collet_kernel_sets kernels;
	struct collet_ipc ipc;
	struct collet_desk desk;
	/* Under the engine's lock. */
	struct collet_received_file received[COLLET_RECEIVED_MOST];
	uint32_t next_received;
	struct collet_described described[COLLET_DESCRIBED];
	uint64_t uses, numbered;
	struct collet_own_block *own;        /* see shareable_memory.h */
	bool kept;                           /* a GPU may be at something here that nobody can wait for: it stays, */
	struct collet_executor *executors;   /* and such with it */
	struct collet_pulls *pulls;          /* see ipc_get.h */
};

/* Finds the GPU that the calling thread uses, if the program has initialised the driver: that of its current context,
 * or the only one there is. card gets its UUID, for the others to compare. direct: whether ranks of one GPU are to go
 * together at all. That there is no such GPU is no error. */
void collet_device_init(struct collet_device *device, const struct collet_cuda *cuda, struct collet_copiers *copiers,
	bool direct, struct collet_peer_info *card, const struct collet_log *log);
/* Has that rank found such a GPU? */
bool collet_card_has_gpu(const struct collet_peer_info *card);
/* Before the copiers go. A zeroed one is fine. */
void collet_device_deinit(struct collet_device *device);

/* The device of the calling thread, and its context; -1: the program has not initialised the driver, or uses none that
 * can be told. */
int collet_device_of_thread(const struct collet_cuda *cuda, cu_context *context);
/* What this process's memory is for others; found once for each allocation. Under the engine's lock. */
collet_status collet_device_describe(struct collet_device *device, const struct collet_residence *residence,
	const void *memory, struct collet_shared *shared);
/* Likewise, of what has not been described before; *mapped as collet_ipc_describe() leaves it. */
collet_status collet_device_describe_new(struct collet_device *device, const struct collet_residence *residence,
	const void *memory, struct collet_shared *shared, cu_memory *mapped);
/* Takes what has come to the desk: descriptors, and word of memory that is no more. Under the engine's lock. */
void collet_device_look(struct collet_device *device);
/* What is kept of both is let go of: when the context ends. */
void collet_device_drop_described(struct collet_device *device);
void collet_device_drop_received(struct collet_device *device);
/* A descriptor that has come, the caller's then; -1: it has not. Under the engine's lock. */
int collet_device_take_file(struct collet_device *device, uint64_t process, uint64_t allocation);
/* The same in this process, for the copier's context: open until collet_ipc_put(). COLLET_ERR_SYSTEM and
 * COLLET_ERR_UNSUPPORTED: with the reason. */
collet_status collet_device_open(struct collet_device *device, const struct collet_copier *copier,
	const struct collet_shared *shared, struct collet_opened **opened);

#endif
