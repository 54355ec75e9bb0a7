/* Lays out gradients in buckets. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "ddp/agree.h"
#include "ddp/internal.h"

enum { GRADIENT_ALIGNMENT = 64 };

/* A new layout, which collet_ddp_layout_create() completes before it replaces the present one. */
struct layout {
	struct bucket *buckets;
	collet_ddp_slice *slices;
	struct parameter_state *slots;
	uint32_t bucket_count;
};

static void close_bucket(struct layout *layout)
{
	struct bucket *bucket = &layout->buckets[layout->bucket_count++];
	bucket->unready_count = bucket->slice_count;
}

/* Adds a parameter to the last bucket or a new one. There are at most as many buckets as parameters. */
static void add_parameter(struct layout *layout, const collet_ddp *ddp, uint32_t p, uint32_t at)
{
	const collet_ddp_parameter *parameter = &ddp->parameters[p];
	struct bucket *bucket = &layout->buckets[layout->bucket_count];
	if (bucket->slice_count > 0 && bucket->dtype != parameter->dtype) {
		close_bucket(layout);
		bucket++;
	}
	if (bucket->slice_count == 0) {
		bucket->first_slice = at;
		bucket->dtype = parameter->dtype;
	}
	const uint64_t bytes = collet_ddp_parameter_bytes(parameter), element = collet_dtype_bytes(parameter->dtype);
	layout->slots[p].bucket = layout->bucket_count;
	layout->slots[p].offset = bucket->bytes;
	layout->slices[at] = (collet_ddp_slice){ .parameter = p, .dimensions = parameter->dimensions,
		.first = bucket->bytes / element, .count = bytes / element, .shape = parameter->shape };
	bucket->bytes += (bytes + GRADIENT_ALIGNMENT - 1) / GRADIENT_ALIGNMENT * GRADIENT_ALIGNMENT;
	bucket->slice_count++;
	const uint64_t full =
		layout->bucket_count == 0 ? ddp->options.first_bucket_bytes : ddp->options.bucket_bytes;
	if (bucket->bytes >= full)
		close_bucket(layout);
}

/* Fills in the hooks' arguments. Slices do not move any more. */
static void fill_hook_args(struct layout *layout, const collet_ddp *ddp)
{
	for (uint32_t b = 0; b < layout->bucket_count; b++) {
		struct bucket *bucket = &layout->buckets[b];
		bucket->hook_args = (collet_ddp_hook_args){ .comms = ddp->stage_comms,
			.index = b,
			.algorithm = ddp->algorithm,
			.bucket = { .gradients = bucket->memory,
				.dtype = bucket->dtype,
				.count = bucket->bytes / collet_dtype_bytes(bucket->dtype),
				.slice_count = bucket->slice_count,
				.slices = layout->slices + bucket->first_slice } };
	}
}

static void free_buckets(collet_comm *comm, struct bucket *buckets, uint32_t count)
{
	for (uint32_t b = 0; buckets && b < count; b++)
		collet_mem_free(comm, buckets[b].memory);
	free(buckets);
}

static void layout_deinit(collet_comm *comm, struct layout *layout)
{
	free_buckets(comm, layout->buckets, layout->bucket_count);
	free(layout->slices);
	free(layout->slots);
}

static collet_status layout_init(const collet_ddp *ddp, const uint32_t *order, struct layout *layout)
{
	const uint32_t count = ddp->parameter_count;
	*layout = (struct layout){ .buckets = calloc((size_t)count + 1, sizeof(*layout->buckets)),
		.slices = calloc((size_t)count + 1, sizeof(*layout->slices)),
		.slots = calloc((size_t)count + 1, sizeof(*layout->slots)) };
	if (!layout->buckets || !layout->slices || !layout->slots)
		return collet_fail(COLLET_ERR_MEMORY, "collet_ddp: no memory for the layout of %u parameters", count);
	if (ddp->parameter_states)
		memcpy(layout->slots, ddp->parameter_states, count * sizeof(*layout->slots));
	for (uint32_t at = 0; at < count; at++)
		add_parameter(layout, ddp, order ? order[at] : count - 1 - at, at);
	if (layout->bucket_count < count && layout->buckets[layout->bucket_count].slice_count > 0)
		close_bucket(layout);
	for (uint32_t b = 0; b < layout->bucket_count; b++) {
		struct bucket *bucket = &layout->buckets[b];
		if (bucket->bytes == 0)
			continue;
		collet_status status = collet_mem_alloc(ddp->comm, &bucket->memory, (size_t)bucket->bytes);
		if (status != COLLET_OK)
			return status;
	}
	fill_hook_args(layout, ddp);
	return COLLET_OK;
}

static void install_layout(collet_ddp *ddp, const struct layout *layout)
{
	ddp->buckets = layout->buckets;
	ddp->bucket_count = layout->bucket_count;
	ddp->slices = layout->slices;
	ddp->parameter_states = layout->slots;
}

collet_status collet_ddp_layout_create(collet_ddp *ddp, const uint32_t *order)
{
	struct layout layout;
	const collet_status status = layout_init(ddp, order, &layout);
	if (status == COLLET_OK)
		install_layout(ddp, &layout);
	else
		layout_deinit(ddp->comm, &layout);
	return status;
}

collet_status collet_ddp_layout_replace(collet_ddp *ddp, const uint32_t *order)
{
	struct layout layout;
	collet_status status = layout_init(ddp, order, &layout);
	/* A rank with another layout would have other buckets. */
	status = collet_ddp_agree_status(ddp->control_comm, status);
	if (status != COLLET_OK) {
		layout_deinit(ddp->comm, &layout);
		return status;
	}
	const collet_ddp old = *ddp;
	install_layout(ddp, &layout);
	for (uint32_t p = 0; p < ddp->parameter_count; p++) {
		const uint64_t bytes = collet_ddp_parameter_bytes(&ddp->parameters[p]);
		if (bytes > 0)
			memcpy(collet_ddp_gradient_at(ddp, &ddp->parameter_states[p]),
				collet_ddp_gradient_at(&old, &old.parameter_states[p]), bytes);
	}
	free_buckets(ddp->comm, old.buckets, old.bucket_count);
	free(old.slices);
	free(old.parameter_states);
	ddp->layout_changes++;
	return COLLET_OK;
}

void collet_ddp_close_buckets(collet_ddp *ddp)
{
	for (uint32_t b = 0; b < ddp->bucket_count; b++) {
		if (ddp->buckets[b].is_open && ddp->hook->close)
			ddp->hook->close(ddp->buckets[b].state);
		ddp->buckets[b].is_open = false;
	}
}

void collet_ddp_layout_free(collet_ddp *ddp)
{
	collet_ddp_close_buckets(ddp);
	free_buckets(ddp->comm, ddp->buckets, ddp->bucket_count);
	free(ddp->slices);
	free(ddp->parameter_states);
}
