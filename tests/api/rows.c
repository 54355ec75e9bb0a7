#include "rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <collet/tools.h>

#include "values.h"

const struct call_info call_infos[CALLS] = {
	[CALL_ALLREDUCE] = { "allreduce", "allreduce", true, false, false, IN_PLACE_SAME },
	[CALL_REDUCE] = { "reduce", "reduce", true, true, false, IN_PLACE_SAME },
	[CALL_BROADCAST] = { "broadcast", "broadcast", false, true, false, IN_PLACE_SAME },
	[CALL_BARRIER] = { "barrier", "barrier", false, false, false, IN_PLACE_SAME },
	[CALL_ALLGATHER] = { "allgather", "allgather", false, false, false, IN_PLACE_SEND_IN_RECV },
	[CALL_REDUCE_SCATTER] = { "reduce_scatter", "reduce_scatter", true, false, false, IN_PLACE_RECV_IN_SEND },
	[CALL_GATHER] = { "gather", "gather", false, true, false, IN_PLACE_SEND_IN_RECV },
	[CALL_SCATTER] = { "scatter", "scatter", false, true, false, IN_PLACE_RECV_IN_SEND },
	[CALL_ALLTOALL] = { "alltoall", "alltoall", false, false, false, IN_PLACE_SAME },
	[CALL_ALLGATHERV] = { "allgatherv", "allgather", false, false, true, IN_PLACE_SEND_IN_RECV },
	[CALL_GATHERV] = { "gatherv", "gather", false, true, true, IN_PLACE_SEND_IN_RECV },
	[CALL_SCATTERV] = { "scatterv", "scatter", false, true, true, IN_PLACE_RECV_IN_SEND },
	[CALL_REDUCE_SCATTERV] = { "reduce_scatterv", "reduce_scatter", true, false, true, IN_PLACE_RECV_IN_SEND },
	[CALL_ALLTOALLV] = { "alltoallv", "alltoall", false, false, true, IN_PLACE_SAME },
};

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014) over two words. */
uint64_t rows_mix(uint64_t a, uint64_t b)
{
	uint64_t hash = a * 0x9e3779b97f4a7c15 + b + 0x9e3779b97f4a7c15;
	hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
	hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
	return hash ^ (hash >> 31);
}

void row_name(const struct row *row, const char *transport, uint32_t size, char name[ROW_NAME_BYTES])
{
	const struct call_info *info = &call_infos[row->call];
	snprintf(name, ROW_NAME_BYTES, "%s_%s/%s/%s/%s%s/n%u/%llu", info->name,
		row->algorithm ? row->algorithm : "chosen", transport, collet_dtype_name(row->dtype),
		info->is_reduction ? collet_op_name(row->op) : "-",
		row->in_order                                 ? "_in_order"
		: info->is_reduction && row->values == VALUES_WILD ? "_wild"
							      : "",
		size, (unsigned long long)row->count);
}

/* ---- Values ---- */

/* User-defined operations. Addition modulo a prime commutes. The composition of affine maps x -> a x + b, two u32 in
 * a u64, does not. */
enum { MODULUS = 65521 };

static void add_modulo(
	void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	uint32_t *into = result;
	const uint32_t *a = left, *b = right;
	for (size_t i = 0; i < count; i++)
		into[i] = (a[i] + b[i]) % MODULUS;
}

static uint64_t composed(uint64_t first, uint64_t then)
{
	const uint32_t a = (uint32_t)first, b = (uint32_t)(first >> 32), c = (uint32_t)then, d = (uint32_t)(then >> 32);
	return (uint64_t)(uint32_t)(c * a) | (uint64_t)(uint32_t)(c * b + d) << 32;
}

static void compose(void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	uint64_t *into = result;
	const uint64_t *a = left, *b = right;
	for (size_t i = 0; i < count; i++)
		into[i] = composed(a[i], b[i]);
}

static const collet_user_op user_add = { .combine = add_modulo, .name = "add modulo 65521", .commutative = true };
static const collet_user_op user_compose = { .combine = compose, .name = "compose", .commutative = false };

const collet_user_op *row_user_op(const struct row *row)
{
	return row->op != COLLET_USER ? NULL : row->in_order ? &user_compose : &user_add;
}

