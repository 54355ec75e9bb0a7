/* Folding elements of one dtype. Included by device_reduce.h, which defines
 *   FOLD_NAME   the dtype
 *   FOLD_IN     what its elements are combined in, and FOLD_TYPE, that type
 *   FOLD_BYTES  bytes of an element */

#define FOLD(word) FOLD_EXPAND(word##_, FOLD_NAME)
#define FOLD_BY(word) FOLD_EXPAND(word##_, FOLD_IN)
#define FOLD_LANES (16 / FOLD_BYTES)

/* `lanes` elements from number `at` on, 1 or a pack full; `batch` sources are read before the first of them is waited
 * for. Both are constants wherever this is called. */
DEVICE void FOLD(fold_group)(const struct fold *fold, uint64_t at, uint32_t lanes, uint32_t batch)
{
	FOLD_TYPE sum[FOLD_LANES], next[FOLD_LANES];
	union pack packs[FOLD_BATCH], result;
	uint32_t first = 0;
	do {
		UNROLL
		for (uint32_t b = 0; b < batch; b++) {
			if (b && first + b >= fold->source_count)
				continue;
			const unsigned char *from = (const unsigned char *)(uintptr_t)fold->sources[first + b];
			if (lanes == 1)
				element_load(&packs[b], from + at * FOLD_BYTES, FOLD_BYTES);
			else
				packs[b] = pack_load(from + at * FOLD_BYTES);
		}
		UNROLL
		for (uint32_t b = 0; b < batch; b++) {
			if (b && first + b >= fold->source_count)
				continue;
			UNROLL
			for (uint32_t i = 0; i < lanes; i++)
				next[i] = FOLD(take)(&packs[b], i);
			/* Rounded, as another rank would have got it. */
			UNROLL
			for (uint32_t i = 0; fold->scales && i < lanes; i++) {
				FOLD(give)(&packs[b], i, FOLD_BY(scale)(next[i], fold->scales[first + b]));
				next[i] = FOLD(take)(&packs[b], i);
			}
			UNROLL
			for (uint32_t i = 0; i < lanes; i++)
				sum[i] = first + b ? FOLD_BY(combine)(fold->op, sum[i], next[i]) : next[i];
		}
		first += batch;
	} while (first < fold->source_count);
	UNROLL
	for (uint32_t i = 0; i < lanes; i++)
		FOLD(give)(&result, i, fold->divisor > 1 ? FOLD_BY(divide)(fold, sum[i]) : sum[i]);
	for (uint32_t k = 0; k < fold->result_count; k++) {
		unsigned char *to = (unsigned char *)(uintptr_t)fold->results[k] + at * FOLD_BYTES;
		if (lanes == 1)
			element_store(to, &result, FOLD_BYTES);
		else
			pack_store(to, &result);
	}
}

/* What lies before the first pack and behind the last goes one by one. */
DEVICE void FOLD(fold_span)(const struct fold *fold, uint32_t batch)
{
	const uint64_t head = fold_head(fold, FOLD_BYTES), packs = (fold->count - head) / FOLD_LANES;
	const uint64_t single = fold->count - packs * FOLD_LANES;
	for (uint64_t p = fold->worker; p < packs; p += fold->workers)
		FOLD(fold_group)(fold, head + p * FOLD_LANES, FOLD_LANES, batch);
	for (uint64_t i = fold->worker; i < single; i += fold->workers)
		FOLD(fold_group)(fold, i < head ? i : packs * FOLD_LANES + i, 1, batch);
}

DEVICE void FOLD(fold)(const struct fold *fold)
{
	FOLD(fold_span)(fold, FOLD_BATCH);
}

/* The same, small: for a kernel that has all dtypes in it. */
CALLED void FOLD(fold_called)(const struct fold *fold)
{
	FOLD(fold_span)(fold, 1);
}

#undef FOLD
#undef FOLD_BY
#undef FOLD_LANES
#undef FOLD_NAME
#undef FOLD_IN
#undef FOLD_TYPE
#undef FOLD_BYTES
