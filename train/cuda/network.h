/* The CUDA back end: a model in a GPU's memory, its layers on a stream.
 *
 * What the trainer sees of the model (model.h, flat.h) stays the host's: first values, checkpoints, checksums. store
 * and fetch bring it over and back; in between, the GPU's is what counts. Gradients are the GPU's alone. */
#ifndef TRAIN_CUDA_NETWORK_H
#define TRAIN_CUDA_NETWORK_H

#include "cuda/device.h"
#include "cuda/layers.h"
#include "model/flat.h"

extern const struct backend backend_cuda;

/* A network over a model whose host memory is all set, and whose gradients' addresses are the GPU's. tf32: layers.h.
 * NULL after a line on standard error. */
struct network *cuda_network_create(struct cuda_device *device, const struct layers_table *table,
	const struct model *model, enum precision precision, bool tf32);

/* Training in pieces, for a strategy that puts its own between them. None waits for the GPU. */

/* The images of the next forward() are on their way; the batch before must have been computed forward (its outcome
 * known) or never be wanted any more. The batch's memory is read until cuda_network_staged() or outcome(). */
bool cuda_network_stage(struct network *network, const struct batch *batch);
/* Waits until the batch's memory has been read. */
bool cuda_network_staged(struct network *network);
bool cuda_network_forward(struct network *network, bool update);
bool cuda_network_backward(struct network *network, float scale, gradient_ready ready, void *context);
/* Waits for the last forward. */
bool cuda_network_outcome(struct network *network, struct outcome *outcome);
bool cuda_network_descend(struct network *network, const struct descent *descent);
/* Multiplies gradients, and waits. *finite: whether all were. */
bool cuda_network_unscale(struct network *network, float factor, bool *finite);

#endif
