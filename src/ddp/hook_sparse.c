/* Top-k and random-k: a share of a bucket's elements travels, the rest waits for the next step (error feedback). */
#include <stdlib.h>

#include "core/status.h"
#include "ddp/hooks.h"

struct pair {
	uint32_t index;
	float value;
};

struct sparse {
	collet_comm *comm;
	const struct collet_ddp_words *words;
	float *left;              /* what has not travelled yet; during a step: with the gradient */
	uint64_t k;
	struct pair *mine, *all;  /* topk: k, and k a rank */
	float *values;            /* randomk: as many as have been drawn */
};

static void sparse_close(void *state)
{
	struct sparse *sparse = state;
	collet_mem_free(sparse->comm, sparse->mine);
	collet_mem_free(sparse->comm, sparse->all);
	collet_mem_free(sparse->comm, sparse->values);
	free(sparse->left);
	free(sparse);
}

static collet_status open_sparse(const collet_ddp_hook *hook, const collet_ddp_task *task, struct sparse **opened)
{
	const uint64_t count = task->bucket.count;
	collet_status status = collet_ddp_needs_f32(hook, task);
	if (status == COLLET_OK && count > UINT32_MAX)
		status = collet_fail(COLLET_ERR_UNSUPPORTED,
			"collet_ddp: hook %s numbers elements with 32 bits; bucket %u "
			"has more: use smaller buckets",
			hook->name, task->index);
	if (status != COLLET_OK)
		return status;
	struct sparse *sparse = calloc(1, sizeof(*sparse));
	float *left = calloc((size_t)count, sizeof(*left));
	if (!sparse || !left) {
		free(sparse);
		free(left);
		return collet_ddp_hook_no_memory(hook, task);
	}
	*sparse = (struct sparse){ .comm = task->comms[0], .words = hook->context, .left = left };
	*opened = sparse;
	return COLLET_OK;
}

static void add_gradients(const struct sparse *sparse, const collet_ddp_task *task)
{
	const float *restrict gradients = task->bucket.gradients;
	float *restrict left = sparse->left;
	for (uint64_t i = 0; i < task->bucket.count; i++)
		left[i] += gradients[i];
}

static uint64_t sparse_saved_bytes(const void *state, const collet_ddp_task *task)
{
	return task->bucket.count * sizeof(float);
}

static void sparse_save(const void *state, const collet_ddp_task *task, void *saved)
{
	memcpy(saved, ((const struct sparse *)state)->left, sparse_saved_bytes(state, task));
}

static void sparse_load(void *state, const collet_ddp_task *task, const void *saved)
{
	memcpy(((struct sparse *)state)->left, saved, sparse_saved_bytes(state, task));
}

/* ---- Top-k ---------------------------------------------------------------------------------------------------- */

static collet_status top_open(const collet_ddp_hook *hook, const collet_ddp_task *task, void **state)
{
	struct sparse *sparse = NULL;
	collet_status status = open_sparse(hook, task, &sparse);
	if (status != COLLET_OK)
		return status;
	const double wanted = sparse->words->share * (double)task->bucket.count;
	sparse->k = (uint64_t)wanted + ((double)(uint64_t)wanted < wanted);
	void *mine = NULL, *all = NULL;
	status = collet_mem_alloc(sparse->comm, &mine, sparse->k * sizeof(struct pair));
	if (status == COLLET_OK)
		status = collet_mem_alloc(
			sparse->comm, &all, sparse->k * sizeof(struct pair) * collet_comm_size(sparse->comm));
	sparse->mine = mine;
	sparse->all = all;
	if (status == COLLET_OK)
		*state = sparse;
	else
		sparse_close(sparse);
	return status;
}

/* Floats of one sign are ordered as their bits are. */
static inline uint32_t magnitude(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof(bits));
	return bits & 0x7fffffffU;
}

