/* The tools that a plan is built with; see build.h. */
#include "onednn/build.h"

#include <stdlib.h>

#include "error.h"
#include "model/half.h"

bool plan_check(struct plan *plan, dnnl_status_t status, const char *what)
{
	if (status != dnnl_success && !plan->failed)
		plan->failed = !train_fail("model %s, batch %u: oneDNN %d.%d.%d refuses %s (status %d)%s",
			plan->model->name, plan->batch_count, dnnl_version()->major, dnnl_version()->minor,
			dnnl_version()->patch, what, (int)status,
			plan->type == dnnl_bf16 ? ": where the CPU has no bf16, --precision f32 goes on" : "");
	return !plan->failed;
}

static struct owned *own(struct plan *plan, enum owned_kind kind)
{
	struct owned *owned = plan->failed ? NULL : calloc(1, sizeof(*owned));
	if (!owned) {
		plan_check(plan, dnnl_out_of_memory, "memory");
		return NULL;
	}
	owned->kind = kind;
	owned->next = plan->owned;
	plan->owned = owned;
	return owned;
}

dnn_md plan_layout(struct plan *plan, int rank, const dnnl_dim_t *dims, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
	struct owned *owned = own(plan, OWNED_LAYOUT);
	if (!owned || !plan_check(plan, dnn_md_create(&owned->layout, rank, dims, type, tag), "a layout")) {
		if (owned) {
			plan->owned = owned->next;
			free(owned);
		}
		return NULL;
	}
	return dnn_md_of(&owned->layout);
}

dnnl_memory_t plan_memory(struct plan *plan, dnn_md md, void *data)
{
	struct owned *owned = own(plan, OWNED_MEMORY);
	if (!owned || !plan_check(plan, dnnl_memory_create(&owned->memory, md, plan->engine, data), "a tensor"))
		return NULL;
	return owned->memory;
}

dnn_md plan_image_layout(struct plan *plan, const struct shape *shape, dnnl_format_tag_t tag)
{
	const dnnl_dims_t dims = { plan->batch_count, shape->channels, shape->height, shape->width };
	return plan_layout(plan, 4, dims, plan->type, tag);
}

dnnl_memory_t plan_view(struct plan *plan, dnnl_memory_t tensor, dnn_md md)
{
	void *data = NULL;
	if (plan->failed || !plan_check(plan, dnnl_memory_get_data_handle(tensor, &data), "a view"))
		return NULL;
	return plan_memory(plan, md, data);
}

dnnl_memory_t plan_vector(struct plan *plan, uint64_t count, float *data)
{
	const dnnl_dims_t dims = { (dnnl_dim_t)count };
	dnn_md md = plan_layout(plan, 1, dims, dnnl_f32, dnnl_a);
	return plan_memory(plan, md, data ? data : DNNL_MEMORY_ALLOCATE);
}

dnn_md plan_md_of(dnnl_memory_t tensor)
{
	dnn_md md = NULL;
	dnnl_memory_get_memory_desc(tensor, &md);
	return md;
}

float *plan_data(dnnl_memory_t tensor)
{
	void *data = NULL;
	dnnl_memory_get_data_handle(tensor, &data);
	return data;
}

dnn_md plan_queried(dnnl_primitive_desc_t descriptor, dnnl_query_t what)
{
	return dnnl_primitive_desc_query_md(descriptor, what, 0);
}

dnnl_primitive_desc_t plan_keep(struct plan *plan, dnnl_status_t status, dnnl_primitive_desc_t descriptor,
	const char *what)
{
	if (!plan_check(plan, status, what))
		return NULL;
	struct owned *owned = own(plan, OWNED_DESCRIPTOR);
	if (!owned) {
		dnnl_primitive_desc_destroy(descriptor);
		return NULL;
	}
	return owned->descriptor = descriptor;
}

