/* Batch norm over all ranks' batches. Each pass is split where ranks exchange statistics, as in onednn/norm.c. cuDNN
 * has no such parts, so both are kernels of this module. The host waits for the stream at each split, since
 * gathering is a blocking call, of a few numbers a channel. */
#include "cuda/cudnn/plan.h"

/* torch.nn.BatchNorm2d's defaults. */
static const float norm_epsilon = 1e-5F, norm_momentum = 0.1F;

bool norm_sync_plan(const struct layers *layers, struct norm_shared *shared, uint32_t channels)
{
	const size_t row = 2 * (size_t)channels + 1, ranks = layers->setup.sync->ranks;
	void *rows[5] = { NULL };
	const size_t bytes[5] = { channels * sizeof(float), row * sizeof(float), ranks * row * sizeof(float),
		2 * channels * sizeof(double), sizeof(double) };
	bool fine = true;
	for (int i = 0; fine && i < 5; i++)
		fine = layers_allocate(&rows[i], bytes[i]);
	*shared = (struct norm_shared){ rows[0], rows[1], rows[2], rows[3], rows[4] };
	return fine;
}

void norm_sync_free(struct norm_shared *shared)
{
	(void)cudaFree(shared->variance);
	(void)cudaFree(shared->row);
	(void)cudaFree(shared->rows);
	(void)cudaFree(shared->sums);
	(void)cudaFree(shared->seen);
}

static bool gather(const struct layers *layers, const struct norm_shared *shared, uint32_t count)
{
	const struct norm_sync *sync = layers->setup.sync;
	return layers_check_cuda((int)cudaStreamSynchronize(layers->setup.stream), "computing") &&
		sync->gather(sync->context, shared->row, shared->rows, count);
}

bool norm_sync_forward(struct layers *layers, const struct plan *plan, uint32_t l, const void *input, bool follow)
{
	const struct model *model = layers->setup.model;
	const struct unit *unit = &plan->units[l];
	const struct norm_shared *shared = &unit->shared;
	const struct shape *shape = &model->outputs[l];
	const uint32_t p = plan_weights(model, l), s = model->first_statistics[l], channels = shape->channels,
		       pixels = shape->height * shape->width;
	struct CUstream_st *stream = layers->setup.stream;
	return layers_check_cuda(kernels_norm_statistics(layers->type, shared->row, input, plan->batch_count, channels,
		       pixels, stream), "batch norm") &&
		gather(layers, shared, 2 * channels + 1) &&
		layers_check_cuda(kernels_norm_join(shared->rows, layers->setup.sync->ranks, channels, norm_epsilon,
			unit->mean, shared->variance, unit->inverse_deviation, shared->seen, stream), "batch norm") &&
		(!follow || layers_check_cuda(kernels_norm_follow(layers->setup.means[s], layers->setup.variances[s],
			unit->mean, shared->variance, shared->seen, norm_momentum, channels, stream), "batch norm")) &&
		layers_check_cuda(kernels_norm(layers->type, unit->output, input, unit->mean, unit->inverse_deviation,
			layers->setup.values[p], layers->setup.values[p + 1], plan->batch_count, channels, pixels,
			stream), "batch norm");
}

/* The gradients of scale and shift are this rank's own: their mean is made as all gradients' is. */
bool norm_sync_backward(struct layers *layers, const struct plan *plan, uint32_t l, const void *input, void *back,
	bool first)
{
	const struct model *model = layers->setup.model;
	const struct unit *unit = &plan->units[l];
	const struct norm_shared *shared = &unit->shared;
	const struct shape *shape = &model->outputs[l];
	const uint32_t p = plan_weights(model, l), channels = shape->channels, pixels = shape->height * shape->width;
	struct CUstream_st *stream = layers->setup.stream;
	const size_t bytes = channels * sizeof(float);
	return layers_check_cuda(kernels_norm_sums(layers->type, shared->row, input, unit->gradient, unit->mean,
		       unit->inverse_deviation, plan->batch_count, channels, pixels, stream),
		       "the gradient of batch norm") &&
		layers_check_cuda((int)cudaMemcpyAsync(layers->setup.gradients[p], shared->row, bytes,
			cudaMemcpyDeviceToDevice, stream), "the gradient of a scale") &&
		layers_check_cuda((int)cudaMemcpyAsync(layers->setup.gradients[p + 1], shared->row + channels, bytes,
			cudaMemcpyDeviceToDevice, stream), "the gradient of a shift") &&
		gather(layers, shared, 2 * channels) &&
		layers_check_cuda(kernels_norm_add(shared->rows, layers->setup.sync->ranks, channels, shared->sums,
			stream), "the gradient of batch norm") &&
		layers_check_cuda(kernels_norm_gradient(layers->type, back, input, unit->gradient, unit->mean,
			unit->inverse_deviation, layers->setup.values[p], shared->sums, shared->seen, first,
			plan->batch_count, channels, pixels, stream), "the gradient of batch norm");
}
