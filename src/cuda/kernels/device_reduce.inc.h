/* Reduces elements of one dtype. Included by device_reduce.h, which defines
 *   REDUCE_NAME   the dtype
 *   REDUCE_IN     what its elements are combined in, and REDUCE_TYPE, that type
 *   REDUCE_BYTES  bytes of an element */

#define REDUCE_FN(function) REDUCE_EXPAND(function##_, REDUCE_NAME)
#define REDUCE_BY(function) REDUCE_EXPAND(function##_, REDUCE_IN)
#define REDUCE_LANES (16 / REDUCE_BYTES)
/* Sources that a thread loads at once: fewer where more threads do (entry_points.h). */
#define REDUCE_BATCH (REDUCE_BYTES >= 4 ? 2 : 4)

/* Reduces `lanes` elements from number `at` on: one, or a full pack. Loads `batch` sources before it waits for the
 * first. Both are constants in all callers. */
DEVICE void REDUCE_FN(reduce_group)(const struct reduction *reduction, uint64_t at, uint32_t lanes, uint32_t batch)
{
	REDUCE_TYPE sum[REDUCE_LANES], next[REDUCE_LANES];
	union pack packs[REDUCE_BATCH], result;
	uint32_t first = 0;
	do {
		UNROLL
		for (uint32_t b = 0; b < batch; b++) {
			if (b && first + b >= reduction->source_count)
				continue;
			const unsigned char *from = (const unsigned char *)(uintptr_t)reduction->sources[first + b];
			if (lanes == 1)
				element_load(&packs[b], from + at * REDUCE_BYTES, REDUCE_BYTES);
			else
				packs[b] = pack_load(from + at * REDUCE_BYTES);
		}
		UNROLL
		for (uint32_t b = 0; b < batch; b++) {
			if (b && first + b >= reduction->source_count)
				continue;
			UNROLL
			for (uint32_t i = 0; i < lanes; i++)
				next[i] = REDUCE_FN(shrink)(reduction, REDUCE_FN(unpack)(&packs[b], i));
			/* Round, so that the result equals what another rank computes. */
			UNROLL
			for (uint32_t i = 0; reduction->scales && i < lanes; i++) {
				REDUCE_FN(repack)
				(&packs[b], i, REDUCE_BY(scale)(next[i], reduction->scales[first + b]));
				next[i] = REDUCE_FN(unpack)(&packs[b], i);
			}
			UNROLL
			for (uint32_t i = 0; i < lanes; i++)
				sum[i] = first + b ? REDUCE_BY(combine)(reduction->op, sum[i], next[i]) : next[i];
		}
		first += batch;
	} while (first < reduction->source_count);
	UNROLL
	for (uint32_t i = 0; i < lanes; i++)
		REDUCE_FN(repack)(&result, i, reduction->divisor > 1 ? REDUCE_FN(average)(reduction, sum[i]) : sum[i]);
	for (uint32_t k = 0; k < reduction->result_count; k++) {
		unsigned char *to = (unsigned char *)(uintptr_t)reduction->results[k] + at * REDUCE_BYTES;
		if (lanes == 1)
			element_store(to, &result, REDUCE_BYTES);
		else
			pack_store(to, &result);
	}
}

/* Reduces packs, then single elements before the first pack and after the last. */
DEVICE void REDUCE_FN(reduce_span)(const struct reduction *reduction, uint32_t batch)
{
	const uint64_t head = reduce_head(reduction, REDUCE_BYTES), packs = (reduction->count - head) / REDUCE_LANES;
	const uint64_t single = reduction->count - packs * REDUCE_LANES;
	for (uint64_t p = reduction->worker; p < packs; p += reduction->workers)
		REDUCE_FN(reduce_group)(reduction, head + p * REDUCE_LANES, REDUCE_LANES, batch);
	for (uint64_t i = reduction->worker; i < single; i += reduction->workers)
		REDUCE_FN(reduce_group)(reduction, i < head ? i : packs * REDUCE_LANES + i, 1, batch);
}

DEVICE void REDUCE_FN(reduce)(const struct reduction *reduction)
{
	REDUCE_FN(reduce_span)(reduction, REDUCE_BATCH);
}

/* The same, in less code: for a kernel that contains all dtypes. */
DEVICE_NOINLINE void REDUCE_FN(reduce_called)(const struct reduction *reduction)
{
	REDUCE_FN(reduce_span)(reduction, 1);
}

#undef REDUCE_FN
#undef REDUCE_BY
#undef REDUCE_LANES
#undef REDUCE_BATCH
#undef REDUCE_NAME
#undef REDUCE_IN
#undef REDUCE_TYPE
#undef REDUCE_BYTES
