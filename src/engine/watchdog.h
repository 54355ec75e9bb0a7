/* Deadlines, mismatches and warnings of pending requests. */
#ifndef COLLET_ENGINE_WATCHDOG_H
#define COLLET_ENGINE_WATCHDOG_H

struct collet_engine;

/* Deadlines, suspicions and warnings of everything pending. */
void collet_engine_run_watchdog(struct collet_engine *engine);

#endif
