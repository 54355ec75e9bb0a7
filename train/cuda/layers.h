/* Computes layers on a GPU, through one table. A module fills it that is built where the headers of cuDNN and cuBLAS
 * are (cudnn/). It is opened at run time, so that one binary runs everywhere. Tests fill another one, whose layers copy
 * to the host and compute there.
 *
 * All work is enqueued on one stream, except images, which another stream makes ahead. All memory is the GPU's. A
 * call returns when the work is enqueued, not when it is done. */
#ifndef TRAIN_CUDA_LAYERS_H
#define TRAIN_CUDA_LAYERS_H

#include "backend.h"

struct CUstream_st;

/* Sums over a batch, as struct outcome, but in the GPU's memory. */
struct layers_outcome {
	double loss;
	uint64_t correct;
};

/* Addresses in the GPU's memory; they do not change. */
struct layers_setup {
	const struct model *model;           /* for its shapes; outlives the layers */
	enum precision precision;
	bool tf32;                           /* f32 may be rounded to TF32 where two values are multiplied */
	struct CUstream_st *stream;
	const struct norm_sync *sync;        /* NULL: each rank on its own. Its gather() takes the GPU's memory, too */
	float *values[MODEL_PARAMETERS], *gradients[MODEL_PARAMETERS];
	float *means[MODEL_STATISTICS], *variances[MODEL_STATISTICS];
	struct normal normals[IMAGE_CHANNELS];  /* of what images are made of: the host's */
};

enum layers_pass { LAYERS_EVALUATE, LAYERS_TRAIN, LAYERS_TRAIN_AND_FOLLOW };  /* FOLLOW: statistics move, too */

struct layers;

/* False or NULL: a line on standard error has said why. */
struct layers_table {
	struct layers *(*create)(const struct layers_setup *setup);
	void (*destroy)(struct layers *layers);  /* NULL is fine */
	/* Makes ready for batches of this many images; nothing allocates later. */
	bool (*prepare)(struct layers *layers, uint32_t batch_count, bool training);
	/* Makes the input of forward() on this stream from a batch's pixels and placements, with the bits of
	 * data/pixels.h. */
	bool (*make_images)(struct layers *layers, float *images, const uint8_t *pixels,
		const struct placement *places, uint32_t batch_count, struct CUstream_st *stream);
	bool (*forward)(struct layers *layers, const float *images, const uint8_t *labels, uint32_t batch_count,
		enum layers_pass pass, struct layers_outcome *outcome);
	/* Works on the last forward(). ready: this parameter's gradient is complete once the stream has reached this
	 * point. */
	bool (*backward)(struct layers *layers, float scale, gradient_ready ready, void *context);
	bool (*update)(struct layers *layers, const struct element_range *range, const struct optimiser_inputs *inputs);
	/* The same as in a back end (backend.h). */
	bool (*add)(struct layers *layers, float *to, const float *a, const float *b, double scale, uint64_t count);
	/* *sum (of the GPU): of the squares, in an order that depends on count alone. */
	bool (*squares)(struct layers *layers, const float *from, uint64_t count, double *sum);
	/* To f16 or bf16, rounded to nearest even, and back. */
	bool (*narrow)(struct layers *layers, enum precision to_type, void *to, const float *from, uint64_t count);
	bool (*widen)(struct layers *layers, enum precision from_type, float *to, const void *from, uint64_t count);
	/* Multiplies every gradient; *wrong (of the GPU, 0 before) is set if any is infinite or not a number. */
	bool (*unscale)(struct layers *layers, float factor, uint32_t *wrong);
};

/* The table of this program; NULL: why says in half a sentence what is missing. */
enum { LAYERS_WHY_BYTES = 512 };
const struct layers_table *layers_open(char why[LAYERS_WHY_BYTES]);

#define LAYERS_MODULE "collet-train-cuda.so"
#define LAYERS_SYMBOL "collet_train_layers"

#endif
