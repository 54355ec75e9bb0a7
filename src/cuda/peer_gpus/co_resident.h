/* Ranks that are threads of one process and launch kernels which wait for each other, on one GPU: what they must know
 * of each other so that those kernels do run at the same time.
 *
 * A place for every block. A GPU takes kernels' blocks as room comes free, and one that waits for a block which has no
 * room yet waits for ever. So the blocks of all that may run at once, of all communicators, are counted here, by GPU.
 *
 * A call that has been made. What a thread asks of the driver may wait for all that runs in its context (freeing memory
 * does): if another rank's kernel is there already, and waits for what this thread calls next, neither gets on. So a
 * call that is waited for by the host is launched once all ranks of the process have made it. */
#ifndef COLLET_CUDA_PEER_GPUS_CO_RESIDENT_H
#define COLLET_CUDA_PEER_GPUS_CO_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>

struct collet_call;
struct collet_recorder;


/* Why kernels of so many ranks of this process would not run at the same time on one GPU, as the driver has been set
 * up; NULL: nothing is known. */
const char *collet_co_resident_obstacle(uint32_t ranks);

/* Room for so many blocks on a GPU (by its ordinal) of which `resident` run at a time. false: not as much is left.
 * counted: whoever takes it has room in any case, and the others are to know. */
bool collet_co_resident_reserve_blocks(int ordinal, uint32_t blocks, uint32_t resident, bool is_forced);
void collet_co_resident_release_blocks(int ordinal, uint32_t blocks);

/* The ranks of a communicator that are in this process. */
struct collet_co_resident;
/* NULL: no memory. */
struct collet_co_resident *collet_co_resident_join(uint64_t comm_id, uint32_t rank, uint32_t size);
void collet_co_resident_leave(struct collet_co_resident *co_resident, uint32_t rank);
/* This rank makes a call: which one that is, from 1 on. All ranks make them in one order. */
uint64_t collet_co_resident_count_call(struct collet_co_resident *co_resident, uint32_t rank);
/* Where this rank's calls are recorded, the first as number 0. When it leaves a copy is taken. */
void collet_co_resident_set_recorder(
	struct collet_co_resident *co_resident, uint32_t rank, const struct collet_recorder *recorder);
/* Whoever has left calls nothing more. */
bool collet_co_resident_has_left(const struct collet_co_resident *co_resident, uint32_t rank);
/* The first call, of those that both have made and are recorded yet, that two ranks have not made alike. false: there
 * is none. */
bool collet_co_resident_find_mismatch(const struct collet_co_resident *co_resident, uint32_t rank, uint32_t other,
	struct collet_call *own, struct collet_call *others);
/* Have all ranks here that have not left made this one? */
bool collet_co_resident_all_called(const struct collet_co_resident *co_resident, uint64_t number);

#endif
