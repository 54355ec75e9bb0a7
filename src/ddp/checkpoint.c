/* Saves and loads the state of a collet_ddp for checkpoints: a record of fixed size, the layout, then the hook's state
 * of each bucket. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "ddp/agree.h"
#include "ddp/internal.h"

static const uint64_t checkpoint_magic = UINT64_C(0x31306464702d7463);

struct checkpoint_header {
	uint64_t magic, bytes;
	uint64_t rank, size;        /* of this communicator */
	uint64_t step, is_layout_final;
	uint64_t parameter_count;
	uint64_t hook;              /* a hash of its name; 0: none */
};

/* The saved state of a parameter, by its position in the layout. */
struct checkpoint_entry {
	uint32_t parameter;
	uint8_t is_never_used, used; /* of the parameter whose number is this position */
	uint8_t reserved[2];
};

/* Continues an FNV-1a hash. */
static uint64_t hash_update(uint64_t hash, const void *bytes, size_t count)
{
	for (const unsigned char *at = bytes, *end = at + count; at < end; at++)
		hash = (hash ^ *at) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t hash_of(const collet_ddp_hook *hook)
{
	const char *name = hook && hook->name ? hook->name : "";
	return hook ? hash_update(UINT64_C(0xcbf29ce484222325), name, strlen(name)) : 0;
}

static uint64_t layout_bytes(const collet_ddp *ddp)
{
	return sizeof(struct checkpoint_header) + ddp->parameter_count * sizeof(struct checkpoint_entry);
}

/* Returns the size of the hook's state of a bucket; 0 if it is not open, as before the layout is final. */
static uint64_t bucket_bytes(const collet_ddp *ddp, const struct bucket *bucket)
{
	return bucket->is_open && ddp->hook->saved_bytes ? ddp->hook->saved_bytes(bucket->state, &bucket->hook_args)
							 : 0;
}

/* Opens all buckets, so that the sizes of their states are known, and adds these up. */
static collet_status count_bytes(const collet_ddp *ddp, uint64_t *bytes)
{
	*bytes = layout_bytes(ddp);
	for (uint32_t b = 0; ddp->is_layout_final && b < ddp->bucket_count; b++) {
		struct bucket *bucket = &ddp->buckets[b];
		const collet_status status = bucket->bytes > 0 ? collet_ddp_open_bucket(ddp, bucket) : COLLET_OK;
		if (status != COLLET_OK)
			return status;
		*bytes += bucket_bytes(ddp, bucket);
	}
	return COLLET_OK;
}

collet_status collet_ddp_state_bytes(collet_ddp *ddp, uint64_t *bytes)
{
	if (!ddp || !bytes)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_state_bytes: ddp or bytes is NULL");
	const collet_status status = collet_ddp_check_between_steps(ddp, "collet_ddp_state_bytes");
	uint64_t counted = 0;
	const collet_status result = status == COLLET_OK ? count_bytes(ddp, &counted) : status;
	if (result == COLLET_OK)
		*bytes = counted;
	return result;
}

/* ---- Saving --------------------------------------------------------------------------------------------------- */

static unsigned char *save_layout(const collet_ddp *ddp, unsigned char *to, uint64_t bytes)
{
	const struct checkpoint_header header = { .magic = checkpoint_magic,
		.bytes = bytes,
		.rank = collet_comm_rank(ddp->comm),
		.size = collet_comm_size(ddp->comm),
		.step = ddp->step,
		.is_layout_final = ddp->is_layout_final,
		.parameter_count = ddp->parameter_count,
		.hook = hash_of(ddp->options.hook) };
	memcpy(to, &header, sizeof(header));
	to += sizeof(header);
	for (uint32_t p = 0; p < ddp->parameter_count; p++, to += sizeof(struct checkpoint_entry)) {
		const struct checkpoint_entry entry = { .parameter = ddp->slices[p].parameter,
			.is_never_used = ddp->parameter_states[p].is_never_used, .used = ddp->any_rank_used[p] };
		memcpy(to, &entry, sizeof(entry));
	}
	return to;
}

collet_status collet_ddp_state_save(collet_ddp *ddp, void *state, uint64_t bytes)
{
	uint64_t needed = 0;
	collet_status status = collet_ddp_state_bytes(ddp, &needed);
	if (status != COLLET_OK)
		return status;
	if (!state || bytes != needed)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_state_save: %llu bytes are needed (collet_ddp_state_bytes), and %llu given",
			(unsigned long long)needed, (unsigned long long)(state ? bytes : 0));
	unsigned char *to = save_layout(ddp, state, bytes);
	for (uint32_t b = 0; ddp->is_layout_final && b < ddp->bucket_count; b++) {
		const struct bucket *bucket = &ddp->buckets[b];
		const uint64_t count = bucket_bytes(ddp, bucket);
		if (count > 0)
			ddp->hook->save(bucket->state, &bucket->hook_args, to);
		to += count;
	}
	return COLLET_OK;
}

/* ---- Loading -------------------------------------------------------------------------------------------------- */

/* Checks that every parameter has exactly one position; with keep_order, the present one. */
static bool is_valid_layout(const collet_ddp *ddp, const unsigned char *entries, uint8_t *seen)
{
	memset(seen, 0, ddp->parameter_count);
	for (uint32_t at = 0; at < ddp->parameter_count; at++) {
		struct checkpoint_entry entry;
		memcpy(&entry, entries + at * sizeof(entry), sizeof(entry));
		if (entry.parameter >= ddp->parameter_count || seen[entry.parameter]++ ||
			(ddp->options.keep_order && entry.parameter != ddp->slices[at].parameter))
			return false;
	}
	return true;
}