/* The k-th largest magnitude, eight bits at a time; *above: how many are larger than it. */
static uint32_t threshold(const float *x, uint64_t count, uint64_t k, uint64_t *above)
{
	uint32_t found = 0;
	*above = 0;
	for (int shift = 24; shift >= 0; shift -= 8) {
		uint64_t histogram[256] = { 0 };
		const uint32_t known = shift == 24 ? 0 : ~(uint32_t)0 << (shift + 8);
		for (uint64_t i = 0; i < count; i++) {
			const uint32_t m = magnitude(x[i]);
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

/* Of equal magnitudes those of the lowest index go. */
static collet_status top_start(void *state, const collet_ddp_task *task, uint32_t stage, collet_request **request)
{
	struct sparse *sparse = state;
	uint64_t above, taken = 0;
	add_gradients(sparse, task);
	const uint32_t least = threshold(sparse->left, task->bucket.count, sparse->k, &above);
	uint64_t equal = sparse->k - above;
	for (uint64_t i = 0; i < task->bucket.count && taken < sparse->k; i++) {
		const uint32_t m = magnitude(sparse->left[i]);
		if (m < least || (m == least && equal == 0))
			continue;
		equal -= m == least;
		sparse->mine[taken++] = (struct pair){ (uint32_t)i, sparse->left[i] };
		sparse->left[i] = 0;
	}
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = request;
	return collet_allgather(
		sparse->comm, sparse->mine, sparse->all, sparse->k * sizeof(struct pair), COLLET_U8, &how);
}

/* In rank order: the same sums on every rank. */
static collet_status top_finish(void *state, const collet_ddp_task *task)
{
	const struct sparse *sparse = state;
	const uint32_t size = collet_comm_size(sparse->comm);
	float *gradients = task->bucket.gradients;
	const float share = 1 / (float)size;
	memset(gradients, 0, task->bucket.count * sizeof(*gradients));
	for (uint64_t i = 0; i < sparse->k * size; i++) {
		const struct pair *pair = &sparse->all[i];
		if (pair->index >= task->bucket.count)
			return collet_fail(COLLET_ERR_TRANSPORT, "collet_ddp: rank %u sent element %u of %llu",
				(uint32_t)(i / sparse->k), pair->index, (unsigned long long)task->bucket.count);
		gradients[pair->index] += pair->value * share;
	}
	return COLLET_OK;
}

const collet_ddp_hook collet_ddp_top = {
	.stages = 1, .open = top_open, .start = top_start, .finish = top_finish, .close = sparse_close,
	.saved_bytes = sparse_saved_bytes, .save = sparse_save, .load = sparse_load };

/* ---- Random-k ------------------------------------------------------------------------------------------------- */

static collet_status random_open(const collet_ddp_hook *hook, const collet_ddp_task *task, void **state)
{
	struct sparse *sparse = NULL;
	collet_status status = open_sparse(hook, task, &sparse);
	if (status != COLLET_OK)
		return status;
	void *values = NULL;
	status = collet_mem_alloc(sparse->comm, &values, (size_t)task->bucket.count * sizeof(float));
	sparse->values = values;
	if (status == COLLET_OK)
		*state = sparse;
	else
		sparse_close(sparse);
	return status;
}

/* Biases and the like: so few elements that drawing them saves nothing, and a step that is ten steps old does most harm
 * to them. */
static bool is_vector(const collet_ddp_slice *slice)
{
	return slice->dimensions == 0 || slice->count == slice->shape[0];
}

/* Each element by itself: as many as the share says in the mean, the same ones on every rank; of vectors all. Between
 * slices nothing travels. */
static inline bool is_drawn(const struct sparse *sparse, uint32_t stream, bool all, uint64_t i)
{
	return all || collet_ddp_draw(stream, (uint32_t)i) < sparse->words->share * 4294967296.0;
}

static uint32_t stream_of(const struct sparse *sparse, const collet_ddp_task *task)
{
	return collet_ddp_stream(sparse->words->seed, task->step, task->index, 1);
}

static collet_status random_start(void *state, const collet_ddp_task *task, uint32_t stage, collet_request **request)
{
	struct sparse *sparse = state;
	const uint32_t stream = stream_of(sparse, task);
	add_gradients(sparse, task);
	sparse->k = 0;
	for (uint32_t s = 0; s < task->bucket.slice_count; s++) {
		const collet_ddp_slice *slice = &task->bucket.slices[s];
		const bool all = is_vector(slice);
		for (uint64_t i = slice->first; i < slice->first + slice->count; i++) {
			if (!is_drawn(sparse, stream, all, i))
				continue;
			sparse->values[sparse->k++] = sparse->left[i];
			sparse->left[i] = 0;
		}
	}
	collet_how how = collet_ddp_how(task, request);
	return collet_allreduce(
		sparse->comm, sparse->values, sparse->values, sparse->k, COLLET_F32, COLLET_AVERAGE, &how);
}

static collet_status random_finish(void *state, const collet_ddp_task *task)
{
	const struct sparse *sparse = state;
	const uint32_t stream = stream_of(sparse, task);
	float *gradients = task->bucket.gradients;
	uint64_t taken = 0;
	for (uint32_t s = 0; s < task->bucket.slice_count; s++) {
		const collet_ddp_slice *slice = &task->bucket.slices[s];
		const bool all = is_vector(slice);
		for (uint64_t i = slice->first; i < slice->first + slice->count; i++)
			gradients[i] = is_drawn(sparse, stream, all, i) ? sparse->values[taken++] : 0;
	}
	return COLLET_OK;
}

const collet_ddp_hook collet_ddp_random = {
	.stages = 1, .open = random_open, .start = random_start, .finish = random_finish, .close = sparse_close,
	.saved_bytes = sparse_saved_bytes, .save = sparse_save, .load = sparse_load };
