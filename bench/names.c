/* The tables of aliases, and the search in them. */
#include "names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <collet/tools.h>

#include "closest_name.h"

struct alias {
	const char *alias;
	int meaning;
};

static const struct alias collective_aliases[] = {
	{ "bcast", BENCH_BROADCAST },
	{ "all2all", BENCH_ALLTOALL },
};

static const struct alias dtype_aliases[] = {
	{ "float", COLLET_F32 }, { "fp32", COLLET_F32 }, { "float32", COLLET_F32 }, { "single", COLLET_F32 },
	{ "double", COLLET_F64 }, { "fp64", COLLET_F64 }, { "float64", COLLET_F64 },
	{ "half", COLLET_F16 }, { "fp16", COLLET_F16 }, { "float16", COLLET_F16 },
	{ "bfloat16", COLLET_BF16 }, { "fp8e4m3", COLLET_F8E4M3 }, { "fp8e5m2", COLLET_F8E5M2 },
	{ "int", COLLET_I32 }, { "int32", COLLET_I32 }, { "int8", COLLET_I8 }, { "char", COLLET_I8 },
	{ "int64", COLLET_I64 }, { "uint", COLLET_U32 }, { "uint32", COLLET_U32 }, { "uint8", COLLET_U8 },
	{ "byte", COLLET_U8 }, { "uint64", COLLET_U64 }, { "int16", COLLET_I16 }, { "short", COLLET_I16 },
	{ "uint16", COLLET_U16 }, { "ushort", COLLET_U16 }, { "boolean", COLLET_BOOL },
};

static const struct alias op_aliases[] = {
	{ "prod", COLLET_PRODUCT }, { "avg", COLLET_AVERAGE }, { "mean", COLLET_AVERAGE },
	{ "band", COLLET_AND }, { "bor", COLLET_OR }, { "bxor", COLLET_XOR },
};

/* True if two words are the same but for case, "-" and "_". */
static bool is_same(const char *a, const char *b)
{
	for (;; a++, b++) {
		a += strspn(a, "-_");
		b += strspn(b, "-_");
		if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return false;
		if (*a == '\0')
			return true;
	}
}

static int find_alias(const struct alias *aliases, size_t count, const char *word, int missing)
{
	for (size_t i = 0; i < count; i++)
		if (is_same(aliases[i].alias, word))
			return aliases[i].meaning;
	return missing;
}

enum bench_collective bench_names_collective(const char *word)
{
	for (int c = 0; c < BENCH_COLLECTIVES; c++)
		if (is_same(bench_collective_name((enum bench_collective)c), word))
			return (enum bench_collective)c;
	return (enum bench_collective)find_alias(collective_aliases,
		sizeof(collective_aliases) / sizeof(collective_aliases[0]), word, BENCH_COLLECTIVES);
}

collet_dtype bench_names_dtype(const char *word)
{
	for (int d = 0; d < COLLET_DTYPE_COUNT; d++)
		if (is_same(collet_dtype_name((collet_dtype)d), word))
			return (collet_dtype)d;
	return (collet_dtype)find_alias(
		dtype_aliases, sizeof(dtype_aliases) / sizeof(dtype_aliases[0]), word, COLLET_DTYPE_COUNT);
}

collet_op bench_names_op(const char *word)
{
	for (int o = 0; o < COLLET_OP_COUNT; o++)
		if (is_same(collet_op_name((collet_op)o), word))
			return (collet_op)o;
	return (collet_op)find_alias(op_aliases, sizeof(op_aliases) / sizeof(op_aliases[0]), word, COLLET_OP_COUNT);
}

void bench_names_add(struct bench_names *names, const char *name)
{
	if (names->count < BENCH_NAMES_MAX)
		names->name[names->count++] = name;
}

static void add_aliases(struct bench_names *names, const struct alias *aliases, size_t count)
{
	for (size_t i = 0; i < count && names->alias_count < BENCH_NAMES_MAX; i++)
		names->alias[names->alias_count++] = aliases[i].alias;
}

void bench_names_add_collectives(struct bench_names *names)
{
	for (int c = 0; c < BENCH_COLLECTIVES; c++)
		bench_names_add(names, bench_collective_name((enum bench_collective)c));
	add_aliases(names, collective_aliases, sizeof(collective_aliases) / sizeof(collective_aliases[0]));
}

void bench_names_add_dtypes(struct bench_names *names)
{
	for (int d = 0; d < COLLET_DTYPE_COUNT; d++)
		bench_names_add(names, collet_dtype_name((collet_dtype)d));
	add_aliases(names, dtype_aliases, sizeof(dtype_aliases) / sizeof(dtype_aliases[0]));
}

void bench_names_add_ops(struct bench_names *names)
{
	for (int o = 0; o < COLLET_OP_COUNT; o++)
		if (o != COLLET_USER)   /* not measured */
			bench_names_add(names, collet_op_name((collet_op)o));
	add_aliases(names, op_aliases, sizeof(op_aliases) / sizeof(op_aliases[0]));
}

static bool has(const struct bench_names *names, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (strcmp(names->name[i], name) == 0)
			return true;
	return false;
}

void bench_names_add_algorithms(struct bench_names *names, uint32_t collectives)
{
	collet_algorithm_info rows[COLLET_TUNING_ALGORITHMS];
	size_t count;
	if (collet_algorithm_list(NULL, rows, COLLET_TUNING_ALGORITHMS, &count) != COLLET_OK)
		return;
	for (size_t i = 0; i < count && i < COLLET_TUNING_ALGORITHMS; i++)
		if ((collectives >> bench_collective_find(rows[i].collective) & 1) != 0 && !has(names, rows[i].name))
			bench_names_add(names, rows[i].name);
}

const char *bench_names_hint(const struct bench_names *names, const char *word, char text[BENCH_NAMES_TEXT])
{
	const char *closest = collet_closest_name(word, names->name, names->count);
	if (closest == NULL)
		closest = collet_closest_name(word, names->alias, names->alias_count);
	if (closest != NULL) {
		snprintf(text, BENCH_NAMES_TEXT, "did you mean %s?", closest);
		return text;
	}
	size_t used = (size_t)snprintf(text, BENCH_NAMES_TEXT, "there are");
	for (size_t i = 0; i < names->count && used < BENCH_NAMES_TEXT; i++) {
		const char *before = i == 0 ? " " : i + 1 == names->count ? " and " : ", ";
		used += (size_t)snprintf(text + used, BENCH_NAMES_TEXT - used, "%s%s", before, names->name[i]);
	}
	return text;
}
