/* PowerSGD: a gradient matrix M is exchanged as P (M Q, averaged and made orthonormal) and Q (M transposed P,
 * averaged). It becomes P Q transposed, and Q starts the next step. Vectors, and matrices that would not get smaller,
 * are sent whole with the Ps. */
#include <math.h>
#include <stdlib.h>

#include "ddp/hooks.h"

enum { LANES = 8 };

struct matrix {
	uint64_t first;          /* first element in the bucket */
	uint64_t rows, columns;
	uint32_t rank;           /* 0: sent whole, rows * columns elements */
	uint64_t p, q;           /* offsets in the messages: rank rows of `rows`, rank rows of `columns` */
};

struct power {
	collet_comm *comms[2];
	const struct collet_ddp_hook_spec *spec;
	uint32_t matrix_count;
	struct matrix *matrices;
	float *residual;         /* during a step: gradients plus residuals; after it: residuals */
	float *p_factors, *q_factors; /* the messages */
	uint64_t p_count, q_count;
	bool is_warm;
};

static void power_close(void *state)
{
	struct power *power = state;
	collet_mem_free(power->comms[0], power->p_factors);
	collet_mem_free(power->comms[0], power->q_factors);
	free(power->matrices);
	free(power->residual);
	free(power);
}

static void init_matrices(struct power *power, const collet_ddp_bucket *bucket)
{
	for (uint32_t i = 0; i < bucket->slice_count; i++) {
		const collet_ddp_slice *slice = &bucket->slices[i];
		struct matrix *matrix = &power->matrices[i];
		*matrix = (struct matrix){ .first = slice->first, .rows = 1, .columns = slice->count,
			.p = power->p_count, .q = power->q_count };
		if (slice->dimensions > 1 && slice->count > 0) {
			matrix->rows = slice->shape[0];
			matrix->columns = slice->count / slice->shape[0];
		}
		const uint64_t smaller = matrix->rows < matrix->columns ? matrix->rows : matrix->columns;
		const uint64_t rank = power->spec->rank < smaller ? power->spec->rank : smaller;
		if (rank * (matrix->rows + matrix->columns) < slice->count)
			matrix->rank = (uint32_t)rank;
		power->p_count += matrix->rank ? matrix->rank * matrix->rows : slice->count;
		power->q_count += matrix->rank * matrix->columns;
	}
}

static collet_status power_open(const collet_ddp_hook *hook, const collet_ddp_hook_args *args, void **state)
{
	collet_status status = collet_ddp_hook_check_f32(hook, args);
	if (status != COLLET_OK)
		return status;
	struct power *power = calloc(1, sizeof(*power));
	if (!power)
		return collet_ddp_hook_no_memory(hook, args);
	power->comms[0] = args->comms[0];
	power->comms[1] = args->comms[1];
	power->spec = hook->context;
	power->matrix_count = args->bucket.slice_count;
	power->matrices = calloc(power->matrix_count, sizeof(*power->matrices));
	power->residual = calloc((size_t)args->bucket.count, sizeof(*power->residual));
	void *ps = NULL, *qs = NULL;
	if (!power->matrices || !power->residual)
		status = collet_ddp_hook_no_memory(hook, args);
	else
		init_matrices(power, &args->bucket);
	if (status == COLLET_OK)
		status = collet_mem_alloc(power->comms[0], &ps, (size_t)(power->p_count + 1) * sizeof(float));
	if (status == COLLET_OK)
		status = collet_mem_alloc(power->comms[0], &qs, (size_t)(power->q_count + 1) * sizeof(float));
	power->p_factors = ps;
	power->q_factors = qs;
	if (status == COLLET_OK)
		*state = power;
	else
		power_close(power);
	return status;
}

/* ---- A little linear algebra, in an order that compilers may not change --------------------------------------------
 */

