#include "preflight.h"

#include "ranks/host_memory.h"
#include "report/output.h"
#include "sizes.h"

static uint64_t largest(const struct bench_sizes *sizes)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < sizes->count; i++)
		bytes = sizes->bytes[i] > bytes ? sizes->bytes[i] : bytes;
	return bytes;
}

/* Returns what the ranks of this host need, if this rank is the only one of them that may be the root. */
static double host_need(const struct collet_library *collet, const struct bench_options *o, uint32_t sets)
{
	const uint32_t size = collet->library.size, local = collet_comm_local_size(collet->comm);
	const uint32_t other = (o->work.root + 1) % size;
	const uint64_t count = bench_count(&o->work, size, largest(&o->sizes));
	const double mine = bench_buffers_need(&o->work, collet->library.rank, size, count, o->mode.cold);
	return sets * (mine + (local - 1) * bench_buffers_need(&o->work, other, size, count, o->mode.cold));
}

/* All ranks read before they agree, and allocate after it. So none counts what another one has taken. */
static int check_memory(struct collet_library *collet, const struct bench_options *o, uint32_t sets)
{
	const double needed = host_need(collet, o, sets), available = bench_memory_available();
	const uint64_t mine = needed > available ? collet->library.rank : UINT64_MAX;
	uint64_t first;
	if (collet_allreduce(collet->comm, &mine, &first, 1, COLLET_U64, COLLET_MIN, NULL) != COLLET_OK) {
		fprintf(stderr, "collet-bench: the first call: %s\n", collet_last_error());
		return 1;
	}
	if (first == collet->library.rank)
		bench_memory_complain(
			largest(&o->sizes), collet_comm_local_size(collet->comm), needed, available);
	return first != UINT64_MAX;
}

int bench_preflight(struct collet_library *collet, const struct bench_options *options, uint32_t sets)
{
	const uint32_t size = collet->library.size;
	if (options->work.root >= size) {
		if (collet->library.rank == 0)
			fprintf(stderr, "collet-bench: --root %u: the ranks are 0 to %u\n", options->work.root,
				size - 1);
		return 2;
	}
	const bool sized = bench_collective_takes_bytes((enum bench_collective)options->work.collective);
	return sized && !options->mode.device ? check_memory(collet, options, sets) : 0;
}

int bench_preflight_algorithm(const struct collet_library *collet, const char *algorithm, uint64_t bytes)
{
	char text[24];
	if (!collet->refused)
		return 0;
	bench_progress_clear();
	if (collet->library.rank == 0)
		fprintf(stderr, "collet-bench: %s: --algorithm %s: %s\n", bench_bytes_text(bytes, text), algorithm,
			collet_last_error());
	return 2;
}
