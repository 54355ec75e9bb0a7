/* The choice table: every program's formula evaluated at sizes a factor of two apart, the cheapest taken, and runs of
 * the same answer folded into rows. */
#include "collectives/choice.h"

#include <string.h>

#include "core/status.h"

/* ---- What may be tuned ---------------------------------------------------------------------------------------- */

/* Between ranks of one process: memcpy. */
static const struct collet_cost_model model_self = {
	.alpha_s = 0.05e-6, .overhead_s = 0.02e-6, .beta_s = 1 / 10e9, .gamma_s = 1 / 20e9};
static const struct collet_cost_model model_shm = {
	.alpha_s = 0.25e-6, .overhead_s = 0.05e-6, .beta_s = 1 / 8e9, .gamma_s = 1 / 20e9};
/* Over loopback, or a fast network: system calls dear, bytes copied in and out of the kernel. */
static const struct collet_cost_model model_tcp = {
	.alpha_s = 5e-6, .overhead_s = 1.5e-6, .beta_s = 1 / 3e9, .gamma_s = 1 / 20e9};
/* With more ranks than cores a message often waits for its reader's turn. */
static const double oversubscribed_alpha = 8;

/* Pieces that are considered; a sliced program's working set is a few of them for each peer. */
static const uint32_t piece_min_bytes = 16 << 10, piece_max_bytes = 256 << 10;
/* A dearer piece size is taken if it saves messages and costs hardly more. */
static const double piece_slack = 1.02;
/* A program later in the list must save so much: formulas are no truer than that. */
static const double program_gain = 0.99;
/* A channel more for each so many bytes that a rank sends at once. */
static const uint64_t channel_bytes = 512 << 10;

enum {
	SIZES = 34,          /* 1 byte to 8 GiB */
	ELEMENT_BYTES = 4,   /* what tables are computed for: f32 */
	RANKS_LOOKED_AT = 64 /* when asking how much scratch ranks need */
};

struct collet_cost_model collet_cost_model_builtin(const char *transport, bool oversubscribed)
{
	struct collet_cost_model model = model_tcp;
	if (strcmp(transport, "self") == 0)
		model = model_self;
	else if (strcmp(transport, "shm") == 0)
		model = model_shm;
	if (oversubscribed)
		model.alpha_s *= oversubscribed_alpha;
	return model;
}

/* ---- The table ------------------------------------------------------------------------------------------------ */

enum table_kind { COMMUTATIVE, ORDERED, LISTED };

static bool counts_blocks(enum collet_collective collective)
{
	return collective == COLLET_ALLGATHER || collective == COLLET_REDUCE_SCATTER || collective == COLLET_SCATTER ||
	       collective == COLLET_ALLTOALL;
}

uint64_t collet_shape_bytes(enum collet_collective collective, const struct collet_shape *shape, size_t element_bytes)
{
	if (collective == COLLET_BARRIER)
		return 0;
	if (shape->result.kind == COLLET_CUT_LISTED) {
		uint64_t count = 0;
		/* Only here does every rank know all counts. */
		if (collective == COLLET_ALLGATHER)
			for (uint32_t i = 0; i < shape->size; i++)
				count += shape->result.counts[i];
		return count * element_bytes;
	}
	return shape->count * element_bytes * (counts_blocks(collective) ? shape->size : 1);
}

/* A message of so many bytes, as collet_shape_bytes() counts them, rounded up. */
static struct collet_shape shape_for(enum collet_collective collective, enum table_kind kind, uint64_t bytes,
	const struct collet_choice_inputs *inputs)
{
	const uint64_t unit = (uint64_t)ELEMENT_BYTES * (counts_blocks(collective) ? inputs->size : 1);
	struct collet_shape shape = collet_shape_of(collective, 0, inputs->size, 0, bytes / unit + (bytes % unit != 0));
	if (kind != ORDERED && inputs->host_first) { /* positions are ranks where operations do not commute */
		shape.hosts = inputs->hosts;
		shape.host_first = inputs->host_first;
		shape.order = inputs->order;
	}
	return shape;
}