/* The next step of a row, zeroed and not counted yet; NULL if there is no room. */
static struct step *next_step(struct plan *plan, struct row *row)
{
	if (plan->failed || !plan_check(plan, row->count < ROW_STEPS ? dnnl_success : dnnl_invalid_arguments,
			"so long a row of primitives"))
		return NULL;
	struct step *step = &row->steps[row->count];
	*step = (struct step){ 0 };
	return step;
}

void plan_append(struct plan *plan, struct row *row, dnnl_primitive_desc_t descriptor,
	const dnnl_exec_arg_t *arguments, int argument_count)
{
	struct step *step = next_step(plan, row);
	if (!step || !plan_check(plan, dnnl_primitive_create(&step->primitive, descriptor), "a primitive"))
		return;
	for (int i = 0; i < argument_count; i++)
		if (arguments[i].memory)
			step->arguments[step->argument_count++] = arguments[i];
	row->count++;
}

void plan_append_call(struct plan *plan, struct row *row, bool (*call)(struct plan *plan, const struct step *step),
	uint32_t layer, dnnl_memory_t tensor)
{
	struct step *step = next_step(plan, row);
	if (!step)
		return;
	*step = (struct step){ .call = call, .layer = layer, .arguments = { { .memory = tensor } } };
	row->count++;
}

static bool round_tensor(struct plan *plan, const struct step *step)
{
	dnnl_memory_t tensor = step->arguments[0].memory;
	half_round(plan_data(tensor), dnnl_memory_desc_get_size(plan_md_of(tensor)) / sizeof(float));
	return true;
}

void plan_round(struct plan *plan, struct row *row, dnnl_memory_t tensor)
{
	if (plan->rounds && !plan->failed)
		plan_append_call(plan, row, round_tensor, 0, tensor);
}

dnnl_primitive_attr_t plan_relu_attribute(struct plan *plan, bool relu)
{
	dnnl_primitive_attr_t attribute = NULL;
	dnnl_post_ops_t ops = NULL;
	if (!relu || plan->failed || !plan_check(plan, dnnl_primitive_attr_create(&attribute), "attributes"))
		return NULL;
	dnnl_status_t status = dnnl_post_ops_create(&ops);
	if (status == dnnl_success)
		status = dnn_append_relu(ops);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_set_post_ops(attribute, ops);
	plan_check(plan, status, "a fused ReLU");
	dnnl_post_ops_destroy(ops);
	return attribute;
}

void plan_append_copy(struct plan *plan, struct row *row, dnnl_memory_t from, dnnl_memory_t to)
{
	if (plan->failed)
		return;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnnl_reorder_primitive_desc_create(
		&made, plan_md_of(from), plan->engine, plan_md_of(to), plan->engine, NULL);
	dnnl_primitive_desc_t reorder = plan_keep(plan, status, made, "a reorder");
	plan_append(plan, row, reorder, (dnnl_exec_arg_t[]){ { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } }, 2);
}

void plan_append_sum(struct plan *plan, struct row *row, dnnl_memory_t a, dnnl_memory_t b, dnnl_memory_t sum,
	bool relu)
{
	if (plan->failed)
		return;
	dnn_md md = plan_md_of(a);
	dnnl_primitive_attr_t attribute = plan_relu_attribute(plan, relu);
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = plan->failed ? dnnl_success : dnn_add(&made, plan->engine, md, md, md, attribute);
	dnnl_primitive_attr_destroy(attribute);
	dnnl_primitive_desc_t add = plan_keep(plan, status, made, "a sum");
	plan_append(plan, row, add, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC_0, a }, { DNNL_ARG_SRC_1, b },
		{ DNNL_ARG_DST, sum } }, 3);
}

dnnl_memory_t plan_in_layout(struct plan *plan, struct row *row, dnnl_memory_t tensor, dnn_md md)
{
	if (plan->failed || dnnl_memory_desc_equal(plan_md_of(tensor), md))
		return tensor;
	const bool passing = row == &plan->backward;
	dnnl_memory_t copy = passing ? plan_passing(plan, md) : plan_memory(plan, md, DNNL_MEMORY_ALLOCATE);
	plan_append_copy(plan, row, tensor, copy);
	return copy;
}

