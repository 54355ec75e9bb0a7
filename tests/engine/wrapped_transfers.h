/* Calls the test wherever the engine queues a transfer, or one completes: the linker gives these functions of the
 * engine to wrapped_transfers.c first. */
#ifndef TESTS_ENGINE_WRAPPED_TRANSFERS_H
#define TESTS_ENGINE_WRAPPED_TRANSFERS_H

/* The test defines it. */
void transfer_point(void);

#endif
