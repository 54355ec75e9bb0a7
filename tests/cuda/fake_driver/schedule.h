/* Choosing which block of a launch goes on, so that a test can try orders that threads seldom take, and repeat them.
 *
 * FAKE_CUDA_SCHEDULE=SEED: the blocks of a launch that has no more than run at once are run one at a time; wherever one
 * looks at a flag or sets one, the seed says who goes on; with half of the seeds there is one that seldom does. What
 * comes of weakly ordered memory this does not show: ThreadSanitizer looks at that. */
#ifndef TESTS_CUDA_FAKE_DRIVER_SCHEDULE_H
#define TESTS_CUDA_FAKE_DRIVER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct schedule;

/* What FAKE_CUDA_SCHEDULE says; 0: nothing. */
uint64_t schedule_seed(void);
/* NULL: none is asked for. */
struct schedule *schedule_create(uint32_t blocks);
void schedule_destroy(struct schedule *schedule);
/* Block number b begins: returns when all have, and it is its turn. */
void schedule_join(struct schedule *schedule, uint32_t b);
/* false: after so many turns nobody can be expected to get on any more. */
bool schedule_pause(struct schedule *schedule, uint32_t b);
/* It has ended. */
void schedule_leave(struct schedule *schedule, uint32_t b);

#endif
