/* Measures the latency between two cores. */
#ifndef BENCH_CORE_LATENCY_H
#define BENCH_CORE_LATENCY_H

/* Returns the time in ns that a flag takes one way between the first two cores of this process. It is the least mean
 * of several batches, which other load on the cores does not change. Takes about a millisecond, at most a tenth of a
 * second. Returns 0 if there is one core, or if it could not be measured. The host of a virtual machine may move its
 * cores at any time; the latency then changes by a factor of up to five. */
double bench_core_latency_ns(void);

#endif
