/* Finds what waits for a match, by rank and tag: posted receives, stored messages, and large messages that wait for an
 * answer. The cost does not depend on how many wait.
 *
 * A hash table has a queue for each rank and tag, and a queue keeps the order in which its entries were added. Empty
 * queues stay, since the next message often has the same rank and tag. They are collected when the table is full. */
#ifndef COLLET_ENGINE_P2P_MATCH_TABLE_H
#define COLLET_ENGINE_P2P_MATCH_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* A part of what is added, zeroed at first. */
struct collet_match_entry {
	struct collet_match_entry *next;
	struct collet_match_entry **previous; /* NULL: in no table */
	struct collet_match_queue *queue;
	uint64_t order;              /* the entry's number in its table: earlier ones are lower */
};

struct collet_match_queue {
	struct collet_match_queue *next; /* in its bucket, or among the free ones */
	uint32_t rank, tag;
	struct collet_match_entry *first, **end;
};

/* Zeroed at first. */
struct collet_match_table {
	struct collet_match_queue **buckets, *free_queues;
	size_t bucket_count;         /* a power of two; 0: no buckets yet */
	size_t queue_count;          /* in buckets; not more than there are buckets */
	uint64_t next_order;
	uint64_t visit_count;        /* visits of queues, which tests count */
};

/* Adds an entry behind those with the same rank and tag. COLLET_ERR_MEMORY: it has not been added. */
collet_status collet_match_add(
	struct collet_match_table *table, struct collet_match_entry *entry, uint32_t rank, uint32_t tag);
/* Adds an entry that was in the table before, in the place of this order. COLLET_ERR_MEMORY: it has not been added. */
collet_status collet_match_put_back(struct collet_match_table *table, struct collet_match_entry *entry, uint32_t rank,
	uint32_t tag, uint64_t order);
/* Returns the first entry with this rank and tag; NULL if there is none. */
struct collet_match_entry *collet_match_first(struct collet_match_table *table, uint32_t rank, uint32_t tag);
/* Removes an entry from its table, if it is in one. */
void collet_match_remove(struct collet_match_entry *entry);
/* Frees the table, not the entries. */
void collet_match_deinit(struct collet_match_table *table);

#endif
