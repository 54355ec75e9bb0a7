/* A model: a table of layers, and what follows from it: shapes, parameters, their first values.
 * Knows nothing of how a layer is computed; that is a back end's (backend.h). The tables are in models.c.
 *
 * A row works on what the row before it gives. A residual block forks:
 *
 *     FORK
 *     ...           computed from what came to FORK
 *     SHORTCUT      (if the shortcut is more than what came to FORK:)
 *     ...           computed from what came to FORK, too
 *     ADD           the sum of the two
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum layer_kind {
	LAYER_CONVOLUTION,  /* channels, kernel, padding, stride, no_bias */
	LAYER_BATCH_NORM,   /* over batch and pixels, one scale and shift a channel */
	LAYER_RELU,
	LAYER_MAX_POOL,     /* kernel = stride */
	LAYER_MEAN_POOL,    /* of all pixels of a channel */
	LAYER_LINEAR,       /* channels outputs, from everything before it */
	LAYER_ADD,
	/* These only say what a row works on: a built model has none of them. */
	LAYER_FORK,
	LAYER_SHORTCUT
};

struct layer {
	enum layer_kind kind;
	const char *name;   /* of layers with parameters */
	uint32_t channels, kernel, padding;
	uint32_t stride;    /* 0: 1 */
	bool no_bias;       /* what a batch norm would take away again */
};

/* Channels and pixels of one image, or of what a layer makes of it. A linear layer gives channels x 1 x 1. */
struct shape {
	uint32_t channels, height, width;
};

/* A tensor that training changes. Values and gradients are dense f32 on every rank, row-major in PyTorch's order,
 * whatever layout a back end computes in. So ranks with different CPUs can add their gradients. */
struct parameter {
	char name[32];
	uint32_t dimensions;
	uint64_t shape[4];
	uint64_t count;     /* elements */
	float bound;        /* the first values are uniform in [-bound, bound) ... */
	float constant;     /* ... or, bound being 0, this */
	float *value;       /* the trainer's */
	float *gradient;    /* in a bucket of collet_ddp */
	float *velocity;    /* the optimiser's: SGD's velocity, AdamW's mean */
	float *squares;     /* AdamW's; else NULL */
};

/* The statistics that a batch-norm layer collects from batches, for evaluation; not trained. */
struct statistics {
	char name[32];
	uint32_t channels;
	float *mean, *variance;
};

enum { MODEL_LAYERS = 128, MODEL_PARAMETERS = 192, MODEL_STATISTICS = 64 };

/* Instead of a layer's index: the images. */
#define MODEL_INPUT UINT32_MAX

struct model {
	const char *name;
	uint32_t layer_count, parameter_count, statistics_count;
	struct layer layers[MODEL_LAYERS];
	struct shape input;
	struct shape outputs[MODEL_LAYERS];         /* of each layer */
	uint32_t sources[MODEL_LAYERS];             /* the layer that each works on, before it in the table */
	uint32_t addends[MODEL_LAYERS];             /* of ADD: the other one */
	uint32_t first_parameter[MODEL_LAYERS];     /* weights, then bias if there is one (scale, then shift) */
	uint32_t first_statistics[MODEL_LAYERS];
	struct parameter parameters[MODEL_PARAMETERS];
	struct statistics statistics[MODEL_STATISTICS];
};

/* The tables by name; NULL if there is none. */
const struct layer *model_table(const char *name, uint32_t *layer_count);

/* The names that model_table() takes; ends with NULL. */
extern const char *const model_names[];

/* Works out a table of layers for images of this shape. Without batch_norm, those rows are left out. Memory (value,
 * gradient, velocity, mean, variance) stays NULL. False, with a line on standard error: the layers do not fit. */
bool model_build(struct model *model, const char *name, const struct layer *layers, uint32_t layer_count,
	struct shape input, bool batch_norm);

uint32_t model_classes(const struct model *model);

/* Returns the shape of a layer's input. */
const struct shape *model_input_shape(const struct model *model, uint32_t layer);

/* Returns how many parameters a layer has: 0 to 2, from first_parameter on. */
uint32_t model_layer_parameters(const struct layer *layer);

/* Fills every value, and the statistics with mean 0 and variance 1. The same seed gives the same values on any
 * number of ranks. PyTorch's defaults: uniform within 1/sqrt(fan in) for weights and biases, 1 and 0 for batch norm. */
void model_initialise(struct model *model, uint64_t seed);

/* FNV-1a of all values, to compare ranks and runs bit for bit. */
uint64_t model_checksum(const struct model *model);

#endif
