/* Expression trees: what an element's value was computed from, that is, whose contributions, combined how. Equal trees
 * have one number, so ranks' results are compared by their numbers. */
#ifndef COLLET_TESTS_EXPRESSION_H
#define COLLET_TESTS_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0: unknown, as memory that was never written. */
typedef uint32_t expression;

enum { EXPRESSION_RANKS = 64 };

/* A summary of an expression. */
struct expression_summary {
	uint64_t ranks;   /* ranks that contribute, one bit each */
	uint32_t element; /* index of each rank's element */
	uint16_t first, last;
	bool is_sorted; /* operands are in rank order */
	bool finished; /* is a final result */
};

struct expression_store;

struct expression_store *expression_store_create(void);
void expression_store_destroy(struct expression_store *store);
/* Removes all expressions. */
void expression_store_clear(struct expression_store *store);

/* Returns the leaf for a rank's own element. */
expression expression_leaf(struct expression_store *store, uint32_t rank, uint32_t element);

enum expression_defect {
	EXPRESSION_FINE,
	EXPRESSION_TWICE,           /* a contribution is in two operands */
	EXPRESSION_ELEMENTS_DIFFER, /* operands have different elements */
	EXPRESSION_FINISHED_BEFORE  /* an operand is a final result already */
};

/* Combines operands in this order, rounding once. If an operand is unknown, so is the result. */
expression expression_combine(
	struct expression_store *store, const expression *operands, uint32_t count, enum expression_defect *defect);
/* Marks a value as the final result. */
expression expression_finish(struct expression_store *store, expression operand, enum expression_defect *defect);

struct expression_summary expression_look(const struct expression_store *store, expression e);
/* Prints "((0 1) 2)!" into text, shortened if necessary. */
void expression_print(const struct expression_store *store, expression e, char *text, size_t bytes);

#endif
