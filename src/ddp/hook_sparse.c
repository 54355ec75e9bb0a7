/* Top-k and random-k: sends a share of a bucket's elements; the rest waits for the next step (error feedback). */
#include <stdlib.h>

#include "core/status.h"
#include "ddp/hooks.h"

struct indexed_value {
	uint32_t index;
	float value;
};

struct sparse {
	collet_comm *comm;
	const struct collet_ddp_hook_spec *spec;
	float *residual;          /* not sent yet; during a step: plus the gradient */
	uint64_t k;
	struct indexed_value *mine, *all; /* topk: k, and k per rank */
	float *values;            /* randomk: as many as were drawn */
};

static void sparse_close(void *state)
{
	struct sparse *sparse = state;
	collet_mem_free(sparse->comm, sparse->mine);
	collet_mem_free(sparse->comm, sparse->all);
	collet_mem_free(sparse->comm, sparse->values);
	free(sparse->residual);
	free(sparse);
}

static collet_status open_sparse(const collet_ddp_hook *hook, const collet_ddp_hook_args *args, struct sparse **opened)
{
	const uint64_t count = args->bucket.count;
	collet_status status = collet_ddp_hook_check_f32(hook, args);
	if (status == COLLET_OK && count > UINT32_MAX)
		status = collet_fail(COLLET_ERR_UNSUPPORTED,
			"collet_ddp: hook %s supports buckets of fewer than 2^32 elements; bucket %u "
			"has more: use smaller buckets",
			hook->name, args->index);
	if (status != COLLET_OK)
		return status;
	struct sparse *sparse = calloc(1, sizeof(*sparse));
	float *residual = calloc((size_t)count, sizeof(*residual));
	if (!sparse || !residual) {
		free(sparse);
		free(residual);
		return collet_ddp_hook_no_memory(hook, args);
	}
	*sparse = (struct sparse){ .comm = args->comms[0], .spec = hook->context, .residual = residual };
	*opened = sparse;
	return COLLET_OK;
}

static void add_gradients(const struct sparse *sparse, const collet_ddp_hook_args *args)
{
	const float *restrict gradients = args->bucket.gradients;
	float *restrict residual = sparse->residual;
	for (uint64_t i = 0; i < args->bucket.count; i++)
		residual[i] += gradients[i];
}

static uint64_t sparse_saved_bytes(const void *state, const collet_ddp_hook_args *args)
{
	return args->bucket.count * sizeof(float);
}

static void sparse_save(const void *state, const collet_ddp_hook_args *args, void *saved)
{
	memcpy(saved, ((const struct sparse *)state)->residual, sparse_saved_bytes(state, args));
}

static void sparse_load(void *state, const collet_ddp_hook_args *args, const void *saved)
{
	memcpy(((struct sparse *)state)->residual, saved, sparse_saved_bytes(state, args));
}

/* ---- Top-k ---------------------------------------------------------------------------------------------------- */

static collet_status topk_open(const collet_ddp_hook *hook, const collet_ddp_hook_args *args, void **state)
{
	struct sparse *sparse = NULL;
	collet_status status = open_sparse(hook, args, &sparse);
	if (status != COLLET_OK)
		return status;
	const double wanted = sparse->spec->fraction * (double)args->bucket.count;
	sparse->k = (uint64_t)wanted + ((double)(uint64_t)wanted < wanted);
	void *mine = NULL, *all = NULL;
	status = collet_mem_alloc(sparse->comm, &mine, sparse->k * sizeof(struct indexed_value));
	if (status == COLLET_OK)
		status = collet_mem_alloc(
			sparse->comm, &all, sparse->k * sizeof(struct indexed_value) * collet_comm_size(sparse->comm));
	sparse->mine = mine;
	sparse->all = all;
	if (status == COLLET_OK)
		*state = sparse;
	else
		sparse_close(sparse);
	return status;
}

/* Floats of one sign have the order of their bits. */
static inline uint32_t magnitude_bits(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof(bits));
	return bits & 0x7fffffffU;
}

/* Returns the k-th largest magnitude, by a radix search of eight bits at a time. *above: how many are larger. */
static uint32_t threshold(const float *x, uint64_t count, uint64_t k, uint64_t *above)
{
	uint32_t found = 0;
	*above = 0;
	for (int shift = 24; shift >= 0; shift -= 8) {
		uint64_t histogram[256] = { 0 };
		const uint32_t known = shift == 24 ? 0 : ~(uint32_t)0 << (shift + 8);
		for (uint64_t i = 0; i < count; i++) {
			const uint32_t m = magnitude_bits(x[i]);
			if ((m & known) == found)
				histogram[m >> shift & 255]++;
		}
		uint32_t digit = 255;
		while (*above + histogram[digit] < k)
			*above += histogram[digit--];
		found |= digit << shift;
	}
	return found;
}

