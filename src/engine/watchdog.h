/* Enforces deadlines and finds stalls. */
#ifndef COLLET_ENGINE_WATCHDOG_H
#define COLLET_ENGINE_WATCHDOG_H

struct collet_engine;

/* Checks deadlines and suspicions of all pending requests, and warns of stalls. Under the lock. */
void collet_engine_run_watchdog(struct collet_engine *engine);

#endif