/* Ranks' needs follow a pattern that a few dozen of them show. */
uint64_t collet_program_most_scratch(const struct collet_program *program, struct collet_shape shape)
{
	uint64_t most = 0;
	const uint32_t looked_at = shape.size < RANKS_LOOKED_AT ? shape.size : RANKS_LOOKED_AT;
	for (uint32_t i = 0; program->scratch && i < looked_at; i++) {
		shape.rank = (uint32_t)((uint64_t)shape.size * i / looked_at);
		const uint64_t elements = program->scratch(&shape);
		most = elements > most ? elements : most;
	}
	return most;
}

static bool is_candidate(const struct collet_program *program, enum table_kind kind, const struct collet_shape *shape)
{
	return (kind != ORDERED || program->ordered) && (kind != LISTED || program->listed) &&
	       collet_program_fits(program, shape);
}

/* The cheapest piece size for this program; the largest of those that cost hardly more. */
static double best_piece(const struct collet_program *program, const struct collet_shape *shape,
	const struct collet_cost_model *model, uint32_t *piece_bytes)
{
	double least = program->cost(shape, ELEMENT_BYTES, piece_max_bytes, model);
	for (uint32_t piece = piece_min_bytes; piece < piece_max_bytes; piece *= 2) {
		const double cost = program->cost(shape, ELEMENT_BYTES, piece, model);
		least = cost < least ? cost : least;
	}
	uint32_t piece = piece_max_bytes;
	while (piece > piece_min_bytes && program->cost(shape, ELEMENT_BYTES, piece, model) > least * piece_slack)
		piece /= 2;
	*piece_bytes = piece;
	return least;
}

static struct collet_choice_row best_row(enum collet_collective collective, enum table_kind kind, uint64_t bytes,
	const struct collet_choice_inputs *inputs, const struct collet_cost_model *model)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	const struct collet_shape shape = shape_for(collective, kind, bytes, inputs);
	struct collet_choice_row row = {.max_bytes = bytes, .channels = 1, .piece_bytes = piece_max_bytes};
	double least = 0;
	bool found = false, found_in_bounds = false;
	for (size_t i = 0; i < count; i++) {
		if (!is_candidate(programs[i], kind, &shape))
			continue;
		/* One that needs too much scratch is better than none. */
		const bool in_bounds = collet_program_most_scratch(programs[i], shape) <= inputs->scratch_bytes / ELEMENT_BYTES;
		uint32_t piece_bytes;
		const double cost = best_piece(programs[i], &shape, model, &piece_bytes);
		if (found &&
			(found_in_bounds > in_bounds || (found_in_bounds == in_bounds && cost >= least * program_gain)))
			continue;
		found = true;
		found_in_bounds = in_bounds;
		least = cost;
		row.program = (uint16_t)i;
		row.piece_bytes = piece_bytes;
	}
	const uint64_t channels = bytes / shape.size / channel_bytes;
	const uint64_t most = inputs->max_channels > 0 ? inputs->max_channels : 1;
	row.channels = (uint16_t)(channels < 1 ? 1 : channels < most ? channels : most);
	return row;
}

static bool same_answer(const struct collet_choice_row *a, const struct collet_choice_row *b)
{
	return a->program == b->program && a->channels == b->channels && a->piece_bytes == b->piece_bytes;
}

/* Folds row i into the next. */
static void drop_row(struct collet_choice_row *rows, uint32_t *count, uint32_t i)
{
	memmove(&rows[i], &rows[i + 1], (*count - i - 1) * sizeof *rows);
	(*count)--;
}

