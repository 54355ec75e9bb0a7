/* What an element's value is made of, as a tree: whose contributions, combined how. Equal trees are one number, so
 * ranks' results are compared by comparing numbers. */
#ifndef COLLET_TESTS_EXPRESSION_H
#define COLLET_TESTS_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0: nobody knows, as memory that nobody has written. */
typedef uint32_t expression;

enum { EXPRESSION_RANKS = 64 };

/* What is known of one without looking inside. */
struct expression_summary {
	uint64_t ranks;   /* whose contributions, a bit each */
	uint32_t element; /* which of each rank's elements */
	uint16_t first, last;
	bool sorted;   /* left to right in rank order */
	bool finished; /* had its last touch */
};

struct expression_store;

struct expression_store *expression_store_create(void);
void expression_store_destroy(struct expression_store *store);
/* Forgets all. */
void expression_store_clear(struct expression_store *store);

/* A rank's own element. */
expression expression_leaf(struct expression_store *store, uint32_t rank, uint32_t element);

enum expression_defect {
	EXPRESSION_FINE,
	EXPRESSION_TWICE,           /* some contribution is in two operands */
	EXPRESSION_ELEMENTS_DIFFER, /* operands are of different elements */
	EXPRESSION_FINISHED_BEFORE  /* an operand had its last touch already */
};

/* In this order, rounded once. An operand that nobody knows makes one that nobody knows. */
expression expression_combine(
	struct expression_store *store, const expression *operands, uint32_t count, enum expression_defect *defect);
/* The last touch. */
expression expression_finish(struct expression_store *store, expression operand, enum expression_defect *defect);

struct expression_summary expression_look(const struct expression_store *store, expression e);
/* "((0 1) 2)!" into text, shortened if need be. */
void expression_print(const struct expression_store *store, expression e, char *text, size_t bytes);

#endif
