#include "first_failure.h"

#include <sys/wait.h>

/* Less is earlier: a killed rank reports nothing, and the others report that they lost it. */
static int order(const struct bench_end *end)
{
	return WIFSIGNALED(end->wait_status) ? 0 : end->gave_up_ns == 0 ? 1 : !end->is_told ? 2 : 3;
}

static bool is_earlier(const struct bench_end *a, const struct bench_end *b)
{
	return order(a) != order(b) ? order(a) < order(b) : a->gave_up_ns < b->gave_up_ns;
}

uint32_t bench_first_failure(const struct bench_end *ends, uint32_t count)
{
	uint32_t first = count;
	for (uint32_t r = 0; r < count; r++) {
		const bool has_failed = ends[r].has_ended && ends[r].wait_status != 0;
		if (has_failed && (first == count || is_earlier(&ends[r], &ends[first])))
			first = r;
	}
	return first;
}
