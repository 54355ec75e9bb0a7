/* The choice table: every program's formula evaluated at sizes a factor of two apart, the cheapest taken, and runs of
 * the same answer folded into rows. */
#include "selection/choice.h"

#include <math.h>
#include <string.h>

#include "core/status.h"
#include "selection/total_work.h"

/* A dearer piece size is taken if it saves messages and costs hardly more. */
static const double piece_slack = 1.02;
/* Further channels must save so much. */
static const double channel_gain = 0.97;
/* A program later in the list must save so much: formulas are no truer than that, nor are measured factors, of which
 * those of programs that are as fast differ by chance. */
static const double program_gain = 0.99, measured_gain = 0.95;

enum {
	SIZES = COLLET_CHOICE_ROWS, /* 1 byte to 8 GiB */
	ELEMENT_BYTES = 4,          /* what tables are computed for: f32 */
	RANKS_LOOKED_AT = 64        /* when asking how much scratch ranks need */
};

/* ---- The table ------------------------------------------------------------------------------------------------ */

enum table_kind { COMMUTATIVE, ORDERED, LISTED };

static bool counts_blocks(enum collet_collective collective)
{
	return collective == COLLET_ALLGATHER || collective == COLLET_REDUCE_SCATTER || collective == COLLET_GATHER ||
	       collective == COLLET_SCATTER || collective == COLLET_ALLTOALL;
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

/* What a program's cost is made of, for one shape. */
struct pricing {
	struct collet_cost_model model, local;
};

/* What programs do, all ranks together, by their numbers; for a table, where each is asked about many times. */
struct works {
	struct collet_work work[COLLET_TUNING_ALGORITHMS];
	bool known[COLLET_TUNING_ALGORITHMS];
	/* What goes through a host's link, where programs are not told of hosts and where they are. */
	double through_link[2][COLLET_TUNING_ALGORITHMS];
	bool link_known[2][COLLET_TUNING_ALGORITHMS];
};

static uint32_t local_ranks(const struct collet_choice_inputs *inputs)
{
	const uint32_t hosts = inputs->hosts > 0 ? inputs->hosts : 1;
	return (inputs->size + hosts - 1) / hosts;
}

/* Crowding here by that where the link was measured. */
static double in_crowd(const struct collet_choice_inputs *inputs, const collet_link_cost *link)
{
	return collet_tuning_share(local_ranks(inputs), inputs->cores_per_host) /
	       collet_tuning_share(link->ranks, link->cores);
}

/* Is the price what all ranks do together, instead of what the slowest one does? */
static bool is_shared(const struct collet_choice_inputs *inputs)
{
	return inputs->hosts <= 1 && inputs->size <= COLLET_WORK_RANKS &&
	       collet_tuning_share(inputs->size, inputs->cores_per_host) > 1;
}

static void set_prices(struct pricing *pricing, const struct collet_choice_inputs *inputs, uint64_t bytes)
{
	if (is_shared(inputs)) {
		/* How much the ranks of a core do is counted; how long each waits for its turn is not. */
		pricing->model = collet_tuning_model(inputs->local, bytes, 1);
		pricing->model.alpha_s *= in_crowd(inputs, inputs->local);
		return;
	}
	pricing->local = collet_tuning_model(inputs->local, bytes, in_crowd(inputs, inputs->local));
	pricing->model = pricing->local;
	if (inputs->hosts > 1)
		pricing->model = collet_tuning_model(inputs->remote, bytes, in_crowd(inputs, inputs->remote));
	pricing->model.local = inputs->hosts > 1 ? &pricing->local : NULL;
}

/* Factors and ways hold for what they were measured with. But where ranks share cores, how often these change hands
 * outweighs how many ranks there are, and formulas know little of it: of as many cores, the nearest world that was
 * measured says more than none. */
static bool has_factors(const struct collet_choice_inputs *inputs)
{
	const collet_link_cost *link = inputs->local;
	const bool same = inputs->size == link->ranks && fabs(in_crowd(inputs, link) - 1) <= 0.01;
	const bool lent = is_shared(inputs) && link->cores == inputs->cores_per_host && link->ranks > link->cores;
	return link->sizes > 0 && inputs->hosts <= 1 && (same || lent);
}

static double factor_of(const struct collet_choice_inputs *inputs, const struct collet_program *program, uint64_t bytes)
{
	return has_factors(inputs) ? collet_tuning_factor(inputs->local, program, bytes) : 1;
}

static const collet_link_cost *link_between(const struct collet_choice_inputs *inputs)
{
	return inputs->hosts > 1 ? inputs->remote : inputs->local;
}

/* What bytes cost over so many channels; an unmeasured number counts as one. */
static struct collet_cost_model over_channels(
	const struct collet_choice_inputs *inputs, const struct collet_cost_model *one, uint32_t channels)
{
	struct collet_cost_model model = *one;
	double part = 1;
	for (int i = 0; i < COLLET_TUNING_CHANNELS; i++)
		if (channels == (uint32_t)1 << i && link_between(inputs)->channel_parts[i] > 0)
			part = link_between(inputs)->channel_parts[i];
	for (int i = 0; i < COLLET_COST_CLASSES; i++)
		model.beta_s[i] *= part;
	return model;
}

/* The model's time. works: NULL, or what has been counted so far. */
static double price(const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes,
	const struct collet_choice_inputs *inputs, const struct pricing *pricing, struct collet_way way,
	struct works *works)
{
	const struct collet_cost_model model = over_channels(inputs, &pricing->model, way.channels);
	if (!is_shared(inputs))
		return program->cost(shape, element_bytes, way.piece_bytes, &model);
	struct collet_work alone, *work = &alone;
	const uint32_t number = collet_program_number(program);
	const bool kept = works && number < COLLET_TUNING_ALGORITHMS;
	if (kept)
		work = &works->work[number];
	if (!kept || !works->known[number])
		collet_work_count(work, program, shape->size, shape->root);
	if (kept)
		works->known[number] = true;
	return collet_work_cost(work, shape->count, element_bytes, way.piece_bytes, inputs->cores_per_host, &model);
}

/* How long it holds the busiest host's link to the others. Formulas know nothing of that: they are of one rank, and all
 * ranks of a host share its link. 0: there is none, or it is not known who shares it. */
static double link_time(const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes,
	const struct collet_choice_inputs *inputs, struct works *works)
{
	const uint32_t number = collet_program_number(program);
	const bool told = shape->host_first;
	if (inputs->hosts <= 1 || !inputs->host_first || (!told && inputs->order) ||
		shape->size > COLLET_WORK_LINK_RANKS || number >= COLLET_TUNING_ALGORITHMS)
		return 0;
	double *counts = &works->through_link[told][number];
	if (!works->link_known[told][number])
		*counts = collet_work_through_link(program, shape, inputs->host_first[1]);
	works->link_known[told][number] = true;
	return *counts * (double)shape->count * (double)element_bytes * inputs->link_byte_ns * 1e-9;
}

/* Whoever works piece by piece has something on the link all the while; others have it idle while they do the rest. */
static double with_link(const struct collet_program *program, double alone, double link)
{
	return program->sliced ? fmax(alone, link) : alone + link;
}

/* The cheapest piece size for this program by its formula; the largest of those that cost hardly more. */
static double best_piece(const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes,
	const struct collet_choice_inputs *inputs, const struct pricing *pricing, struct works *works,
	struct collet_way *way)
{
	const collet_link_cost *link = link_between(inputs);
	struct collet_way tried = { .piece_bytes = link->most_piece_bytes, .channels = way->channels };
	double least = price(program, shape, element_bytes, inputs, pricing, tried, works);
	*way = tried;
	if (shape->count * element_bytes <= link->least_piece_bytes) /* no span is longer than a piece */
		return least;
	for (tried.piece_bytes /= 2; tried.piece_bytes >= link->least_piece_bytes; tried.piece_bytes /= 2) {
		const double cost = price(program, shape, element_bytes, inputs, pricing, tried, works);
		least = cost < least ? cost : least;
	}
	while (way->piece_bytes / 2 >= link->least_piece_bytes &&
		price(program, shape, element_bytes, inputs, pricing, *way, works) > least * piece_slack)
		way->piece_bytes /= 2;
	return price(program, shape, element_bytes, inputs, pricing, *way, works);
}

/* How this program's messages are to be cut, and its price then: as it was measured to be the fastest, else as the
 * formulas say. */
static double best_way(const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes,
	const struct collet_choice_inputs *inputs, const struct pricing *pricing, struct works *works,
	struct collet_way *way, bool *measured)
{
	const collet_link_cost *link = link_between(inputs);
	if (has_factors(inputs)) {
		*way = collet_tuning_way(
			inputs->local, program, collet_shape_bytes(program->collective, shape, element_bytes));
		*measured = way->piece_bytes > 0;
		if (*measured)
			return price(program, shape, element_bytes, inputs, pricing, *way, works);
	}
	*measured = false;
	*way = (struct collet_way){ .channels = 1 };
	double least = best_piece(program, shape, element_bytes, inputs, pricing, works, way);
	for (int i = 1; program->sliced && i < COLLET_TUNING_CHANNELS; i++) {
		struct collet_way tried = { .channels = (uint32_t)1 << i };
		if (link->channel_parts[i] <= 0)
			continue;
		const double cost = best_piece(program, shape, element_bytes, inputs, pricing, works, &tried);
		/* Each channel has a piece of a rank's share. */
		if (cost >= least * channel_gain ||
			shape->count * element_bytes / shape->size < (uint64_t)tried.channels * tried.piece_bytes)
			continue;
		least = cost;
		*way = tried;
	}
	return least;
}

static struct collet_choice_row best_row(enum collet_collective collective, enum table_kind kind, uint64_t bytes,
	const struct collet_choice_inputs *inputs, struct works *works)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	const struct collet_shape shape = shape_for(collective, kind, bytes, inputs);
	struct collet_choice_row row = { .max_bytes = bytes };
	struct pricing pricing;
	set_prices(&pricing, inputs, bytes);
	const double gain = has_factors(inputs) ? measured_gain : program_gain;
	double least = 0;
	bool found = false, found_in_bounds = false;
	for (size_t i = 0; i < count; i++) {
		if (!is_candidate(programs[i], kind, &shape))
			continue;
		/* One that needs too much scratch is better than none. */
		const bool in_bounds =
			collet_program_most_scratch(programs[i], shape) <= inputs->scratch_bytes / ELEMENT_BYTES;
		struct collet_way way;
		bool measured;
		const double alone =
			best_way(programs[i], &shape, ELEMENT_BYTES, inputs, &pricing, works, &way, &measured) *
			factor_of(inputs, programs[i], bytes);
		const double cost =
			with_link(programs[i], alone, link_time(programs[i], &shape, ELEMENT_BYTES, inputs, works));
		if (found &&
			(found_in_bounds > in_bounds || (found_in_bounds == in_bounds && cost >= least * gain)))
			continue;
		found = true;
		found_in_bounds = in_bounds;
		least = cost;
		row.program = (uint16_t)i;
		row.way = way;
		row.measured = measured;
	}
	return row;
}

