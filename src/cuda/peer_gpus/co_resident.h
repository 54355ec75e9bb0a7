/* Co-resident ranks: threads of one process that share a GPU, and launch kernels that wait for each other. Keeps what
 * they must know of each other so that these kernels do run at the same time.
 *
 * Blocks. A GPU starts blocks as resources become free. A running block that waits for one that cannot start would wait
 * for ever. So the blocks of all kernels that may run at once, of all communicators, are counted here for each GPU.
 *
 * Calls. A driver call may wait for all work in its context; freeing memory does. If another rank's kernel runs
 * already, and waits for this thread's next call, neither continues. So a call that the host waits for is launched only
 * when all ranks of the process have made it. */
#ifndef COLLET_CUDA_PEER_GPUS_CO_RESIDENT_H
#define COLLET_CUDA_PEER_GPUS_CO_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>

struct collet_call;
struct collet_recorder;

/* Returns why the driver's settings may keep kernels of so many ranks of this process from running at the same time on
 * one GPU. NULL if no reason is known. */
const char *collet_co_resident_obstacle(uint32_t ranks);

/* Reserves blocks on a GPU, on which `resident` blocks run at a time. Returns false if fewer are left. is_forced:
 * reserves them in any case, so that others see them. */
bool collet_co_resident_reserve_blocks(int ordinal, uint32_t blocks, uint32_t resident, bool is_forced);
void collet_co_resident_release_blocks(int ordinal, uint32_t blocks);

/* The ranks of a communicator that are in this process. */
struct collet_co_resident;
/* Returns NULL if out of memory. */
struct collet_co_resident *collet_co_resident_join(uint64_t comm_id, uint32_t rank, uint32_t size);
void collet_co_resident_leave(struct collet_co_resident *co_resident, uint32_t rank);
/* Counts a call of this rank, and returns its number, from 1 on. All ranks make calls in the same order. */
uint64_t collet_co_resident_count_call(struct collet_co_resident *co_resident, uint32_t rank);
/* Sets the recorder of this rank's calls; its first call is number 0. A copy is kept when the rank leaves. */
void collet_co_resident_set_recorder(
	struct collet_co_resident *co_resident, uint32_t rank, const struct collet_recorder *recorder);
/* True if the rank has left, and so makes no more calls. */
bool collet_co_resident_has_left(const struct collet_co_resident *co_resident, uint32_t rank);
/* Finds the first call that two ranks have made differently, among those that both made and that are still recorded.
 * Returns false if there is none. */
bool collet_co_resident_find_mismatch(const struct collet_co_resident *co_resident, uint32_t rank, uint32_t other,
	struct collet_call *own, struct collet_call *others);
/* True if all ranks here that have not left have made this call. */
bool collet_co_resident_all_called(const struct collet_co_resident *co_resident, uint64_t number);

#endif
