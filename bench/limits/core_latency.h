/* Measures the latency between two cores of this process. */
#ifndef BENCH_CORE_LATENCY_H
#define BENCH_CORE_LATENCY_H

/* Returns collet_core_latency_ns() of the first two cores of this process; 0 if it has one core. */
double bench_core_latency_ns(void);

#endif
