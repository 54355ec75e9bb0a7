/* QSGD and sign: few bits per element, and a scale per block of elements.
 *
 * Codes cannot be added, so a bucket is cut into one share per rank. An all-to-all brings each rank its share from all
 * ranks. The rank decodes and averages it, encodes the average, and an all-gather distributes it. If a code has fewer
 * than 8 bits, the encoding error of both exchanges is added to the next step's values. */
#include <math.h>
#include <stdlib.h>

#include "ddp/hooks.h"

enum { BLOCK = 512, ALIGNMENT = 8 };

struct quantizer {
	collet_comm *comms[2];
	const struct collet_ddp_hook_spec *spec;
	uint32_t size, rank;
	uint64_t share;             /* elements per rank; the last share may extend beyond the bucket */
	uint64_t share_bytes;
	float *padded;              /* size shares: gradients plus residuals, padded with zeros */
	float *residual, *mean_residual; /* NULL: without error feedback */
	float *mean;                /* average of this rank's share */
	unsigned char *sent, *received; /* size encoded shares */
};

static void quantize_close(void *state)
{
	struct quantizer *quantizer = state;
	free(quantizer->padded);
	free(quantizer->residual);
	free(quantizer->mean_residual);
	free(quantizer->mean);
	collet_mem_free(quantizer->comms[0], quantizer->sent);
	collet_mem_free(quantizer->comms[0], quantizer->received);
	free(quantizer);
}

static bool allocate(struct quantizer *quantizer)
{
	const size_t all = (size_t)(quantizer->share * quantizer->size);
	const bool has_feedback = quantizer->spec->bits < 8;
	quantizer->padded = calloc(all, sizeof(float));
	quantizer->mean = calloc((size_t)quantizer->share, sizeof(float));
	quantizer->residual = has_feedback ? calloc(all, sizeof(float)) : NULL;
	quantizer->mean_residual = has_feedback ? calloc((size_t)quantizer->share, sizeof(float)) : NULL;
	return quantizer->padded && quantizer->mean &&
	       (!has_feedback || (quantizer->residual && quantizer->mean_residual));
}