/* Selects the k largest magnitudes; of equal ones, those with the lowest index. */
static collet_status topk_start(void *state, const collet_ddp_hook_args *args, uint32_t stage, collet_request **request)
{
	struct sparse *sparse = state;
	uint64_t above, sent_count = 0;
	add_gradients(sparse, args);
	const uint32_t min_magnitude = threshold(sparse->residual, args->bucket.count, sparse->k, &above);
	uint64_t equal = sparse->k - above;
	for (uint64_t i = 0; i < args->bucket.count && sent_count < sparse->k; i++) {
		const uint32_t m = magnitude_bits(sparse->residual[i]);
		if (m < min_magnitude || (m == min_magnitude && equal == 0))
			continue;
		equal -= m == min_magnitude;
		sparse->mine[sent_count++] = (struct indexed_value){ (uint32_t)i, sparse->residual[i] };
		sparse->residual[i] = 0;
	}
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = request;
	return collet_allgather(
		sparse->comm, sparse->mine, sparse->all, sparse->k * sizeof(struct indexed_value), COLLET_U8, &how);
}

/* Adds in rank order, so that every rank has the same sums. */
static collet_status topk_finish(void *state, const collet_ddp_hook_args *args)
{
	const struct sparse *sparse = state;
	const uint32_t size = collet_comm_size(sparse->comm);
	float *gradients = args->bucket.gradients;
	const float share = 1 / (float)size;
	memset(gradients, 0, args->bucket.count * sizeof(*gradients));
	for (uint64_t i = 0; i < sparse->k * size; i++) {
		const struct indexed_value *element = &sparse->all[i];
		if (element->index >= args->bucket.count)
			return collet_fail(COLLET_ERR_TRANSPORT, "collet_ddp: rank %u sent element %u of %llu",
				(uint32_t)(i / sparse->k), element->index, (unsigned long long)args->bucket.count);
		gradients[element->index] += element->value * share;
	}
	return COLLET_OK;
}

const collet_ddp_hook collet_ddp_hook_topk = {
	.stages = 1, .open = topk_open, .start = topk_start, .finish = topk_finish, .close = sparse_close,
	.saved_bytes = sparse_saved_bytes, .save = sparse_save, .load = sparse_load };

/* ---- Random-k ------------------------------------------------------------------------------------------------- */

static collet_status randomk_open(const collet_ddp_hook *hook, const collet_ddp_hook_args *args, void **state)
{
	struct sparse *sparse = NULL;
	collet_status status = open_sparse(hook, args, &sparse);
	if (status != COLLET_OK)
		return status;
	void *values = NULL;
	status = collet_mem_alloc(sparse->comm, &values, (size_t)args->bucket.count * sizeof(float));
	sparse->values = values;
	if (status == COLLET_OK)
		*state = sparse;
	else
		sparse_close(sparse);
	return status;
}

/* Returns true for biases and the like. They have so few elements that drawing saves nothing, and delayed gradients
 * harm them most. */
static bool is_vector(const collet_ddp_slice *slice)
{
	return slice->dimensions == 0 || slice->count == slice->shape[0];
}

/* Returns true if an element is sent. Each is drawn independently, the same ones on every rank, so their share is right
 * on average. Of vectors all are sent. Gaps between slices are never sent. */
static inline bool is_selected(const struct sparse *sparse, uint32_t rng_key, bool all, uint64_t i)
{
	return all || collet_ddp_rng_draw(rng_key, (uint32_t)i) < sparse->spec->fraction * 4294967296.0;
}

static uint32_t rng_key_of(const struct sparse *sparse, const collet_ddp_hook_args *args)
{
	return collet_ddp_rng_key(sparse->spec->seed, args->step, args->index, 1);
}

static collet_status randomk_start(
	void *state, const collet_ddp_hook_args *args, uint32_t stage, collet_request **request)
{
	struct sparse *sparse = state;
	const uint32_t rng_key = rng_key_of(sparse, args);
	add_gradients(sparse, args);
	sparse->k = 0;
	for (uint32_t s = 0; s < args->bucket.slice_count; s++) {
		const collet_ddp_slice *slice = &args->bucket.slices[s];
		const bool all = is_vector(slice);
		for (uint64_t i = slice->first; i < slice->first + slice->count; i++) {
			if (!is_selected(sparse, rng_key, all, i))
				continue;
			sparse->values[sparse->k++] = sparse->residual[i];
			sparse->residual[i] = 0;
		}
	}
	collet_how how = collet_ddp_hook_how(args, request);
	return collet_allreduce(
		sparse->comm, sparse->values, sparse->values, sparse->k, COLLET_F32, COLLET_AVERAGE, &how);
}

static collet_status randomk_finish(void *state, const collet_ddp_hook_args *args)
{
	const struct sparse *sparse = state;
	const uint32_t rng_key = rng_key_of(sparse, args);
	float *gradients = args->bucket.gradients;
	uint64_t sent_count = 0;
	for (uint32_t s = 0; s < args->bucket.slice_count; s++) {
		const collet_ddp_slice *slice = &args->bucket.slices[s];
		const bool all = is_vector(slice);
		for (uint64_t i = slice->first; i < slice->first + slice->count; i++)
			gradients[i] = is_selected(sparse, rng_key, all, i) ? sparse->values[sent_count++] : 0;
	}
	return COLLET_OK;
}

const collet_ddp_hook collet_ddp_hook_randomk = {
	.stages = 1, .open = randomk_open, .start = randomk_start, .finish = randomk_finish, .close = sparse_close,
	.saved_bytes = sparse_saved_bytes, .save = sparse_save, .load = sparse_load };
