/* The CUDA back end: a model in a GPU's memory, its layers on a stream.
 *
 * What is read and saved of a model (state.h, flat) stays the host's: first values, checkpoints, checksums. It is
 * brought over when a network is made, and back by fetch(); in between, the GPU's is what counts. Gradients are the
 * GPU's alone. */
#ifndef TRAIN_CUDA_NETWORK_H
#define TRAIN_CUDA_NETWORK_H

#include <collet/collet.h>

#include "cuda/device.h"
#include "cuda/layers.h"
#include "data/dataset.h"
#include "model/flat.h"

extern const struct backend backend_cuda;

struct cuda_network_setup {
	struct cuda_device *device;
	const struct layers_table *table;
	const struct model *model;           /* whose gradients' addresses are the GPU's */
	struct flat *host_flat, *device_flat;           /* alike, in the host's memory and in the GPU's */
	enum precision precision;
	bool tf32;                           /* layers.h */
	const struct dataset *set;           /* for its normals; its test images' are the same */
	const struct norm_sync *sync;        /* as a back end's create() */
};
/* All but the setup itself outlives it. NULL after a line on standard error. */
struct network *cuda_network_create(const struct cuda_network_setup *setup);

/* Training in pieces, for a strategy that puts its own between them. None waits for the GPU. */

/* Starts the copy of the next forward()'s images. The batch before must be computed forward (its outcome known), or
 * be unneeded. The batch's memory is read until cuda_network_staged() or outcome(). */
bool cuda_network_stage(struct network *network, const struct batch *batch);
/* Waits until the batch's memory has been read. */
bool cuda_network_staged(struct network *network);
bool cuda_network_forward(struct network *network, bool update);
bool cuda_network_backward(struct network *network, float scale, gradient_ready ready, void *context);
/* The same as in layers.h; dtype: COLLET_F16 or COLLET_BF16. */
bool cuda_network_narrow(
	struct network *network, collet_dtype dtype, void *to, const float *from, uint64_t count);
bool cuda_network_widen(struct network *network, collet_dtype dtype, float *to, const void *from, uint64_t count);
/* Waits for the last forward. */
bool cuda_network_outcome(struct network *network, struct outcome *outcome);
#endif
