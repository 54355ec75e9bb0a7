/* Sorts ranks by one key per level, from the widest level to the narrowest. A rank's key is the lowest rank of its
 * group at that level. Sorting ranks by (group at the level above, number at this level) finds the groups. */
#include "topology/order.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

enum { DEPTH = 1 + COLLET_LEVEL_COUNT }; /* hosts, then the levels */

struct entry {
	uint32_t rank;
	uint32_t above;                  /* key of the level above */
	uint64_t number;                 /* at this level */
	uint32_t key[DEPTH];             /* 0 where not found yet */
};

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_group(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	if (a->above != b->above)
		return compare(a->above, b->above);
	return a->number != b->number ? compare(a->number, b->number) : compare(a->rank, b->rank);
}

static int by_keys(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	for (uint32_t d = 0; d < DEPTH; d++)
		if (a->key[d] != b->key[d])
			return compare(a->key[d], b->key[d]);
	return compare(a->rank, b->rank);
}

/* Returns the number of a rank's group at this depth, unique within the group above. A rank without a known locality
 * is a group of its own. */
static uint64_t id_at_depth(const struct collet_rank_locality *rank_locality, uint32_t depth, uint32_t rank)
{
	if (depth == 0)
		return rank_locality->host;
	const uint16_t number = rank_locality->locality.ids[depth - 1];
	return number != COLLET_LOCALITY_ANY ? number : (uint64_t)1 << 32 | rank;
}

static void find_level_keys(
	struct entry *entries, uint32_t size, const struct collet_rank_locality *ranks, uint32_t depth)
{
	for (uint32_t i = 0; i < size; i++) {
		entries[i].above = depth ? entries[i].key[depth - 1] : 0;
		entries[i].number = id_at_depth(&ranks[entries[i].rank], depth, entries[i].rank);
	}
	qsort(entries, size, sizeof(*entries), by_group);
	for (uint32_t i = 0; i < size; i++) {  /* the first rank of a group is its lowest */
		struct entry *e = &entries[i];
		const bool begins = i == 0 || e->above != e[-1].above || e->number != e[-1].number;
		e->key[depth] = begins ? e->rank : e[-1].key[depth];
	}
}

collet_status collet_order_find(const struct collet_rank_locality *ranks, uint32_t size, enum collet_ordering ordering,
	uint32_t *order, uint32_t *host_first, uint32_t *hosts)
{
	struct entry *entries = calloc(size, sizeof(*entries));
	if (!entries)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the order of %u ranks", size);
	for (uint32_t i = 0; i < size; i++)
		entries[i].rank = i;
	for (uint32_t depth = 0; depth < (ordering == COLLET_ORDER_BY_LOCALITY ? DEPTH : 1); depth++)
		find_level_keys(entries, size, ranks, depth);
	qsort(entries, size, sizeof(*entries), by_keys);
	*hosts = 0;
	for (uint32_t i = 0; i < size; i++) {
		order[i] = entries[i].rank;
		if (i == 0 || entries[i].key[0] != entries[i - 1].key[0])
			host_first[(*hosts)++] = i;
	}
	host_first[*hosts] = size;
	free(entries);
	return COLLET_OK;
}

/* Returns the text between two neighbours of one host. */
static const char *separator_between(const struct collet_locality *a, const struct collet_locality *b)
{
	static const struct {
		enum collet_locality_level level;
		const char *mark;
	} separators[] = { { COLLET_LEVEL_PACKAGE, " || " }, { COLLET_LEVEL_OUTER, " | " },
		{ COLLET_LEVEL_INNER, " / " } };
	for (size_t i = 0; i < sizeof(separators) / sizeof(separators[0]); i++)
		if (a->ids[separators[i].level] != b->ids[separators[i].level])
			return separators[i].mark;
	return " ";
}

void collet_order_describe(const struct collet_rank_locality *ranks, const uint32_t *order, uint32_t first,
	uint32_t end, char *text, size_t bytes)
{
	size_t used = 0;
	text[0] = '\0';
	for (uint32_t p = first; p < end;) {
		uint32_t last = p;  /* a run of consecutive ranks of one group is "4-7" */
		while (last + 1 < end && order[last + 1] == order[last] + 1 &&
			strcmp(separator_between(&ranks[order[last]].locality, &ranks[order[last + 1]].locality),
				" ") == 0)
			last++;
		char word[64];
		const char *separator =
			p == first ? "" : separator_between(&ranks[order[p - 1]].locality, &ranks[order[p]].locality);
		snprintf(word, sizeof(word), last > p ? "%s%u-%u" : "%s%u", separator, order[p], order[last]);
		if (used + strlen(word) + sizeof(" ...") > bytes) {
			if (used + sizeof(" ...") <= bytes)
				strcpy(text + used, " ...");
			return;
		}
		used += (size_t)snprintf(text + used, bytes - used, "%s", word);
		p = last + 1;
	}
}
