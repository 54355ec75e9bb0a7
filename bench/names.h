/* Understands the names that people type for collectives, types, operations and algorithms, and names those that a
 * misspelt word may mean. */
#ifndef BENCH_NAMES_H
#define BENCH_NAMES_H

#include <stddef.h>

#include "work.h"

/* Names and aliases are found without regard to case, "-" and "_": "all-reduce", "AllGather", "bcast"; "float", "fp16";
 * "avg". BENCH_COLLECTIVES, COLLET_DTYPE_COUNT, COLLET_OP_COUNT: it is none. */
enum bench_collective bench_names_collective(const char *word);
collet_dtype bench_names_dtype(const char *word);
collet_op bench_names_op(const char *word);

enum { BENCH_NAMES_MAX = 64, BENCH_NAMES_TEXT = 212 };

/* A list of names. Strings are borrowed. */
struct bench_names {
	const char *name[BENCH_NAMES_MAX];
	size_t count;
	const char *alias[BENCH_NAMES_MAX];   /* may have been meant, too */
	size_t alias_count;
};

/* Appends all names of a kind, and their aliases. Algorithms: of those collectives whose bits are set, each name
 * once. */
void bench_names_add(struct bench_names *names, const char *name);
void bench_names_add_collectives(struct bench_names *names);
void bench_names_add_dtypes(struct bench_names *names);
void bench_names_add_ops(struct bench_names *names);
void bench_names_add_algorithms(struct bench_names *names, uint32_t collectives);

/* Writes "did you mean ring?", or "there are ring, tree and direct" if no name or alias is close. Returns text. */
const char *bench_names_hint(const struct bench_names *names, const char *word, char text[BENCH_NAMES_TEXT]);

#endif
