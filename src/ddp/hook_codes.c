/* QSGD and sign: few bits an element and a scale for every block of them. Codes do not add, so a bucket is cut into a
 * share for each rank: an all-to-all brings a rank its share of everybody's, it decodes, averages and encodes that, and
 * an all-gather hands it out. What encoding leaves out is added to the next step's, on both ways, where a code has
 * fewer than 8 bits. */
#include <math.h>
#include <stdlib.h>

#include "ddp/hooks.h"

enum { BLOCK = 512, ALIGNMENT = 8 };

struct codes {
	collet_comm *comms[2];
	const struct collet_ddp_words *words;
	uint32_t size, rank;
	uint64_t share;             /* elements of each rank's share; the last ones may lie beyond the bucket */
	uint64_t share_bytes;
	float *padded;              /* size shares: gradients, with what was left and zeros behind */
	float *left, *left_of_mean; /* NULL: without error feedback */
	float *mean;                /* of this rank's share */
	unsigned char *sent, *came; /* size encoded shares */
};

static void codes_close(void *state)
{
	struct codes *codes = state;
	free(codes->padded);
	free(codes->left);
	free(codes->left_of_mean);
	free(codes->mean);
	collet_mem_free(codes->comms[0], codes->sent);
	collet_mem_free(codes->comms[0], codes->came);
	free(codes);
}

static bool allocate(struct codes *codes)
{
	const size_t all = (size_t)(codes->share * codes->size);
	const bool feeds_back = codes->words->bits < 8;
	codes->padded = calloc(all, sizeof(float));
	codes->mean = calloc((size_t)codes->share, sizeof(float));
	codes->left = feeds_back ? calloc(all, sizeof(float)) : NULL;
	codes->left_of_mean = feeds_back ? calloc((size_t)codes->share, sizeof(float)) : NULL;
	return codes->padded && codes->mean && (!feeds_back || (codes->left && codes->left_of_mean));
}

static collet_status codes_open(const collet_ddp_hook *hook, const collet_ddp_task *task, void **state)
{
	collet_status status = collet_ddp_needs_f32(hook, task);
	if (status != COLLET_OK)
		return status;
	struct codes *codes = calloc(1, sizeof(*codes));
	if (!codes)
		return collet_ddp_hook_no_memory(hook, task);
	codes->comms[0] = task->comms[0];
	codes->comms[1] = task->comms[1];
	codes->words = hook->context;
	codes->size = collet_comm_size(task->comms[0]);
	codes->rank = collet_comm_rank(task->comms[0]);
	const uint64_t share = (task->bucket.count + codes->size - 1) / codes->size;
	codes->share = (share + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	codes->share_bytes =
		codes->share * codes->words->bits / 8 + (codes->share + BLOCK - 1) / BLOCK * sizeof(float);
	void *sent = NULL, *came = NULL;
	status = allocate(codes) ? COLLET_OK : collet_ddp_hook_no_memory(hook, task);
	if (status == COLLET_OK)
		status = collet_mem_alloc(codes->comms[0], &sent, codes->share_bytes * codes->size);
	if (status == COLLET_OK)
		status = collet_mem_alloc(codes->comms[0], &came, codes->share_bytes * codes->size);
	codes->sent = sent;
	codes->came = came;
	if (status == COLLET_OK)
		*state = codes;
	else
		codes_close(codes);
	return status;
}

/* ---- Blocks: the scale, then the codes, the first element in the lowest bits ------------------------------------ */

/* What the outermost code stands for: the largest magnitude; with 1 or 2 bits the mean one, since error feedback needs
 * codes that leave less than they are given, and few steps up to a rare large value do not. */
static float scale_of(const float *x, uint32_t count, uint32_t bits)
{
	float largest = 0, sum = 0;
	for (uint32_t i = 0; i < count; i++) {
		const float m = fabsf(x[i]);
		sum += m;
		/* The comparison this way round lets a NaN through, so that it is seen at the other end. */
		largest = m <= largest ? largest : m;
	}
	return bits <= 2 ? sum / (float)count : largest;
}

static inline int32_t levels_of(uint32_t bits)
{
	return (1 << (bits - 1)) - 1;
}

/* 0 .. 2 levels; up or down at random, so that the mean is right. */
static inline uint32_t code_of(float x, float inverse, int32_t levels, uint32_t draw)
{
	const float scaled = x * inverse + (float)(draw >> 8) * 0x1p-24F;
	const int32_t down = (int32_t)floorf(scaled);
	const int32_t bounded = down < -levels ? -levels : down > levels ? levels : down;
	return (uint32_t)(bounded + levels);
}

static void encode_block(
	unsigned char *to, const float *x, uint32_t count, uint32_t bits, uint32_t stream, uint32_t first)
{
	const float scale = scale_of(x, count, bits);
	const uint32_t a_byte = 8 / bits;
	const int32_t levels = levels_of(bits);
	const float inverse = scale > 0 && isfinite(scale) ? (float)levels / scale : 0;
	memcpy(to, &scale, sizeof(scale));
	to += sizeof(scale);
	for (uint32_t i = 0; i < count; i += a_byte) {
		uint32_t byte = 0;
		for (uint32_t e = 0; e < a_byte; e++) {
			const uint32_t code = bits == 1 ? x[i + e] >= 0
							: code_of(x[i + e], inverse, levels,
								  collet_ddp_draw(stream, first + i + e));
			byte |= code << (e * bits);
		}
		to[i / a_byte] = (unsigned char)byte;
	}
}

static void decode_block(float *x, const unsigned char *from, uint32_t count, uint32_t bits)
{
	float scale;
	const uint32_t a_byte = 8 / bits, mask = (1u << bits) - 1;
	memcpy(&scale, from, sizeof(scale));
	from += sizeof(scale);
	const int32_t levels = levels_of(bits);
	const float step = bits == 1 ? scale : scale / (float)levels;
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t code = (uint32_t)from[i / a_byte] >> (i % a_byte * bits) & mask;
		x[i] = bits == 1 ? (code ? step : -step) : (float)((int32_t)code - levels) * step;
	}
}