double row_scale(const struct row *row, uint32_t rank)
{
	static const double exact[] = { 1, -1, 2 };
	if (row->op != COLLET_PREMUL_SUM)
		return 0;
	return row->values == VALUES_WILD ? 0.1 * (rank + 1) : exact[rank % 3];
}

/* Returns a value so small that no partial result rounds, not even in 8 bits. 8 ranks use the whole range of the
 * narrowest types. */
static double exact_number(const struct row *row, uint32_t rank, uint64_t hash)
{
	static const double factors[] = { 1, -1, 2 };
	const size_t bytes = collet_dtype_bytes(row->dtype);
	const bool late = rank >= 8;
	switch (row->op) {
	case COLLET_PRODUCT: return factors[hash % (late && bytes < 4 ? 2 : 3)];
	case COLLET_MIN:
	case COLLET_MAX: return (double)(hash % 17) - 8;
	default: return bytes >= 4 ? (double)(hash % 2001) - 1000 : late && bytes == 1 ? 0 : (double)(hash % 2);
	}
}

/* Returns values of which half add without one hiding the other; the rest is anything, often special values. */
static uint64_t wild_bits(collet_dtype dtype, uint64_t hash)
{
	const size_t bytes = collet_dtype_bytes(dtype);
	const uint64_t mask = bytes == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * bytes) - 1, sign = mask - mask / 2;
	const uint64_t bits = rows_mix(hash, 1);
	switch (hash % 16) {
	case 0: return bits & mask;
	case 1: return bits & mask / 2 >> 5;                         /* tiny: denormals */
	case 2: return bits & sign;                                  /* +0, -0 */
	case 3: return (bits & sign) | (hash % 128 < 64 ? mask / 2 - (mask / 2 >> (bytes == 8 ? 11 : 8)) : mask / 4);
	default: {
		const double number = ((double)(bits >> 11) / 4503599627370496.0 - 1) * (bytes == 1 ? 8 : 1000);
		return value_encode(dtype, number);
	}
	}
}

static uint64_t element(const struct row *row, uint32_t rank, uint64_t index)
{
	const uint64_t hash = rows_mix(rows_mix(row->seed, rank), index);
	if (row->op == COLLET_USER && !row->in_order)
		return hash % MODULUS;
	/* Few ranks have a false, and few elements only trues. */
	if (call_infos[row->call].is_reduction && row->dtype == COLLET_BOOL)
		return hash & (rows_mix(row->seed, index) % 3 ? 0x81 : 0xff);
	if (!call_infos[row->call].is_reduction || !value_is_float(row->dtype))
		return hash;
	return row->values == VALUES_WILD ? wild_bits(row->dtype, hash)
					  : value_encode(row->dtype, exact_number(row, rank, hash));
}

static uint64_t widen(collet_dtype dtype, uint64_t bits)
{
	const unsigned unused = 64 - 8 * (unsigned)collet_dtype_bytes(dtype);
	if (!unused)
		return bits;
	return value_is_signed(dtype) ? (uint64_t)((int64_t)(bits << unused) >> unused) : bits << unused >> unused;
}

