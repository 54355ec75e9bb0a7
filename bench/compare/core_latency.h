/* How near two cores are to each other. */
#ifndef BENCH_CORE_LATENCY_H
#define BENCH_CORE_LATENCY_H

/* How long a flag takes one way between the first two cores that this process may use, in ns: the least mean of
 * several batches, which others' work on the cores does not change. Takes about a millisecond, never more than a tenth
 * of a second. 0: there is one core, or it could not be measured. A virtual machine's cores may share a cache now and
 * none in half a minute, as its host moves them about; the time differs by a factor of five then. */
double bench_core_latency_ns(void);

#endif