static uint64_t block_bytes(uint32_t count, uint32_t bits)
{
	return sizeof(float) + count * bits / 8;
}

static uint32_t block_at(uint64_t count, uint64_t first)
{
	return count - first < BLOCK ? (uint32_t)(count - first) : BLOCK;
}

/* left, if not NULL: x minus what the other end will read. */
static void encode(const struct codes *codes, unsigned char *to, const float *x, float *left, uint32_t stream)
{
	const uint32_t bits = codes->words->bits;
	for (uint64_t first = 0; first < codes->share; first += BLOCK) {
		const uint32_t count = block_at(codes->share, first);
		float read[BLOCK];
		encode_block(to, x + first, count, bits, stream, (uint32_t)first);
		if (left) {
			decode_block(read, to, count, bits);
			for (uint32_t i = 0; i < count; i++)
				left[first + i] = x[first + i] - read[i];
		}
		to += block_bytes(count, bits);
	}
}

static void decode(const struct codes *codes, float *x, const unsigned char *from, uint64_t most)
{
	const uint32_t bits = codes->words->bits;
	for (uint64_t first = 0; first < codes->share && first < most; first += BLOCK) {
		const uint32_t count = block_at(codes->share, first);
		float read[BLOCK];
		decode_block(read, from, count, bits);
		memcpy(x + first, read, sizeof(float) * (most - first < count ? (size_t)(most - first) : count));
		from += block_bytes(count, bits);
	}
}

/* ---- Stages --------------------------------------------------------------------------------------------------- */

static collet_status scatter(struct codes *codes, const collet_ddp_task *task, const collet_how *how)
{
	const float *gradients = task->bucket.gradients;
	for (uint64_t i = 0; i < task->bucket.count; i++)
		codes->padded[i] = codes->left ? gradients[i] + codes->left[i] : gradients[i];
	for (uint32_t r = 0; r < codes->size; r++) {
		const uint64_t at = r * codes->share;
		const uint32_t stream = collet_ddp_stream(
			codes->words->seed, task->step, task->index, 2 + codes->rank * codes->size + r);
		encode(codes, codes->sent + r * codes->share_bytes, codes->padded + at,
			codes->left ? codes->left + at : NULL, stream);
	}
	return collet_alltoall(codes->comms[0], codes->sent, codes->came, codes->share_bytes, COLLET_U8, how);
}

/* Sums in rank order. */
static collet_status hand_out(struct codes *codes, const collet_ddp_task *task, const collet_how *how)
{
	const float part = 1 / (float)codes->size;
	float *mean = codes->mean;
	for (uint32_t r = 0; r < codes->size; r++) {
		float *one = codes->padded;  /* free again */
		decode(codes, one, codes->came + r * codes->share_bytes, codes->share);
		for (uint64_t i = 0; i < codes->share; i++)
			mean[i] = r == 0 ? one[i] : mean[i] + one[i];
	}
	for (uint64_t i = 0; i < codes->share; i++)
		mean[i] = mean[i] * part + (codes->left_of_mean ? codes->left_of_mean[i] : 0);
	const uint32_t stream = collet_ddp_stream(codes->words->seed, task->step, task->index, 1);
	encode(codes, codes->sent, mean, codes->left_of_mean, stream + codes->rank);
	return collet_allgather(codes->comms[1], codes->sent, codes->came, codes->share_bytes, COLLET_U8, how);
}

static collet_status codes_start(void *state, const collet_ddp_task *task, uint32_t stage, collet_request **request)
{
	struct codes *codes = state;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = request;
	return stage == 0 ? scatter(codes, task, &how) : hand_out(codes, task, &how);
}

static collet_status codes_finish(void *state, const collet_ddp_task *task)
{
	const struct codes *codes = state;
	for (uint32_t r = 0; r < codes->size && r * codes->share < task->bucket.count; r++)
		decode(codes, (float *)task->bucket.gradients + r * codes->share, codes->came + r * codes->share_bytes,
			task->bucket.count - r * codes->share);
	collet_ddp_zero_gaps(task);
	return COLLET_OK;
}

/* What was left of all shares, then of this rank's mean. */
static uint64_t codes_saved_bytes(const void *state, const collet_ddp_task *task)
{
	const struct codes *codes = state;
	return codes->left ? codes->share * (codes->size + 1) * sizeof(float) : 0;
}

static void codes_save(const void *state, const collet_ddp_task *task, void *saved)
{
	const struct codes *codes = state;
	const uint64_t all = codes->share * codes->size;
	if (!codes->left)
		return;
	memcpy(saved, codes->left, all * sizeof(float));
	memcpy((float *)saved + all, codes->left_of_mean, codes->share * sizeof(float));
}

static void codes_load(void *state, const collet_ddp_task *task, const void *saved)
{
	const struct codes *codes = state;
	const uint64_t all = codes->share * codes->size;
	if (!codes->left)
		return;
	memcpy(codes->left, saved, all * sizeof(float));
	memcpy(codes->left_of_mean, (const float *)saved + all, codes->share * sizeof(float));
}

const collet_ddp_hook collet_ddp_codes = {
	.stages = 2, .open = codes_open, .start = codes_start, .finish = codes_finish, .close = codes_close,
	.saved_bytes = codes_saved_bytes, .save = codes_save, .load = codes_load };