/* Too many rows: first those go whose neighbour differs only in how it is cut. */
static void drop_until_they_fit(struct collet_choice_row *rows, uint32_t *count)
{
	while (*count > COLLET_CHOICE_ROWS) {
		uint32_t i = 0;
		while (i + 1 < *count && rows[i].program != rows[i + 1].program)
			i++;
		drop_row(rows, count, i + 1 < *count ? i : 0);
	}
}

static uint32_t fill_rows(struct collet_choice_row out[COLLET_CHOICE_ROWS], enum collet_collective collective,
	enum table_kind kind, const struct collet_choice_inputs *inputs, const struct collet_cost_model *model)
{
	struct collet_choice_row rows[SIZES];
	uint32_t count = 0;
	for (uint32_t i = 0; i < SIZES; i++) {
		const struct collet_choice_row row = best_row(collective, kind, (uint64_t)1 << i, inputs, model);
		if (count > 0 && same_answer(&rows[count - 1], &row))
			rows[count - 1] = row;
		else
			rows[count++] = row;
	}
	drop_until_they_fit(rows, &count);
	rows[count - 1].max_bytes = UINT64_MAX;
	memcpy(out, rows, count * sizeof *rows);
	return count;
}

/* Ranks that share cores share what these move and combine too. */
static struct collet_cost_model crowded(struct collet_cost_model model, const struct collet_choice_inputs *inputs)
{
	const uint32_t hosts = inputs->hosts > 0 ? inputs->hosts : 1;
	const double local_ranks = (double)inputs->size / hosts;
	if (inputs->cores_per_host > 0 && local_ranks > inputs->cores_per_host) {
		const double share = local_ranks / inputs->cores_per_host;
		model.overhead_s *= share;
		model.beta_s *= share;
		model.gamma_s *= share;
	}
	return model;
}

void collet_choice_table_fill(struct collet_choice_table *table, const struct collet_choice_inputs *inputs)
{
	const struct collet_cost_model local = crowded(inputs->local, inputs), remote = crowded(inputs->remote, inputs);
	struct collet_cost_model model = inputs->hosts > 1 ? remote : local;
	model.local = inputs->hosts > 1 ? &local : NULL;
	memset(table, 0, sizeof *table);
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		collet_programs(c, &count);
		if (count == 0)
			continue;
		table->commutative[c].rows = fill_rows(table->commutative[c].row, c, COMMUTATIVE, inputs, &model);
		table->ordered[c].rows = fill_rows(table->ordered[c].row, c, ORDERED, inputs, &model);
		table->listed[c].rows = fill_rows(table->listed[c].row, c, LISTED, inputs, &model);
	}
}

/* ---- A call's choice ------------------------------------------------------------------------------------------ */

/* For a shape that the table was not made for: the first program that can. */
static const struct collet_program *any_that_fits(
	enum collet_collective collective, enum table_kind kind, const struct collet_shape *shape)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	for (size_t i = 0; i < count; i++)
		if (is_candidate(programs[i], kind, shape))
			return programs[i];
	return NULL;
}

struct collet_decision collet_choose(const struct collet_choice_table *table, enum collet_collective collective,
	bool commutative, const struct collet_shape *shape, size_t element_bytes)
{
	const bool listed = shape->result.kind == COLLET_CUT_LISTED;
	const struct collet_choice_row *row = listed        ? table->listed[collective].row
					      : commutative ? table->commutative[collective].row
							    : table->ordered[collective].row;
	const uint64_t bytes = collet_shape_bytes(collective, shape, element_bytes);
	while (bytes > row->max_bytes) /* the last row's is UINT64_MAX */
		row++;
	size_t count;
	const struct collet_program *program = collet_programs(collective, &count)[row->program];
	if (program->fits && !program->fits(shape))
		program = any_that_fits(collective, listed ? LISTED : commutative ? COMMUTATIVE : ORDERED, shape);
	return (struct collet_decision){.program = program, .channels = row->channels, .piece_bytes = row->piece_bytes};
}
