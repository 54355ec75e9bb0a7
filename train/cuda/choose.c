#include "cuda/choose.h"

#include <stdio.h>

#include "cuda/network.h"
#include "error.h"
#include "strategies/strategy.h"

extern const struct strategy strategy_allreduce_device;

void device_enter(struct gpu_device *gpu, const struct options *options, uint32_t local_rank)
{
	char why[GPU_WHY_BYTES];
	*gpu = (struct gpu_device){ 0 };
	if (options->device != DEVICE_CPU)
		(void)gpu_device_open(gpu, local_rank, why);
}

void device_enter_launched(struct gpu_device *gpu, const struct options *options)
{
	char why[GPU_WHY_BYTES];
	uint32_t local_rank;
	*gpu = (struct gpu_device){ 0 };
	if (gpu_local_rank(&local_rank))
		device_enter(gpu, options, local_rank);
	else if (options->device != DEVICE_CPU)
		(void)gpu_open(&gpu->gpu, why);
}

/* Whether this rank could; why not, if not. */
static bool could(struct trainer *trainer, char why[LAYERS_WHY_BYTES])
{
	struct gpu_device probe;
	char driver[GPU_WHY_BYTES];
	if (!gpu_device_open(&probe, collet_comm_local_rank(trainer->comm), driver)) {
		snprintf(why, LAYERS_WHY_BYTES, "%s", driver);
		return false;
	}
	gpu_device_close(&probe);
	trainer->layers = layers_open(why);
	return trainer->layers != NULL;
}

static bool use_cuda(struct trainer *trainer)
{
	trainer->device = cuda_device_open(collet_comm_local_rank(trainer->comm));
	trainer->backend = &backend_cuda;
	if (trainer->strategy == strategy_find("allreduce"))
		trainer->strategy = &strategy_allreduce_device;
	return trainer->device != NULL;
}

bool device_choose(struct trainer *trainer)
{
	const struct options *options = trainer->options;
	const bool first = collet_comm_rank(trainer->comm) == 0;
	char why[LAYERS_WHY_BYTES] = "another rank has no GPU that it can compute on";
	if (options->device == DEVICE_CPU)
		return true;
	const uint32_t mine = could(trainer, why);
	uint32_t all = 0;
	if (options->device == DEVICE_CUDA && !mine)
		return train_fail("--device cuda: %s", why);
	if (!train_check(collet_allreduce(trainer->comm, &mine, &all, 1, COLLET_U32, COLLET_MIN, NULL),
		    "agreeing on the device"))
		return false;
	if (all)
		return use_cuda(trainer);
	if (first)
		fprintf(stderr, "collet-train: --device auto: cpu: %s\n", why);
	return true;
}
