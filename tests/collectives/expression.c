#include "expression.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
	struct expression_summary summary;
	uint32_t first_operand, operand_count; /* in operands; count 0: a leaf */
	uint32_t hash;
};

struct expression_store {
	struct node *nodes;
	uint32_t count, capacity;
	expression *operands;
	uint32_t operand_count, operand_capacity;
	expression *table;   /* open addressing */
	uint32_t table_size; /* a power of two */
};

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

struct expression_store *expression_store_create(void)
{
	struct expression_store *store = must(calloc(1, sizeof *store));
	store->capacity = store->operand_capacity = 1024;
	store->table_size = 4096;
	store->nodes = must(calloc(store->capacity, sizeof *store->nodes));
	store->operands = must(calloc(store->operand_capacity, sizeof *store->operands));
	store->table = must(calloc(store->table_size, sizeof *store->table));
	store->count = 1;
	return store;
}

void expression_store_destroy(struct expression_store *store)
{
	if (!store)
		return;
	free(store->nodes);
	free(store->operands);
	free(store->table);
	free(store);
}

void expression_store_clear(struct expression_store *store)
{
	if (store->count > 1)
		memset(store->table, 0, store->table_size * sizeof *store->table);
	store->count = 1;
	store->operand_count = 0;
}

static uint32_t mix(uint32_t hash, uint32_t word)
{
	hash = (hash ^ word) * 0x9E3779B1u;
	return hash ^ hash >> 15;
}

static void grow_table(struct expression_store *store)
{
	free(store->table);
	store->table_size *= 4;
	store->table = must(calloc(store->table_size, sizeof *store->table));
	for (expression e = 1; e < store->count; e++) {
		uint32_t slot = store->nodes[e].hash & (store->table_size - 1);
		while (store->table[slot])
			slot = (slot + 1) & (store->table_size - 1);
		store->table[slot] = e;
	}
}

static bool is_same(const struct expression_store *store, const struct node *node, const struct node *wanted,
	const expression *operands)
{
	return node->hash == wanted->hash && node->operand_count == wanted->operand_count &&
	       node->summary.ranks == wanted->summary.ranks && node->summary.element == wanted->summary.element &&
	       node->summary.finished == wanted->summary.finished &&
	       memcmp(&store->operands[node->first_operand], operands, node->operand_count * sizeof *operands) == 0;
}

static expression intern(struct expression_store *store, struct node wanted, const expression *operands)
{
	wanted.hash = mix(mix(mix(7, (uint32_t)wanted.summary.ranks), wanted.summary.element), wanted.summary.finished);
	for (uint32_t i = 0; i < wanted.operand_count; i++)
		wanted.hash = mix(wanted.hash, operands[i]);
	uint32_t slot = wanted.hash & (store->table_size - 1);
	for (; store->table[slot]; slot = (slot + 1) & (store->table_size - 1))
		if (is_same(store, &store->nodes[store->table[slot]], &wanted, operands))
			return store->table[slot];

	if (store->count == store->capacity) {
		store->capacity *= 2;
		store->nodes = must(realloc(store->nodes, store->capacity * sizeof *store->nodes));
	}
	while (store->operand_count + wanted.operand_count > store->operand_capacity) {
		store->operand_capacity *= 2;
		store->operands = must(realloc(store->operands, store->operand_capacity * sizeof *store->operands));
	}
	wanted.first_operand = store->operand_count;
	memcpy(&store->operands[store->operand_count], operands, wanted.operand_count * sizeof *operands);
	store->operand_count += wanted.operand_count;
	const expression e = store->count++;
	store->nodes[e] = wanted;
	store->table[slot] = e;
	if (store->count * 2 > store->table_size)
		grow_table(store);
	return e;
}

expression expression_leaf(struct expression_store *store, uint32_t rank, uint32_t element)
{
	const struct node leaf = { .summary = { .ranks = (uint64_t)1 << rank,
					  .element = element,
					  .first = (uint16_t)rank,
					  .last = (uint16_t)rank,
					  .is_sorted = true } };
	const expression none = 0;
	return intern(store, leaf, &none);
}

expression expression_combine(
	struct expression_store *store, const expression *operands, uint32_t count, enum expression_defect *defect)
{
	*defect = EXPRESSION_FINE;
	struct node node = { .operand_count = count };
	for (uint32_t i = 0; i < count; i++) {
		if (operands[i] == 0)
			return 0;
		const struct expression_summary s = store->nodes[operands[i]].summary;
		if (s.finished)
			*defect = EXPRESSION_FINISHED_BEFORE;
		if (i == 0) {
			node.summary = s;
			continue;
		}
		if (s.ranks & node.summary.ranks)
			*defect = EXPRESSION_TWICE;
		if (s.element != node.summary.element)
			*defect = EXPRESSION_ELEMENTS_DIFFER;
		node.summary.is_sorted = node.summary.is_sorted && s.is_sorted && node.summary.last < s.first;
		node.summary.ranks |= s.ranks;
		node.summary.last = s.last;
	}
	return intern(store, node, operands);
}

expression expression_finish(struct expression_store *store, expression operand, enum expression_defect *defect)
{
	*defect = EXPRESSION_FINE;
	if (operand == 0)
		return 0;
	struct node node = { .summary = store->nodes[operand].summary, .operand_count = 1 };
	if (node.summary.finished)
		*defect = EXPRESSION_FINISHED_BEFORE;
	node.summary.finished = true;
	return intern(store, node, &operand);
}

struct expression_summary expression_look(const struct expression_store *store, expression e)
{
	return store->nodes[e].summary;
}

static size_t print(const struct expression_store *store, expression e, char *text, size_t used, size_t bytes)
{
	const struct node *node = &store->nodes[e];
	char word[32];
	if (used + sizeof word > bytes)
		return used;
	if (e == 0 || node->operand_count == 0)
		snprintf(word, sizeof word, e == 0 ? "?" : "%u", node->summary.first);
	else
		snprintf(word, sizeof word, node->summary.finished ? "" : "(");
	used += (size_t)snprintf(text + used, bytes - used, "%s", word);
	for (uint32_t i = 0; i < node->operand_count; i++) {
		if (i > 0 && used + 2 < bytes)
			text[used++] = ' ';
		used = print(store, store->operands[node->first_operand + i], text, used, bytes);
	}
	if (node->operand_count > 0 && used + 2 < bytes)
		text[used++] = node->summary.finished ? '!' : ')';
	text[used] = '\0';
	return used;
}

void expression_print(const struct expression_store *store, expression e, char *text, size_t bytes)
{
	text[0] = '\0';
	print(store, e, text, 0, bytes);
}