static collet_status quantize_open(const collet_ddp_hook *hook, const collet_ddp_hook_args *args, void **state)
{
	collet_status status = collet_ddp_hook_check_f32(hook, args);
	if (status != COLLET_OK)
		return status;
	struct quantizer *quantizer = calloc(1, sizeof(*quantizer));
	if (!quantizer)
		return collet_ddp_hook_no_memory(hook, args);
	quantizer->comms[0] = args->comms[0];
	quantizer->comms[1] = args->comms[1];
	quantizer->spec = hook->context;
	quantizer->size = collet_comm_size(args->comms[0]);
	quantizer->rank = collet_comm_rank(args->comms[0]);
	const uint64_t share = (args->bucket.count + quantizer->size - 1) / quantizer->size;
	quantizer->share = (share + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	quantizer->share_bytes =
		quantizer->share * quantizer->spec->bits / 8 + (quantizer->share + BLOCK - 1) / BLOCK * sizeof(float);
	void *sent = NULL, *received = NULL;
	status = allocate(quantizer) ? COLLET_OK : collet_ddp_hook_no_memory(hook, args);
	if (status == COLLET_OK)
		status = collet_mem_alloc(quantizer->comms[0], &sent, quantizer->share_bytes * quantizer->size);
	if (status == COLLET_OK)
		status = collet_mem_alloc(quantizer->comms[0], &received, quantizer->share_bytes * quantizer->size);
	quantizer->sent = sent;
	quantizer->received = received;
	if (status == COLLET_OK)
		*state = quantizer;
	else
		quantize_close(quantizer);
	return status;
}

/* ---- Blocks: the scale, then the codes, the first element in the lowest bits ------------------------------------ */

/* Returns the value of the outermost code: the largest magnitude. For 1 or 2 bits it is the mean magnitude: error
 * feedback needs codes that leave less than they get, and few steps up to a rare large value do not. */
static float scale_of(const float *x, uint32_t count, uint32_t bits)
{
	float largest = 0, sum = 0;
	for (uint32_t i = 0; i < count; i++) {
		const float m = fabsf(x[i]);
		sum += m;
		/* This form of the comparison lets a NaN through, so that the receiver sees it. */
		largest = m <= largest ? largest : m;
	}
	return bits <= 2 ? sum / (float)count : largest;
}

static inline int32_t levels_of(uint32_t bits)
{
	return (1 << (bits - 1)) - 1;
}

/* Returns the code, 0 .. 2 levels; rounds up or down at random, so that the mean is right. */
static inline uint32_t code_of(float x, float inverse, int32_t levels, uint32_t draw)
{
	const float scaled = x * inverse + (float)(draw >> 8) * 0x1p-24F;
	const int32_t down = (int32_t)floorf(scaled);
	const int32_t bounded = down < -levels ? -levels : down > levels ? levels : down;
	return (uint32_t)(bounded + levels);
}

static void encode_block(
	unsigned char *to, const float *x, uint32_t count, uint32_t bits, uint32_t rng_key, uint32_t first)
{
	const float scale = scale_of(x, count, bits);
	const uint32_t per_byte = 8 / bits;
	const int32_t levels = levels_of(bits);
	const float inverse = scale > 0 && isfinite(scale) ? (float)levels / scale : 0;
	memcpy(to, &scale, sizeof(scale));
	to += sizeof(scale);
	for (uint32_t i = 0; i < count; i += per_byte) {
		uint32_t byte = 0;
		for (uint32_t e = 0; e < per_byte; e++) {
			const uint32_t code = bits == 1 ? x[i + e] >= 0
							: code_of(x[i + e], inverse, levels,
								  collet_ddp_rng_draw(rng_key, first + i + e));
			byte |= code << (e * bits);
		}
		to[i / per_byte] = (unsigned char)byte;
	}
}

static void decode_block(float *x, const unsigned char *from, uint32_t count, uint32_t bits)
{
	float scale;
	const uint32_t per_byte = 8 / bits, mask = (1u << bits) - 1;
	memcpy(&scale, from, sizeof(scale));
	from += sizeof(scale);
	const int32_t levels = levels_of(bits);
	const float step = bits == 1 ? scale : scale / (float)levels;
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t code = (uint32_t)from[i / per_byte] >> (i % per_byte * bits) & mask;
		x[i] = bits == 1 ? (code ? step : -step) : (float)((int32_t)code - levels) * step;
	}
}

static uint64_t block_bytes(uint32_t count, uint32_t bits)
{
	return sizeof(float) + count * bits / 8;
}

static uint32_t block_length(uint64_t count, uint64_t first)
{
	return count - first < BLOCK ? (uint32_t)(count - first) : BLOCK;
}

/* Encodes a share. left, if not NULL, gets x minus the decoded value. */
static void encode(
	const struct quantizer *quantizer, unsigned char *to, const float *x, float *residual, uint32_t rng_key)
{
	const uint32_t bits = quantizer->spec->bits;
	for (uint64_t first = 0; first < quantizer->share; first += BLOCK) {
		const uint32_t count = block_length(quantizer->share, first);
		float read[BLOCK];
		encode_block(to, x + first, count, bits, rng_key, (uint32_t)first);
		if (residual) {
			decode_block(read, to, count, bits);
			for (uint32_t i = 0; i < count; i++)
				residual[first + i] = x[first + i] - read[i];
		}
		to += block_bytes(count, bits);
	}
}

static void decode(const struct quantizer *quantizer, float *x, const unsigned char *from, uint64_t max_count)
{
	const uint32_t bits = quantizer->spec->bits;
	for (uint64_t first = 0; first < quantizer->share && first < max_count; first += BLOCK) {
		const uint32_t count = block_length(quantizer->share, first);
		float read[BLOCK];
		decode_block(read, from, count, bits);
		memcpy(x + first, read,
			sizeof(float) * (max_count - first < count ? (size_t)(max_count - first) : count));
		from += block_bytes(count, bits);
	}
}

/* ---- Stages --------------------------------------------------------------------------------------------------- */