static float dot(const float *a, const float *b, uint64_t count)
{
	float sums[LANES] = { 0 };
	uint64_t i = 0;
	for (; i + LANES <= count; i += LANES)
		for (uint32_t lane = 0; lane < LANES; lane++)
			sums[lane] += a[i + lane] * b[i + lane];
	for (uint32_t lane = 0; i < count; i++, lane++)
		sums[lane] += a[i] * b[i];
	return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* to += factor * x */
static void add_multiple(float *restrict to, float factor, const float *restrict x, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		to[i] += factor * x[i];
}

/* Orthonormalises `rank` vectors by Gram-Schmidt, each against those before it. It does so twice, since the first pass
 * leaves rounding errors in their direction. A vector that lies within those before it, but for rounding, becomes zero:
 * it has no information. */
static void orthonormalise(float *vectors, uint32_t rank, uint64_t count)
{
	for (uint32_t k = 0; k < rank; k++) {
		float *vector = vectors + k * count;
		const float before = sqrtf(dot(vector, vector, count));
		for (uint32_t i = 0; i < 2 * k; i++) {
			const float *other = vectors + i % k * count;
			add_multiple(vector, -dot(vector, other, count), other, count);
		}
		const float length = sqrtf(dot(vector, vector, count));
		const float inverse = length > 1e-30F && length > 1e-5F * before ? 1 / length : 0;
		for (uint64_t i = 0; i < count; i++)
			vector[i] *= inverse;
	}
}

/* ---- Stages --------------------------------------------------------------------------------------------------- */

/* Draws start directions, the same on every rank. Draws again where a gradient of zero has lost one. */
static void draw_directions(struct power *power, const collet_ddp_hook_args *args)
{
	for (uint32_t m = 0; m < power->matrix_count; m++) {
		const struct matrix *matrix = &power->matrices[m];
		for (uint32_t k = 0; k < matrix->rank; k++) {
			float *q = power->q_factors + matrix->q + k * matrix->columns;
			if (power->is_warm && dot(q, q, matrix->columns) > 1e-30F)
				continue;
			const uint32_t rng_key =
				collet_ddp_rng_key(power->spec->seed, args->step, args->index, 3 + m * 1024 + k);
			for (uint64_t i = 0; i < matrix->columns; i++)
				q[i] = (float)(int32_t)collet_ddp_rng_draw(rng_key, (uint32_t)i) * 0x1p-31F;
		}
	}
	power->is_warm = true;
}

static collet_status start_p(struct power *power, const collet_ddp_hook_args *args, const collet_how *how)
{
	add_multiple(power->residual, 1, args->bucket.gradients, args->bucket.count);
	draw_directions(power, args);
	for (uint32_t m = 0; m < power->matrix_count; m++) {
		const struct matrix *matrix = &power->matrices[m];
		const float *residual = power->residual + matrix->first;
		float *p = power->p_factors + matrix->p;
		if (!matrix->rank)
			memcpy(p, residual, matrix->rows * matrix->columns * sizeof(*p));
		for (uint64_t row = 0; row < matrix->rows; row++)
			for (uint32_t k = 0; k < matrix->rank; k++)
				p[k * matrix->rows + row] = dot(residual + row * matrix->columns,
					power->q_factors + matrix->q + k * matrix->columns, matrix->columns);
	}
	return collet_allreduce(
		power->comms[0], power->p_factors, power->p_factors, power->p_count, COLLET_F32, COLLET_AVERAGE, how);
}

static collet_status start_q(struct power *power, const collet_how *how)
{
	memset(power->q_factors, 0, power->q_count * sizeof(*power->q_factors));
	for (uint32_t m = 0; m < power->matrix_count; m++) {
		const struct matrix *matrix = &power->matrices[m];
		float *p = power->p_factors + matrix->p;
		orthonormalise(p, matrix->rank, matrix->rows);
		for (uint64_t row = 0; row < matrix->rows; row++)
			for (uint32_t k = 0; k < matrix->rank; k++)
				add_multiple(power->q_factors + matrix->q + k * matrix->columns,
					p[k * matrix->rows + row],
					power->residual + matrix->first + row * matrix->columns, matrix->columns);
	}
	return power->q_count == 0 ? COLLET_OK
				   : collet_allreduce(power->comms[1], power->q_factors, power->q_factors,
					     power->q_count, COLLET_F32, COLLET_AVERAGE, how);
}

static collet_status power_start(
	void *state, const collet_ddp_hook_args *args, uint32_t stage, collet_request **request)
{
	const collet_how how = collet_ddp_hook_how(args, request);
	return stage == 0 ? start_p(state, args, &how) : start_q(state, &how);
}

static collet_status power_finish(void *state, const collet_ddp_hook_args *args)
{
	struct power *power = state;
	float *gradients = args->bucket.gradients;
	memset(gradients, 0, args->bucket.count * sizeof(*gradients));
	for (uint32_t m = 0; m < power->matrix_count; m++) {
		const struct matrix *matrix = &power->matrices[m];
		const float *p = power->p_factors + matrix->p;
		float *to = gradients + matrix->first;
		if (!matrix->rank)
			memcpy(to, p, matrix->rows * matrix->columns * sizeof(*p));
		for (uint64_t row = 0; row < matrix->rows; row++)
			for (uint32_t k = 0; k < matrix->rank; k++)
				add_multiple(to + row * matrix->columns, p[k * matrix->rows + row],
					power->q_factors + matrix->q + k * matrix->columns, matrix->columns);
		/* Parameters sent whole leave no residual. */
		float *residual = power->residual + matrix->first;
		for (uint64_t i = 0; i < matrix->rows * matrix->columns; i++)
			residual[i] = matrix->rank ? residual[i] - to[i] : 0;
	}
	return COLLET_OK;
}

/* Saves the residuals and the start directions. A fresh state has no directions; they are all zero. */
static uint64_t power_saved_bytes(const void *state, const collet_ddp_hook_args *args)
{
	const struct power *power = state;
	return (args->bucket.count + power->q_count) * sizeof(float);
}

static void power_save(const void *state, const collet_ddp_hook_args *args, void *saved)
{
	const struct power *power = state;
	float *directions = (float *)saved + args->bucket.count;
	memcpy(saved, power->residual, args->bucket.count * sizeof(float));
	if (power->is_warm)
		memcpy(directions, power->q_factors, power->q_count * sizeof(float));
	else
		memset(directions, 0, power->q_count * sizeof(float));
}

/* Directions of zero are drawn again in any case. */
static void power_load(void *state, const collet_ddp_hook_args *args, const void *saved)
{
	struct power *power = state;
	memcpy(power->residual, saved, args->bucket.count * sizeof(float));
	memcpy(power->q_factors, (const float *)saved + args->bucket.count, power->q_count * sizeof(float));
	power->is_warm = true;
}

const collet_ddp_hook collet_ddp_hook_powersgd = {
	.stages = 2, .open = power_open, .start = power_start, .finish = power_finish, .close = power_close,
	.saved_bytes = power_saved_bytes, .save = power_save, .load = power_load };