static bool same_answer(const struct collet_choice_row *a, const struct collet_choice_row *b)
{
	return a->program == b->program && a->way.channels == b->way.channels &&
	       a->way.piece_bytes == b->way.piece_bytes && a->measured == b->measured;
}

static uint32_t fill_rows(struct collet_choice_row out[COLLET_CHOICE_ROWS], enum collet_collective collective,
	enum table_kind kind, const struct collet_choice_inputs *inputs, struct works *works)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < SIZES; i++) {
		const struct collet_choice_row row = best_row(collective, kind, (uint64_t)1 << i, inputs, works);
		if (count > 0 && same_answer(&out[count - 1], &row))
			out[count - 1] = row;
		else
			out[count++] = row;
	}
	out[count - 1].max_bytes = UINT64_MAX;
	return count;
}

void collet_choice_table_fill(struct collet_choice_table *table, const struct collet_choice_inputs *inputs)
{
	struct works works = {0};
	memset(table, 0, sizeof *table);
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		collet_programs(c, &count);
		if (count == 0)
			continue;
		table->commutative[c].rows = fill_rows(table->commutative[c].row, c, COMMUTATIVE, inputs, &works);
		table->ordered[c].rows = fill_rows(table->ordered[c].row, c, ORDERED, inputs, &works);
		table->listed[c].rows = fill_rows(table->listed[c].row, c, LISTED, inputs, &works);
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
	return (struct collet_decision){
		.program = program, .channels = row->way.channels, .piece_bytes = row->way.piece_bytes};
}

