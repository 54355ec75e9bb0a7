/* PowerSGD: a gradient matrix M travels as P (M Q, averaged and made orthonormal) and Q (M transposed P, averaged); it
 * becomes P Q transposed, and Q starts the next step. Vectors, and matrices that would not get smaller, go along with
 * the Ps as they are. */
#include <math.h>
#include <stdlib.h>

#include "ddp/hooks.h"

enum { LANES = 8 };

struct matrix {
	uint64_t first;          /* element of the bucket */
	uint64_t rows, columns;
	uint32_t rank;           /* 0: travels as it is, rows * columns elements */
	uint64_t p, q;           /* where in the messages: rank rows of `rows`, rank rows of `columns` */
};

struct power {
	collet_comm *comms[2];
	const struct collet_ddp_words *words;
	uint32_t matrix_count;
	struct matrix *matrices;
	float *whole;            /* gradients with what was left; after a step what is left */
	float *ps, *qs;          /* the messages */
	uint64_t ps_count, qs_count;
	bool warm;
};

static void power_close(void *state)
{
	struct power *power = state;
	collet_mem_free(power->comms[0], power->ps);
	collet_mem_free(power->comms[0], power->qs);
	free(power->matrices);
	free(power->whole);
	free(power);
}

static void lay_out(struct power *power, const collet_ddp_bucket *bucket)
{
	for (uint32_t i = 0; i < bucket->slice_count; i++) {
		const collet_ddp_slice *slice = &bucket->slices[i];
		struct matrix *matrix = &power->matrices[i];
		*matrix = (struct matrix){ .first = slice->first, .rows = 1, .columns = slice->count,
			.p = power->ps_count, .q = power->qs_count };
		if (slice->dimensions > 1 && slice->count > 0) {
			matrix->rows = slice->shape[0];
			matrix->columns = slice->count / slice->shape[0];
		}
		const uint64_t smaller = matrix->rows < matrix->columns ? matrix->rows : matrix->columns;
		const uint64_t rank = power->words->rank < smaller ? power->words->rank : smaller;
		if (rank * (matrix->rows + matrix->columns) < slice->count)
			matrix->rank = (uint32_t)rank;
		power->ps_count += matrix->rank ? matrix->rank * matrix->rows : slice->count;
		power->qs_count += matrix->rank * matrix->columns;
	}
}