static collet_status start_alltoall(
	struct quantizer *quantizer, const collet_ddp_hook_args *args, const collet_how *how)
{
	const float *gradients = args->bucket.gradients;
	for (uint64_t i = 0; i < args->bucket.count; i++)
		quantizer->padded[i] = quantizer->residual ? gradients[i] + quantizer->residual[i] : gradients[i];
	for (uint32_t r = 0; r < quantizer->size; r++) {
		const uint64_t at = r * quantizer->share;
		const uint32_t rng_key = collet_ddp_rng_key(
			quantizer->spec->seed, args->step, args->index, 2 + quantizer->rank * quantizer->size + r);
		encode(quantizer, quantizer->sent + r * quantizer->share_bytes, quantizer->padded + at,
			quantizer->residual ? quantizer->residual + at : NULL, rng_key);
	}
	return collet_alltoall(
		quantizer->comms[0], quantizer->sent, quantizer->received, quantizer->share_bytes, COLLET_U8, how);
}

/* Averages this rank's share, in rank order, and starts the all-gather of it. */
static collet_status start_allgather(
	struct quantizer *quantizer, const collet_ddp_hook_args *args, const collet_how *how)
{
	const float part = 1 / (float)quantizer->size;
	float *mean = quantizer->mean;
	for (uint32_t r = 0; r < quantizer->size; r++) {
		float *one = quantizer->padded; /* not needed any more */
		decode(quantizer, one, quantizer->received + r * quantizer->share_bytes, quantizer->share);
		for (uint64_t i = 0; i < quantizer->share; i++)
			mean[i] = r == 0 ? one[i] : mean[i] + one[i];
	}
	for (uint64_t i = 0; i < quantizer->share; i++)
		mean[i] = mean[i] * part + (quantizer->mean_residual ? quantizer->mean_residual[i] : 0);
	const uint32_t rng_key = collet_ddp_rng_key(quantizer->spec->seed, args->step, args->index, 1);
	encode(quantizer, quantizer->sent, mean, quantizer->mean_residual, rng_key + quantizer->rank);
	return collet_allgather(
		quantizer->comms[1], quantizer->sent, quantizer->received, quantizer->share_bytes, COLLET_U8, how);
}

static collet_status quantize_start(
	void *state, const collet_ddp_hook_args *args, uint32_t stage, collet_request **request)
{
	struct quantizer *quantizer = state;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = request;
	return stage == 0 ? start_alltoall(quantizer, args, &how) : start_allgather(quantizer, args, &how);
}

static collet_status quantize_finish(void *state, const collet_ddp_hook_args *args)
{
	const struct quantizer *quantizer = state;
	for (uint32_t r = 0; r < quantizer->size && r * quantizer->share < args->bucket.count; r++)
		decode(quantizer, (float *)args->bucket.gradients + r * quantizer->share,
			quantizer->received + r * quantizer->share_bytes, args->bucket.count - r * quantizer->share);
	collet_ddp_zero_gaps(args);
	return COLLET_OK;
}

/* Saves the residuals of all shares, then that of this rank's mean. */
static uint64_t quantize_saved_bytes(const void *state, const collet_ddp_hook_args *args)
{
	const struct quantizer *quantizer = state;
	return quantizer->residual ? quantizer->share * (quantizer->size + 1) * sizeof(float) : 0;
}

static void quantize_save(const void *state, const collet_ddp_hook_args *args, void *saved)
{
	const struct quantizer *quantizer = state;
	const uint64_t all = quantizer->share * quantizer->size;
	if (!quantizer->residual)
		return;
	memcpy(saved, quantizer->residual, all * sizeof(float));
	memcpy((float *)saved + all, quantizer->mean_residual, quantizer->share * sizeof(float));
}

static void quantize_load(void *state, const collet_ddp_hook_args *args, const void *saved)
{
	const struct quantizer *quantizer = state;
	const uint64_t all = quantizer->share * quantizer->size;
	if (!quantizer->residual)
		return;
	memcpy(quantizer->residual, saved, all * sizeof(float));
	memcpy(quantizer->mean_residual, (const float *)saved + all, quantizer->share * sizeof(float));
}

const collet_ddp_hook collet_ddp_hook_quantize = {
	.stages = 2, .open = quantize_open, .start = quantize_start, .finish = quantize_finish, .close = quantize_close,
	.saved_bytes = quantize_saved_bytes, .save = quantize_save, .load = quantize_load };
