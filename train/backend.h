/* Computes a model: forward, backward and the optimiser's step. Each back end is one table of functions. The trainer
 * knows nothing of layouts, fusion or the place of memory.
 *
 * A network belongs to one thread. No call after prepare() allocates. Every function prints why before it returns
 * false or NULL. */
#ifndef TRAIN_BACKEND_H
#define TRAIN_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "data/pixels.h"
#include "model/model.h"
#include "model/optimiser.h"

/* The back end's own. */
struct network;

/* Images with their classes. They are normalised, channel by channel, row by row. A back end that makes images
 * itself gets their pixels and placements instead. */
struct batch {
	const float *images;             /* NULL: ... */
	const uint8_t *labels;
	uint32_t count;
	const uint8_t *pixels;           /* ... as data sets have them, ... */
	const struct placement *places;  /* ... and what of each is to be seen */
};

/* Sums over a batch: divide by the number of images for means. */
struct outcome {
	double loss;        /* cross-entropy in nats */
	uint32_t correct;   /* images whose largest output was their class */
};

/* Called by backward() as soon as this parameter's gradient is complete, last layer first. false ends backward(). */
typedef bool (*gradient_ready)(void *context, uint32_t parameter);

/* The type of activations, and of the weights that layers compute with. Parameters and gradients are f32. */
enum precision { PRECISION_F32, PRECISION_BF16, PRECISION_F16 };

/* Gives batch norm the statistics of the other ranks' batches. */
struct norm_sync {
	uint32_t ranks;
	/* Gives every rank count numbers of each rank, in the order of ranks. Every rank calls it equally often. False
	 * after a line on standard error. */
	bool (*gather)(void *context, const float *mine, float *all, uint32_t count);
	void *context;
};

/* One run of numbers of several. */
struct array {
	float *first;
	uint64_t count;
};

/* Whose memory arrays are in; NULL: the host's. */
struct cuda_device;

struct backend {
	const char *name;
	bool makes_images;   /* batches are pixels and places */
	/* Memory of the host, for images and statistics, zeroed, 64-byte aligned. NULL: there is none left. */
	void *(*memory_allocate)(size_t bytes);
	void (*memory_free)(void *memory);
	/* Memory that steps work on: values, gradients, what the optimiser remembers. Zeroed, 64-byte aligned. */
	void *(*array_allocate)(struct cuda_device *device, size_t bytes);
	void (*array_free)(struct cuda_device *device, void *memory);
	/* Copy from and to host memory, and wait. The caller has waited for earlier work on the arrays (wait()). */
	bool (*array_get)(struct cuda_device *device, float *to, const float *from, uint64_t count);
	bool (*array_put)(struct cuda_device *device, float *to, const float *from, uint64_t count);
	/* A network that computes model, whose pointers are all set and stay. With sync, batch norm trains on all
	 * ranks' batches together; NULL: each rank on its own. Both must outlive the network. A precision that it
	 * cannot compute in is an error here or in prepare(). NULL: it takes more than this (cuda/network.h). */
	struct network *(*create)(
		const struct model *model, enum precision precision, const struct norm_sync *sync);
	void (*destroy)(struct network *network);  /* NULL is fine */
	/* Makes ready for batches of this many images. */
	bool (*prepare)(struct network *network, uint32_t batch_count, bool training);
	/* Evaluates: batch norm uses the statistics. */
	bool (*evaluate)(struct network *network, const struct batch *batch, struct outcome *outcome);
	/* Forward for training: batch norm uses the batch, and moves the statistics towards it where update is set. */
	bool (*forward)(struct network *network, const struct batch *batch, bool update, struct outcome *outcome);
	/* Writes the gradient of scale x the last forward()'s mean loss to every parameter's gradient. */
	bool (*backward)(struct network *network, float scale, gradient_ready ready, void *context);

	/* All below work on arrays, in the order in which they are called, and may return before it is done. */

	/* The optimiser's step, for all parameters, or for a run of elements. */
	bool (*update)(struct network *network, const struct optimiser_inputs *inputs);
	bool (*update_range)(
		struct network *network, const struct element_range *range, const struct optimiser_inputs *inputs);
	/* to[i] = (a[i] + b[i]) x scale, rounded after each; b NULL: a[i] x scale. to may be a or b. */
	bool (*add)(struct network *network, float *to, const float *a, const float *b, double scale, uint64_t count);
	/* *sum: of all elements' squares, array by array. Waits. */
	bool (*squares)(struct network *network, const struct array *arrays, uint32_t array_count, double *sum);
	/* Multiplies every parameter's gradient, and waits. *finite: whether all were. */
	bool (*unscale)(struct network *network, float factor, bool *finite);
	/* Waits until all of it is done: before arrays are anybody else's to read or write. */
	bool (*wait)(struct network *network);
	/* Settles, and brings values, what the optimiser remembers and statistics to the host (state.h, flat). */
	bool (*fetch)(struct network *network);
};

extern const struct backend backend_onednn;

#endif