static collet_status power_open(const collet_ddp_hook *hook, const collet_ddp_task *task, void **state)
{
	collet_status status = collet_ddp_needs_f32(hook, task);
	if (status != COLLET_OK)
		return status;
	struct power *power = calloc(1, sizeof(*power));
	if (!power)
		return collet_ddp_hook_no_memory(hook, task);
	power->comms[0] = task->comms[0];
	power->comms[1] = task->comms[1];
	power->words = hook->context;
	power->matrix_count = task->bucket.slice_count;
	power->matrices = calloc(power->matrix_count, sizeof(*power->matrices));
	power->whole = calloc((size_t)task->bucket.count, sizeof(*power->whole));
	void *ps = NULL, *qs = NULL;
	if (!power->matrices || !power->whole)
		status = collet_ddp_hook_no_memory(hook, task);
	else
		lay_out(power, &task->bucket);
	if (status == COLLET_OK)
		status = collet_mem_alloc(power->comms[0], &ps, (size_t)(power->ps_count + 1) * sizeof(float));
	if (status == COLLET_OK)
		status = collet_mem_alloc(power->comms[0], &qs, (size_t)(power->qs_count + 1) * sizeof(float));
	power->ps = ps;
	power->qs = qs;
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

/* Gram-Schmidt over `rank` vectors, each against those before it, twice, for the first time leaves rounding errors in
 * their direction. One that lies within those before but for rounding becomes zero: it has nothing to tell. */
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

/* Directions to start from, the same on every rank; again where one has been lost to a gradient of zero. */
static void draw_directions(struct power *power, const collet_ddp_task *task)
{
	for (uint32_t m = 0; m < power->matrix_count; m++) {
		const struct matrix *matrix = &power->matrices[m];
		for (uint32_t k = 0; k < matrix->rank; k++) {
			float *q = power->qs + matrix->q + k * matrix->columns;
			if (power->warm && dot(q, q, matrix->columns) > 1e-30F)
				continue;
			const uint32_t stream =
				collet_ddp_stream(power->words->seed, task->step, task->index, 3 + m * 1024 + k);
			for (uint64_t i = 0; i < matrix->columns; i++)
				q[i] = (float)(int32_t)collet_ddp_draw(stream, (uint32_t)i) * 0x1p-31F;
		}
	}
	power->warm = true;
}

static collet_status send_ps(struct power *power, const collet_ddp_task *task, const collet_how *how)
{
	add_multiple(power->whole, 1, task->bucket.gradients, task->bucket.count);
	draw_directions(power, task);
	for (uint32_t m = 0; m < power->matrix_count; m++) {
		const struct matrix *matrix = &power->matrices[m];
		const float *whole = power->whole + matrix->first;
		float *p = power->ps + matrix->p;
		if (!matrix->rank)
			memcpy(p, whole, matrix->rows * matrix->columns * sizeof(*p));
		for (uint64_t row = 0; row < matrix->rows; row++)
			for (uint32_t k = 0; k < matrix->rank; k++)
				p[k * matrix->rows + row] = dot(whole + row * matrix->columns,
					power->qs + matrix->q + k * matrix->columns, matrix->columns);
	}
	return collet_allreduce(
		power->comms[0], power->ps, power->ps, power->ps_count, COLLET_F32, COLLET_AVERAGE, how);
}

static collet_status send_qs(struct power *power, const collet_how *how)
{
	memset(power->qs, 0, power->qs_count * sizeof(*power->qs));
	for (uint32_t m = 0; m < power->matrix_count; m++) {
		const struct matrix *matrix = &power->matrices[m];
		float *p = power->ps + matrix->p;
		orthonormalise(p, matrix->rank, matrix->rows);
		for (uint64_t row = 0; row < matrix->rows; row++)
			for (uint32_t k = 0; k < matrix->rank; k++)
				add_multiple(power->qs + matrix->q + k * matrix->columns, p[k * matrix->rows + row],
					power->whole + matrix->first + row * matrix->columns, matrix->columns);
	}
	return power->qs_count == 0 ? COLLET_OK
				    : collet_allreduce(power->comms[1], power->qs, power->qs, power->qs_count,
					      COLLET_F32, COLLET_AVERAGE, how);
}

static collet_status power_start(void *state, const collet_ddp_task *task, uint32_t stage, collet_request **request)
{
	const collet_how how = collet_ddp_how(task, request);
	return stage == 0 ? send_ps(state, task, &how) : send_qs(state, &how);
}

static collet_status power_finish(void *state, const collet_ddp_task *task)
{
	struct power *power = state;
	float *gradients = task->bucket.gradients;
	memset(gradients, 0, task->bucket.count * sizeof(*gradients));
	for (uint32_t m = 0; m < power->matrix_count; m++) {
		const struct matrix *matrix = &power->matrices[m];
		const float *p = power->ps + matrix->p;
		float *to = gradients + matrix->first;
		if (!matrix->rank)
			memcpy(to, p, matrix->rows * matrix->columns * sizeof(*p));
		for (uint64_t row = 0; row < matrix->rows; row++)
			for (uint32_t k = 0; k < matrix->rank; k++)
				add_multiple(to + row * matrix->columns, p[k * matrix->rows + row],
					power->qs + matrix->q + k * matrix->columns, matrix->columns);
		/* What travelled whole leaves nothing. */
		float *whole = power->whole + matrix->first;
		for (uint64_t i = 0; i < matrix->rows * matrix->columns; i++)
			whole[i] = matrix->rank ? whole[i] - to[i] : 0;
	}
	return COLLET_OK;
}

/* What was left, and the directions to start from; a fresh state has none, which is told by their being zero. */
static uint64_t power_saved_bytes(const void *state, const collet_ddp_task *task)
{
	const struct power *power = state;
	return (task->bucket.count + power->qs_count) * sizeof(float);
}

static void power_save(const void *state, const collet_ddp_task *task, void *saved)
{
	const struct power *power = state;
	float *directions = (float *)saved + task->bucket.count;
	memcpy(saved, power->whole, task->bucket.count * sizeof(float));
	if (power->warm)
		memcpy(directions, power->qs, power->qs_count * sizeof(float));
	else
		memset(directions, 0, power->qs_count * sizeof(float));
}

/* Directions of zero are drawn anew, warm or not. */
static void power_load(void *state, const collet_ddp_task *task, const void *saved)
{
	struct power *power = state;
	memcpy(power->whole, saved, task->bucket.count * sizeof(float));
	memcpy(power->qs, (const float *)saved + task->bucket.count, power->qs_count * sizeof(float));
	power->warm = true;
}

const collet_ddp_hook collet_ddp_power = {
	.stages = 2, .open = power_open, .start = power_start, .finish = power_finish, .close = power_close,
	.saved_bytes = power_saved_bytes, .save = power_save, .load = power_load };