static collet_status check_header(
	const collet_ddp *ddp, const void *state, uint64_t bytes, struct checkpoint_header *header)
{
	const unsigned long long rank = collet_comm_rank(ddp->comm), size = collet_comm_size(ddp->comm);
	if (!state || bytes < layout_bytes(ddp))
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_state_load: %llu bytes are too few",
			(unsigned long long)(state ? bytes : 0));
	memcpy(header, state, sizeof(*header));
	if (header->magic != checkpoint_magic || header->bytes != bytes)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_state_load: these %llu bytes were not written by collet_ddp_state_save",
			(unsigned long long)bytes);
	if (header->rank != rank || header->size != size)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_state_load: the state was saved by rank %llu of %llu, and is loaded by rank "
			"%llu of %llu",
			(unsigned long long)header->rank, (unsigned long long)header->size, rank, size);
	if (header->parameter_count != ddp->parameter_count)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_state_load: the state has %llu parameters, not %u",
			(unsigned long long)header->parameter_count, ddp->parameter_count);
	if (header->hook != hash_of(ddp->options.hook))
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_state_load: the state was saved with another hook than %s",
			ddp->options.hook ? ddp->options.hook->name : "none");
	uint8_t *seen = malloc((size_t)ddp->parameter_count + 1);
	if (!seen)
		return collet_fail(COLLET_ERR_MEMORY, "collet_ddp_state_load: no memory");
	const bool fits = is_valid_layout(ddp, (const unsigned char *)state + sizeof(*header), seen);
	free(seen);
	return fits ? COLLET_OK
		    : collet_fail(COLLET_ERR_ARGUMENT,
			      "collet_ddp_state_load: the saved layout does not match the parameters");
}

/* Collective. Checks that all ranks' states are of the same step. mine: the result of this rank's own checks. */
static collet_status agree_checkpoint(
	const collet_ddp *ddp, const struct checkpoint_header *header, const unsigned char *entries, collet_status mine)
{
	uint64_t digest = 0, of_rank_0;
	if (mine == COLLET_OK) {
		digest = hash_update(header->step, &header->is_layout_final, sizeof(header->is_layout_final));
		for (uint32_t at = 0; at < ddp->parameter_count; at++)
			digest = hash_update(digest, entries + at * sizeof(struct checkpoint_entry), sizeof(uint32_t));
	}
	const collet_status agreed = collet_ddp_agree_status(ddp->comm, mine);
	if (agreed != COLLET_OK)
		return agreed;
	of_rank_0 = digest;
	collet_status status = collet_broadcast(ddp->comm, &of_rank_0, &of_rank_0, 1, COLLET_U64, 0, NULL);
	if (status != COLLET_OK)
		return status;
	if (digest != of_rank_0)
		status = collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_state_load: the state was saved after %llu steps, at another time than rank 0's",
			(unsigned long long)header->step);
	return collet_ddp_agree_status(ddp->comm, status);
}

/* Adopts the saved layout. Collective if it differs from the present one. */
static collet_status adopt_layout(collet_ddp *ddp, const unsigned char *entries, bool settled)
{
	bool same = true;
	collet_ddp_close_buckets(ddp);
	for (uint32_t at = 0; at < ddp->parameter_count; at++) {
		struct checkpoint_entry entry;
		memcpy(&entry, entries + at * sizeof(entry), sizeof(entry));
		ddp->order[at] = entry.parameter;
		ddp->parameter_states[at].is_never_used = entry.is_never_used;
		ddp->any_rank_used[at] = entry.used;
		same = same && entry.parameter == ddp->slices[at].parameter;
	}
	ddp->order_count = 0;
	const collet_status status = same ? COLLET_OK : collet_ddp_layout_replace(ddp, ddp->order);
	if (status == COLLET_OK && settled) {
		ddp->is_layout_final = true;
		ddp->hook = ddp->options.hook ? ddp->options.hook : ddp->hook;
	}
	return status;
}

static collet_status load_buckets(const collet_ddp *ddp, const unsigned char *from, uint64_t bytes)
{
	uint64_t needed;
	const collet_status status = count_bytes(ddp, &needed);
	if (status != COLLET_OK)
		return status;
	if (bytes != needed)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_state_load: these buckets and this hook need %llu bytes, and %llu are given",
			(unsigned long long)needed, (unsigned long long)bytes);
	for (uint32_t b = 0; ddp->is_layout_final && b < ddp->bucket_count; b++) {
		const struct bucket *bucket = &ddp->buckets[b];
		const uint64_t count = bucket_bytes(ddp, bucket);
		if (count > 0)
			ddp->hook->load(bucket->state, &bucket->hook_args, from);
		from += count;
	}
	return COLLET_OK;
}

collet_status collet_ddp_state_load(collet_ddp *ddp, const void *state, uint64_t bytes)
{
	struct checkpoint_header header;
	collet_status status = collet_ddp_check_between_steps(ddp, "collet_ddp_state_load");
	if (status != COLLET_OK)
		return status;
	const unsigned char *entries = (const unsigned char *)state + sizeof(header);
	status = agree_checkpoint(ddp, &header, entries, check_header(ddp, state, bytes, &header));
	if (status != COLLET_OK)
		return status;
	status = adopt_layout(ddp, entries, header.is_layout_final != 0);
	ddp->step = header.step;
	if (status == COLLET_OK)
		status = load_buckets(ddp, (const unsigned char *)state + layout_bytes(ddp), bytes);
	status = collet_ddp_agree_status(ddp->comm, status);
	ddp->failed = ddp->failed || status != COLLET_OK;
	return status;
}