/* A call as all ranks know it, who must come to the same: where counts are listed, each has one of its own, and what is
 * common is equal blocks of as many elements together. */
static struct collet_shape known_to_all(enum collet_collective collective, const struct collet_shape *shape)
{
	struct collet_shape known = *shape;
	if (shape->result.kind == COLLET_CUT_LISTED)
		known.count = (collet_shape_bytes(collective, shape, 1) + shape->size - 1) / shape->size;
	return known;
}

struct collet_decision collet_choose_for(const struct collet_choice_inputs *inputs,
	const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes)
{
	const struct collet_shape known = known_to_all(program->collective, shape);
	const uint64_t bytes = collet_shape_bytes(program->collective, shape, element_bytes);
	struct pricing pricing;
	set_prices(&pricing, inputs, bytes);
	struct works works = {0};
	struct collet_way way;
	bool measured;
	best_way(program, &known, element_bytes, inputs, &pricing, &works, &way, &measured);
	return (struct collet_decision){
		.program = program, .channels = way.channels, .piece_bytes = way.piece_bytes};
}

double collet_choice_cost(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_way way)
{
	const struct collet_shape known = known_to_all(program->collective, shape);
	const uint64_t bytes = collet_shape_bytes(program->collective, shape, element_bytes);
	struct pricing pricing;
	set_prices(&pricing, inputs, bytes);
	struct works works = {0};
	const double alone = price(program, &known, element_bytes, inputs, &pricing, way, NULL) *
			     factor_of(inputs, program, bytes);
	return with_link(program, alone, link_time(program, &known, element_bytes, inputs, &works));
}

double collet_choice_cost_between(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_way way)
{
	const struct collet_shape known = known_to_all(program->collective, shape);
	const uint64_t bytes = collet_shape_bytes(program->collective, shape, element_bytes);
	struct pricing pricing;
	set_prices(&pricing, inputs, bytes);
	/* What is inside hosts costs nothing. */
	pricing.local = (struct collet_cost_model){ 0 };
	struct works works = {0};
	return with_link(program, price(program, &known, element_bytes, inputs, &pricing, way, NULL),
		link_time(program, &known, element_bytes, inputs, &works));
}