static bool less(collet_dtype dtype, uint64_t a, uint64_t b)
{
	return value_is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t combine_truth(collet_op op, uint64_t a, uint64_t b)
{
	switch (op) {
	case COLLET_PRODUCT:
	case COLLET_MIN:
	case COLLET_AND: return a & b;
	case COLLET_XOR: return a ^ b;
	default: return a | b;
	}
}

static uint64_t combine_integers(const struct row *row, uint64_t a, uint64_t b)
{
	if (row->dtype == COLLET_BOOL)
		return combine_truth(row->op, a, b);
	switch (row->op) {
	case COLLET_PRODUCT: return a * b;
	case COLLET_MIN: return less(row->dtype, b, a) ? b : a;
	case COLLET_MAX: return less(row->dtype, a, b) ? b : a;
	case COLLET_AND: return a & b;
	case COLLET_OR: return a | b;
	case COLLET_XOR: return a ^ b;
	case COLLET_USER: return row->in_order ? composed(a, b) : (a + b) % MODULUS;
	default: return a + b;
	}
}

/* All bytes but 0 are true, which is 1. */
static uint64_t operand(const struct row *row, uint32_t rank, uint64_t index)
{
	const uint64_t value = widen(row->dtype, element(row, rank, index));
	return row->dtype == COLLET_BOOL ? value != 0 : value;
}

static uint64_t reduced_integer(const struct row *row, uint32_t size, uint64_t index)
{
	uint64_t total = operand(row, 0, index);
	for (uint32_t r = 1; r < size; r++)
		total = widen(row->dtype, combine_integers(row, total, operand(row, r, index)));
	if (row->op != COLLET_AVERAGE)
		return total;
	return value_is_signed(row->dtype) ? (uint64_t)((int64_t)total / (int64_t)size) : total / size;
}

static uint64_t reduced_float(const struct row *row, uint32_t size, uint64_t index)
{
	double total = 0;
	for (uint32_t r = 0; r < size; r++) {
		double number = value_decode(row->dtype, element(row, r, index));
		if (row->op == COLLET_PREMUL_SUM)
			number *= row_scale(row, r);
		total = r == 0                          ? number :
			row->op == COLLET_PRODUCT       ? total * number :
			row->op == COLLET_MIN           ? (number < total ? number : total) :
			row->op == COLLET_MAX           ? (number > total ? number : total) :
							  total + number;
	}
	if (row->op == COLLET_AVERAGE)
		total = row->dtype == COLLET_F64 ? total * (1.0 / size) : (double)((float)total * (1.0F / (float)size));
	return value_encode(row->dtype, total);
}

void row_fill(const struct row *row, uint32_t size, const struct side *side, void *buffer)
{
	const size_t bytes = collet_dtype_bytes(row->dtype);
	for (uint32_t b = 0; b < side->blocks; b++) {
		const struct block *block = &side->block[b];
		char *into = (char *)buffer + block->at * bytes;
		for (uint64_t i = 0; i < block->count; i++, into += bytes) {
			const uint64_t index = block->first + i;
			value_store(row->dtype,
				!block->reduced                      ? element(row, block->source, index) :
					value_is_float(row->dtype) ? reduced_float(row, size, index) :
								     reduced_integer(row, size, index),
				into);
		}
	}
}

/* ---- Sides ---- */

static void add_block(struct side *side, struct block block)
{
	side->used = true;
	if (block.count && block.at + block.count > side->elements)
		side->elements = block.at + block.count;
	side->block[side->blocks++] = block;
}

/* Returns how many elements rank `from` has for rank `to`, sometimes none. Symmetric, so that an alltoallv may be in
 * place. */
static uint64_t vector_count(const struct row *row, uint32_t from, uint32_t to)
{
	const uint64_t low = from < to ? from : to, high = from < to ? to : from;
	switch (rows_mix(row->seed ^ low, high) % 4) {
	case 0: return 0;
	case 1: return row->count / 2 + 1;
	default: return row->count;
	}
}

/* Lays out blocks of ranks in descending order, with gaps that must stay unchanged. */
static void fill_vector(struct side *side, const uint64_t *counts, uint32_t size)
{
	uint64_t at = 1;
	side->used = true;
	for (uint32_t r = size; r-- > 0;) {
		side->counts[r] = counts[r];
		side->displacements[r] = at;
		at += counts[r] + r % 3;
	}
}

static void vector_sides(const struct row *row, uint32_t size, uint32_t rank, struct side *send, struct side *recv)
{
	const uint64_t stride = row->count + 1;
	uint64_t counts[ROW_RANKS_MOST] = { 0 };
	for (uint32_t r = 0; r < size; r++)
		counts[r] = row->call == CALL_ALLTOALLV ? vector_count(row, rank, r) : vector_count(row, r, r);
	const bool root = rank == row->root;
	switch (row->call) {
	case CALL_ALLGATHERV:
	case CALL_GATHERV:
		add_block(send, (struct block){ 0, counts[rank], rank, 0, false });
		if (row->call == CALL_GATHERV && !root)
			return;
		fill_vector(recv, counts, size);
		for (uint32_t r = 0; r < size; r++)
			add_block(recv, (struct block){ recv->displacements[r], counts[r], r, 0, false });
		return;
	case CALL_SCATTERV:
		add_block(recv, (struct block){ 0, counts[rank], row->root, rank * stride, false });
		if (!root)
			return;
		fill_vector(send, counts, size);
		for (uint32_t r = 0; r < size; r++)
			add_block(send, (struct block){ send->displacements[r], counts[r], rank, r * stride, false });
		return;
	case CALL_REDUCE_SCATTERV:
		add_block(recv, (struct block){ 0, counts[rank], 0, rank * stride, true });
		fill_vector(send, counts, size);
		for (uint32_t r = 0; r < size; r++)
			add_block(send, (struct block){ send->displacements[r], counts[r], rank, r * stride, false });
		return;
	default:
		fill_vector(send, counts, size);
		fill_vector(recv, counts, size);
		for (uint32_t r = 0; r < size; r++) {
			add_block(send, (struct block){ send->displacements[r], counts[r], rank, r * stride, false });
			add_block(recv, (struct block){ recv->displacements[r], counts[r], r, rank * stride, false });
		}
	}
}

void row_sides(const struct row *row, uint32_t size, uint32_t rank, struct side *send, struct side *recv)
{
	memset(send, 0, sizeof(*send));
	memset(recv, 0, sizeof(*recv));
	const uint64_t count = row->count, all = count * size;
	const bool root = rank == row->root;
	switch (row->call) {
	case CALL_BARRIER: return;
	case CALL_ALLREDUCE:
	case CALL_REDUCE:
		add_block(send, (struct block){ 0, count, rank, 0, false });
		if (row->call == CALL_ALLREDUCE || root)
			add_block(recv, (struct block){ 0, count, 0, 0, true });
		return;
	case CALL_BROADCAST:
		if (root)
			add_block(send, (struct block){ 0, count, rank, 0, false });
		add_block(recv, (struct block){ 0, count, row->root, 0, false });
		return;
	case CALL_ALLGATHER:
	case CALL_GATHER:
		add_block(send, (struct block){ 0, count, rank, 0, false });
		for (uint32_t r = 0; r < size && (row->call == CALL_ALLGATHER || root); r++)
			add_block(recv, (struct block){ r * count, count, r, 0, false });
		return;
	case CALL_REDUCE_SCATTER:
		add_block(send, (struct block){ 0, all, rank, 0, false });
		add_block(recv, (struct block){ 0, count, 0, rank * count, true });
		return;
	case CALL_SCATTER:
		if (root)
			add_block(send, (struct block){ 0, all, rank, 0, false });
		add_block(recv, (struct block){ 0, count, row->root, rank * count, false });
		return;
	case CALL_ALLTOALL:
		add_block(send, (struct block){ 0, all, rank, 0, false });
		for (uint32_t r = 0; r < size; r++)
			add_block(recv, (struct block){ r * count, count, r, rank * count, false });
		return;
	default: vector_sides(row, size, rank, send, recv);
	}
}

/* ---- Which rows ---- */

/* The numbers below count, drawn in random order until none is left, then again: none is left out for long. */
struct shuffle {
	uint32_t count, drawn;
	uint64_t seed;
	uint32_t number[128];
};

static struct shuffle shuffle_of(uint64_t seed, uint32_t count)
{
	struct shuffle shuffle = { .count = count, .drawn = count, .seed = seed };
	for (uint32_t i = 0; i < count; i++)
		shuffle.number[i] = i;
	return shuffle;
}

static uint32_t draw(struct shuffle *shuffle)
{
	if (shuffle->drawn == shuffle->count) {
		for (uint32_t i = shuffle->count; i > 1; i--) {
			shuffle->seed = rows_mix(shuffle->seed, i);
			const uint32_t other = (uint32_t)(shuffle->seed % i), number = shuffle->number[i - 1];
			shuffle->number[i - 1] = shuffle->number[other];
			shuffle->number[other] = number;
		}
		shuffle->drawn = 0;
	}
	return shuffle->number[shuffle->drawn++];
}

struct pair {
	collet_dtype dtype;
	collet_op op;
	bool in_order;
};

static uint32_t list_pairs(struct pair *pairs)
{
	uint32_t count = 0;
	for (int dtype = 0; dtype < COLLET_DTYPE_COUNT; dtype++) {
		for (int op = 0; op < COLLET_USER; op++) {
			const bool is_float = value_is_float((collet_dtype)dtype);
			const bool bitwise = op == COLLET_AND || op == COLLET_OR || op == COLLET_XOR;
			const bool divides = op == COLLET_AVERAGE && dtype == COLLET_BOOL;
			if (is_float ? !bitwise : op != COLLET_PREMUL_SUM && !divides)
				pairs[count++] = (struct pair){ (collet_dtype)dtype, (collet_op)op, false };
		}
	}
	for (uint32_t i = 0; i < 3; i++) {
		pairs[count++] = (struct pair){ COLLET_U64, COLLET_USER, true };
		pairs[count++] = (struct pair){ COLLET_U32, COLLET_USER, false };
	}
	return count;
}

/* Returns a count of elements: near the world's size, or near a size in bytes where the protocol may change. */
static uint64_t count_of(uint32_t number, uint32_t size, collet_dtype dtype, uint64_t salt)
{
	static const uint32_t thresholds[] = {
		1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10};
	const uint64_t element_bytes = collet_dtype_bytes(dtype);
	switch (number) {
	case 0: return 0;
	case 1: return 1;
	case 2: return size - 1;
	case 3: return size;
	case 4: return size + 1;
	case 5:
	case 6: return 1003;
	case 7: return 300000 / element_bytes;
	default: return thresholds[number - 8] / element_bytes + salt % 3 - 1;
	}
}
enum { COUNT_NUMBERS = 16 };

struct row_list {
	uint32_t size;
	uint64_t seed;
	struct pair pairs[128];
	struct shuffle pair, dtype, count;
	struct row *rows;
	size_t count_rows, capacity;
};

static struct row *next_row(struct row_list *list)
{
	if (list->count_rows == list->capacity) {
		list->capacity = list->capacity ? 2 * list->capacity : 256;
		list->rows = realloc(list->rows, list->capacity * sizeof(*list->rows));
		if (!list->rows)
			abort();
	}
	return &list->rows[list->count_rows++];
}

static void add_row(struct row_list *list, enum call call, const char *algorithm, bool ordered)
{
	struct row *row = next_row(list);
	const uint64_t seed = rows_mix(list->seed, list->count_rows);
	*row = (struct row){ .call = call, .algorithm = algorithm, .ordered = ordered, .seed = seed };
	row->op = COLLET_SUM;
	row->dtype = (collet_dtype)draw(&list->dtype);
	if (call_infos[call].is_reduction) {
		const struct pair *pair = &list->pairs[draw(&list->pair)];
		row->dtype = pair->dtype;
		row->op = pair->op;
		row->in_order = pair->in_order;
		if (value_is_float(row->dtype) && seed % 5 < 2)
			row->values = VALUES_WILD;
	}
	row->count = call == CALL_BARRIER ? 0 : count_of(draw(&list->count), list->size, row->dtype, seed >> 8);
	row->root = call_infos[call].has_root ? (uint32_t)(seed >> 16) % list->size : 0;
}

struct row *rows_make(uint64_t seed, uint32_t size, uint32_t per_algorithm, uint64_t long_bytes, size_t *count)
{
	struct row_list list = { .size = size, .seed = rows_mix(seed, size) };
	list.pair = shuffle_of(seed, list_pairs(list.pairs));
	list.dtype = shuffle_of(seed + 1, COLLET_DTYPE_COUNT);
	list.count = shuffle_of(seed + 2, COUNT_NUMBERS);
	for (int c = 0; c < CALLS; c++) {
		const enum call call = (enum call)c;
		collet_algorithm_info infos[32];
		size_t algorithms;
		if (collet_algorithm_list(call_infos[c].collective, infos, 32, &algorithms) != COLLET_OK ||
			algorithms > 32)
			abort();
		for (uint32_t i = 0; i < per_algorithm; i++) {
			add_row(&list, call, NULL, true);
			for (size_t a = 0; a < algorithms; a++)
				add_row(&list, call, infos[a].name, infos[a].rank_ordered);
		}
	}
	/* A long one of each. */
	for (int c = 0; c < CALLS; c++) {
		if (c == CALL_BARRIER)
			continue;
		add_row(&list, (enum call)c, NULL, true);
		struct row *row = &list.rows[list.count_rows - 1];
		row->count = long_bytes / collet_dtype_bytes(row->dtype) / size + 1;
	}
	/* Shuffle the rows, so that different collectives follow, and overlap, each other. */
	struct row *rows = list.rows;
	for (size_t i = list.count_rows; i > 1; i--) {
		const size_t other = rows_mix(seed ^ size, i) % i;
		const struct row row = rows[i - 1];
		rows[i - 1] = rows[other];
		rows[other] = row;
	}
	*count = list.count_rows;
	return rows;
}
