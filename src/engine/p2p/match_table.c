#include "engine/p2p/match_table.h"

#include <stdlib.h>

enum { MIN_BUCKETS = 64 };

static struct collet_match_queue **bucket_of(const struct collet_match_table *table, uint32_t rank, uint32_t tag)
{
	const uint64_t hash = ((uint64_t)rank << 32 | tag) * 0x9e3779b97f4a7c15u; /* Fibonacci */
	return &table->buckets[(hash >> 32) & (table->bucket_count - 1)];
}

static struct collet_match_queue *find(struct collet_match_table *table, uint32_t rank, uint32_t tag)
{
	struct collet_match_queue *queue = table->bucket_count ? *bucket_of(table, rank, tag) : NULL;
	for (; queue; queue = queue->next) {
		table->visit_count++;
		if (queue->rank == rank && queue->tag == tag)
			return queue;
	}
	return NULL;
}

static void free_list(struct collet_match_queue *queue)
{
	for (struct collet_match_queue *next; queue; queue = next) {
		next = queue->next;
		free(queue);
	}
}

static void put_into_bucket(struct collet_match_table *table, struct collet_match_queue *queue)
{
	struct collet_match_queue **bucket = bucket_of(table, queue->rank, queue->tag);
	queue->next = *bucket;
	*bucket = queue;
	table->queue_count++;
}

/* Takes the empty queues out of the buckets. Returns the others as a list, and counts them. */
static struct collet_match_queue *take_used(struct collet_match_table *table, size_t *used_count)
{
	struct collet_match_queue *used = NULL;
	*used_count = 0;
	for (size_t i = 0; i < table->bucket_count; i++) {
		for (struct collet_match_queue *queue = table->buckets[i], *next; queue; queue = next) {
			struct collet_match_queue **list = queue->first ? &used : &table->free_queues;
			next = queue->next;
			queue->next = *list;
			*list = queue;
			*used_count += queue->first != NULL;
		}
		table->buckets[i] = NULL;
	}
	table->queue_count = 0;
	return used;
}

/* Makes room for another queue: collects the empty ones, and doubles the buckets if that does not free half of them. So
 * at least half as many queues as there are buckets are added before the next time. */
static collet_status make_room(struct collet_match_table *table)
{
	size_t used_count;
	struct collet_match_queue *used = take_used(table, &used_count);
	struct collet_match_queue **larger = NULL;
	const size_t count = table->bucket_count ? 2 * table->bucket_count : MIN_BUCKETS;
	if (2 * used_count >= table->bucket_count && (larger = calloc(count, sizeof(*larger))) != NULL) {
		free(table->buckets);
		table->buckets = larger;
		table->bucket_count = count;
	}
	for (struct collet_match_queue *next; used; used = next) {
		next = used->next;
		put_into_bucket(table, used);
	}
	return table->queue_count < table->bucket_count ? COLLET_OK :
		collet_fail(COLLET_ERR_MEMORY, "no memory to match %zu messages", table->queue_count + 1);
}

static struct collet_match_queue *add_queue(struct collet_match_table *table, uint32_t rank, uint32_t tag)
{
	if (table->queue_count == table->bucket_count && make_room(table) != COLLET_OK)
		return NULL;
	struct collet_match_queue *queue = table->free_queues;
	if (queue)
		table->free_queues = queue->next;
	else
		queue = malloc(sizeof(*queue));
	if (!queue) {
		collet_fail(COLLET_ERR_MEMORY, "no memory to match a message");
		return NULL;
	}
	*queue = (struct collet_match_queue){ .rank = rank, .tag = tag };
	queue->end = &queue->first;
	put_into_bucket(table, queue);
	return queue;
}

/* Inserts an entry before the one at this place; at the end of the queue if there is none. */
static void insert(struct collet_match_queue *queue, struct collet_match_entry *entry, struct collet_match_entry **at)
{
	entry->queue = queue;
	entry->next = *at;
	entry->previous = at;
	*at = entry;
	if (entry->next)
		entry->next->previous = &entry->next;
	else
		queue->end = &entry->next;
}

static struct collet_match_queue *get_queue(struct collet_match_table *table, uint32_t rank, uint32_t tag)
{
	struct collet_match_queue *queue = find(table, rank, tag);
	return queue ? queue : add_queue(table, rank, tag);
}

collet_status collet_match_add(
	struct collet_match_table *table, struct collet_match_entry *entry, uint32_t rank, uint32_t tag)
{
	struct collet_match_queue *queue = get_queue(table, rank, tag);
	if (!queue)
		return COLLET_ERR_MEMORY;
	entry->order = table->next_order++;
	insert(queue, entry, queue->end);
	return COLLET_OK;
}

collet_status collet_match_put_back(struct collet_match_table *table, struct collet_match_entry *entry, uint32_t rank,
	uint32_t tag, uint64_t order)
{
	struct collet_match_queue *queue = get_queue(table, rank, tag);
	if (!queue)
		return COLLET_ERR_MEMORY;
	struct collet_match_entry **at = &queue->first;
	while (*at && (*at)->order < order)
		at = &(*at)->next;
	entry->order = order;
	insert(queue, entry, at);
	return COLLET_OK;
}

struct collet_match_entry *collet_match_first(struct collet_match_table *table, uint32_t rank, uint32_t tag)
{
	const struct collet_match_queue *queue = find(table, rank, tag);
	return queue ? queue->first : NULL;
}

void collet_match_remove(struct collet_match_entry *entry)
{
	if (!entry->previous)
		return;
	*entry->previous = entry->next;
	if (entry->next)
		entry->next->previous = entry->previous;
	else
		entry->queue->end = entry->previous;
	entry->previous = NULL;
}

void collet_match_deinit(struct collet_match_table *table)
{
	for (size_t i = 0; i < table->bucket_count; i++)
		free_list(table->buckets[i]);
	free_list(table->free_queues);
	free(table->buckets);
	*table = (struct collet_match_table){ 0 };
}
