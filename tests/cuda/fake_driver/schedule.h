/* Chooses which block of a launch runs next, so that a test can try rare orders, and repeat them.
 *
 * FAKE_CUDA_SCHEDULE=SEED: if all blocks of a launch can be resident, they run one at a time. Wherever one reads or
 * sets a flag, the seed decides which runs next. With half of the seeds, one block seldom runs. This does not show the
 * effects of weakly ordered memory: ThreadSanitizer checks these. */
#ifndef TESTS_CUDA_FAKE_DRIVER_SCHEDULE_H
#define TESTS_CUDA_FAKE_DRIVER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct schedule;

/* The value of FAKE_CUDA_SCHEDULE; 0 if it is not set. */
uint64_t schedule_seed(void);
/* Returns NULL if no schedule is wanted. */
struct schedule *schedule_create(uint32_t blocks);
void schedule_destroy(struct schedule *schedule);
/* Block b begins. Returns when all have begun, and it is its turn. */
void schedule_join(struct schedule *schedule, uint32_t b);
/* Returns false after so many turns that no block can be expected to continue. */
bool schedule_pause(struct schedule *schedule, uint32_t b);
/* Block b has ended. */
void schedule_leave(struct schedule *schedule, uint32_t b);

#endif