dnnl_memory_t plan_gradient_place(struct plan *plan, dnnl_memory_t dense, dnn_md md)
{
	if (plan->failed || dnnl_memory_desc_equal(plan_md_of(dense), md))
		return dense;
	return plan_memory(plan, md, DNNL_MEMORY_ALLOCATE);
}

void plan_finish_gradient(struct plan *plan, dnnl_memory_t place, dnnl_memory_t dense, uint32_t layer)
{
	if (place != dense)
		plan_append_copy(plan, &plan->backward, place, dense);
	if (plan->failed)
		return;
	struct step *last = &plan->backward.steps[plan->backward.count - 1];
	last->ready_first = plan->model->first_parameter[layer];
	last->ready_count = model_layer_parameters(&plan->model->layers[layer]);
}

dnnl_memory_t plan_passing(struct plan *plan, dnn_md md)
{
	const size_t bytes = plan->failed ? 0 : dnnl_memory_desc_get_size(md);
	struct buffer *best = NULL;
	for (uint32_t b = 0; b < plan->buffer_count; b++) {
		struct buffer *buffer = &plan->buffers[b];
		if (!buffer->busy && buffer->bytes >= bytes && (!best || buffer->bytes < best->bytes))
			best = buffer;
	}
	if (!best && plan_check(plan, plan->buffer_count < PLAN_BUFFERS ? dnnl_success : dnnl_out_of_memory,
			     "so many gradients at once")) {
		best = &plan->buffers[plan->buffer_count];
		*best = (struct buffer){ .data = backend_onednn.memory_allocate(bytes), .bytes = bytes };
		if (plan_check(plan, best->data ? dnnl_success : dnnl_out_of_memory, "memory"))
			plan->buffer_count++;
	}
	if (plan->failed)
		return NULL;
	best->busy = true;
	return plan_memory(plan, md, best->data);
}

void plan_passed(struct plan *plan, uint32_t layer)
{
	for (uint32_t b = 0; !plan->failed && b < plan->buffer_count; b++) {
		plan->buffers[b].busy = false;
		for (uint32_t l = 0; l < layer; l++) {
			dnnl_memory_t gradient = plan->traces[l].gradient.tensor;
			if (gradient && (void *)plan_data(gradient) == plan->buffers[b].data)
				plan->buffers[b].busy = true;
		}
	}
}

struct flow plan_flow_in_layout(struct plan *plan, struct flow flow, dnn_md md)
{
	dnnl_memory_t tensor = plan_in_layout(plan, &plan->backward, flow.tensor, md);
	return (struct flow){ tensor, flow.shared && tensor == flow.tensor };
}

dnnl_memory_t plan_flow_place(struct plan *plan, struct flow flow)
{
	if (plan->failed || !flow.shared)
		return flow.tensor;
	return plan_passing(plan, plan_md_of(flow.tensor));
}

void plan_pass_back(struct plan *plan, uint32_t layer, struct flow flow)
{
	if (plan->failed || layer == MODEL_INPUT)
		return;
	struct flow *sum = &plan->traces[layer].gradient;
	if (!flow.shared)
		plan_round(plan, &plan->backward, flow.tensor);
	if (!sum->tensor) {
		*sum = flow;
		return;
	}
	/* The sum is written over one of the two, if either may be. */
	struct flow into = sum->shared ? flow : *sum, from = sum->shared ? *sum : flow;
	from = plan_flow_in_layout(plan, from, plan_md_of(into.tensor));
	dnnl_memory_t place = plan_flow_place(plan, into);
	plan_append_sum(plan, &plan->backward, into.tensor, from.tensor, place, false);
	plan_round(plan, &plan->backward, place);
	*sum = (struct flow){ place, false };
}
