/* Builds a plan. plan.c walks the table of layers. A file for each family of layers appends its primitives (weights.c,
 * norm.c, pointwise.c). All use the functions of build.c.
 *
 * A mistake is printed and remembered in the plan, and later calls do nothing. So the code reads as a list of
 * layers. After a failure, tensors and descriptors are NULL. */
#ifndef TRAIN_ONEDNN_BUILD_H
#define TRAIN_ONEDNN_BUILD_H

#include "onednn/plan.h"

/* False if this or anything before it has failed. */
bool plan_check(struct plan *plan, dnnl_status_t status, const char *what);

/* ---- Tensors ------------------------------------------------------------------------------------------------ */

/* dnnl_format_tag_any leaves it to the primitive. */
dnn_md plan_layout(struct plan *plan, int rank, const dnnl_dim_t *dims, dnnl_data_type_t type, dnnl_format_tag_t tag);
/* Returns the layout of a batch of these, as one layer passes it to the next, in the plan's type. */
dnn_md plan_image_layout(struct plan *plan, const struct shape *shape, dnnl_format_tag_t tag);
/* data: DNNL_MEMORY_ALLOCATE, DNNL_MEMORY_NONE (given later) or the caller's. */
dnnl_memory_t plan_memory(struct plan *plan, dnn_md md, void *data);
/* Dense f32; its own memory where data is NULL. */
dnnl_memory_t plan_vector(struct plan *plan, uint64_t count, float *data);
/* Views the same bytes under another layout. */
dnnl_memory_t plan_view(struct plan *plan, dnnl_memory_t tensor, dnn_md md);
/* The layout of a tensor; the plan must not have failed. */
dnn_md plan_md_of(dnnl_memory_t tensor);
dnn_md plan_queried(dnnl_primitive_desc_t descriptor, dnnl_query_t what);

/* ---- Rows --------------------------------------------------------------------------------------------------- */

static inline dnnl_prop_kind_t plan_kind(const struct plan *plan)
{
	return plan->training ? dnnl_forward_training : dnnl_forward_inference;
}

/* Takes a new primitive descriptor into the plan. */
dnnl_primitive_desc_t plan_keep(struct plan *plan, dnnl_status_t status, dnnl_primitive_desc_t descriptor,
	const char *what);
/* Attributes with a ReLU after the primitive, or NULL for none; the caller destroys them. */
dnnl_primitive_attr_t plan_relu_attribute(struct plan *plan, bool relu);
/* Appends a primitive to a row. Arguments whose memory is NULL are left out. */
void plan_append(struct plan *plan, struct row *row, dnnl_primitive_desc_t descriptor,
	const dnnl_exec_arg_t *arguments, int argument_count);
/* Appends what is no primitive; it finds the layer and the tensor (may be NULL) in its step. */
void plan_append_call(struct plan *plan, struct row *row, bool (*call)(struct plan *plan, const struct step *step),
	uint32_t layer, dnnl_memory_t tensor);
/* Appends the rounding of a tensor, where the plan rounds. */
void plan_round(struct plan *plan, struct row *row, dnnl_memory_t tensor);
/* Appends sum = a + b, all three of one layout; sum may be a. */
void plan_append_sum(struct plan *plan, struct row *row, dnnl_memory_t a, dnnl_memory_t b, dnnl_memory_t sum,
	bool relu);
/* Appends to = from, in to's layout and type. */
void plan_append_copy(struct plan *plan, struct row *row, dnnl_memory_t from, dnnl_memory_t to);
/* The tensor in this layout: itself, or a copy that the row makes each time. */
dnnl_memory_t plan_in_layout(struct plan *plan, struct row *row, dnnl_memory_t tensor, dnn_md md);

/* ---- Gradients ---------------------------------------------------------------------------------------------- */

struct flow plan_flow_in_layout(struct plan *plan, struct flow flow, dnn_md md);
/* Allocates memory that is needed until gradients have passed this layer; for gradients themselves, until they have
 * passed the next. Later layers reuse it while it is in the cache. */
dnnl_memory_t plan_passing(struct plan *plan, dnn_md md);
/* All layers from this one on have passed their gradients back. */
void plan_passed(struct plan *plan, uint32_t layer);
/* Returns where an in-place primitive writes: over the flow, if no other layer reads it. */
dnnl_memory_t plan_flow_place(struct plan *plan, struct flow flow);
/* Passes a gradient to the layer's input, or to the images at the end. It is added to gradients that are already
 * there. */
void plan_pass_back(struct plan *plan, uint32_t layer, struct flow flow);
/* Returns memory for a parameter's gradient in this layout: the bucket itself if the layout is dense. Otherwise
 * plan_finish_gradient() copies from it. */
dnnl_memory_t plan_gradient_place(struct plan *plan, dnnl_memory_t dense, dnn_md md);
/* Finishes a layer's parameters: copies their gradients to their place, and reports them ready. */
void plan_finish_gradient(struct plan *plan, dnnl_memory_t place, dnnl_memory_t dense, uint32_t layer);

/* ---- Layers ------------------------------------------------------------------------------------------------- */

/* Forward: from the trace's input to its output and result. Backward: the gradient of the result has come. */
void plan_weights_forward(struct plan *plan, uint32_t l);
void plan_weights_backward(struct plan *plan, uint32_t l, struct flow gradient);
void plan_norm_forward(struct plan *plan, uint32_t l);
void plan_norm_backward(struct plan *plan, uint32_t l, struct flow gradient);
void plan_pool_forward(struct plan *plan, uint32_t l);
void plan_pool_backward(struct plan *plan, uint32_t l, struct flow gradient);
void plan_add_forward(struct plan *plan, uint32_t l);
void plan_add_backward(struct plan *plan, uint32_t l, struct flow gradient);
/* A ReLU that nothing before it could take in. */
void plan_relu_forward(struct plan *plan, uint32_t l);
/* The gradient of what came into a ReLU whose output this is. */
struct flow plan_relu_backward(struct plan *plan, dnnl_memory_t output, struct flow gradient);

#endif
