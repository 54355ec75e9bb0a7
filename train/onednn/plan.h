/* The CPU back end's plan. It is a table of layers, for one batch size and purpose, as two rows of oneDNN primitives
 * with bound arguments. plan.c builds it, onednn.c runs it. */
#ifndef TRAIN_ONEDNN_PLAN_H
#define TRAIN_ONEDNN_PLAN_H

#include <stdbool.h>

#include "backend.h"
#include "onednn/api.h"

enum { STEP_ARGUMENTS = 10, ROW_STEPS = 4 * MODEL_LAYERS, PLAN_BUFFERS = 64 };

struct plan;

/* One primitive of a row, or what is no primitive, and the gradients that are complete once it has run. */
struct step {
	dnnl_primitive_t primitive;
	bool (*call)(struct plan *plan, const struct step *step);  /* instead; false after a line on standard error */
	uint32_t layer;        /* that this belongs to */
	dnnl_exec_arg_t arguments[STEP_ARGUMENTS];
	int argument_count;
	uint32_t ready_first, ready_count;
};

struct row {
	struct step steps[ROW_STEPS];
	uint32_t count;
};

/* A gradient on its way back. */
struct flow {
	dnnl_memory_t tensor;  /* NULL: none has come yet */
	bool shared;           /* others read it too: not to be written */
};

/* State that a layer's forward pass keeps for its backward pass. */
struct trace {
	dnnl_primitive_desc_t forward;
	dnnl_memory_t input, output, workspace, mean, variance;
	dnnl_memory_t result;  /* output as the layers after this one see it: an image */
	struct flow gradient;  /* of the result; while the plan is built */
	bool relu;             /* the layer after this one is a ReLU, and done here */
	/* For batch norm over all ranks, one number a channel. The other ranks' gradients add slope x (input,
	 * normalised) + offset to this rank's. */
	dnnl_memory_t slope, offset;
	double seen;           /* values of a channel on all ranks */
};

/* Whatever oneDNN made and must be told to free. */
enum owned_kind { OWNED_MEMORY, OWNED_LAYOUT, OWNED_DESCRIPTOR };

struct owned {
	struct owned *next;
	enum owned_kind kind;
	dnnl_memory_t memory;
	dnnl_memory_desc_t layout;
	dnnl_primitive_desc_t descriptor;
};

/* Memory that gradients pass through; in use from one layer to those that it passes back to. */
struct buffer {
	void *data;
	size_t bytes;
	bool busy;
};

struct plan {
	struct plan *next;
	const struct model *model;
	dnnl_data_type_t type;         /* of activations, and of weights in use */
	bool rounds;                   /* f16: they are f32, and rounded wherever f16 would be stored */
	const struct norm_sync *sync;  /* NULL, as in evaluation: batch norm is this rank's own */
	float *mine, *all;             /* with sync: what one rank says of a layer, and what all do */
	dnnl_engine_t engine;
	uint32_t batch_count;
	bool training;
	bool failed;  /* while it is built: set by the first mistake, and nothing happens any more */
	struct row forward, backward;
	struct trace traces[MODEL_LAYERS];
	dnnl_memory_t input, output, output_gradient;
	struct owned *owned;
	struct buffer buffers[PLAN_BUFFERS];
	uint32_t buffer_count;
};

/* NULL, after a line on standard error, when oneDNN refuses the model. Without training there is no backward row. */
struct plan *plan_create(const struct model *model, enum precision precision, const struct norm_sync *sync,
	dnnl_engine_t engine, uint32_t batch_count, bool training);
void plan_destroy(struct plan *plan);  /* NULL is fine */

/* A tensor's memory. */
float *plan_data(dnnl_memory_t tensor);
/* Returns how many values of a channel a batch-norm layer has seen in the last forward pass; with sync, on all
 * ranks. */
double plan_norm_count(const struct plan *plan, uint32_t layer);

#endif
