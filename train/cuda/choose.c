#include "cuda/choose.h"

#include <stdio.h>

#include "agree.h"
#include "cuda/network.h"
#include "error.h"
#include "local_rank.h"
#include "strategies/strategy.h"

extern const struct strategy strategy_allreduce_device;

static bool agree(collet_comm *comm, uint32_t mine, uint32_t *all)
{
	return train_check(
		collet_allreduce(comm, &mine, all, 1, COLLET_U32, COLLET_MIN, NULL), "agreeing on the device");
}

/* Layers come first. An initialised driver stays so until the process ends, and communicators take a single GPU for
 * the rank's. */
static bool agree_and_open(collet_comm *comm, struct gpu_device *gpu, uint32_t *all)
{
	char why[LAYERS_WHY_BYTES], driver[GPU_WHY_BYTES];
	if (!agree(comm, layers_open(why) != NULL, all))
		return false;
	return !*all || agree(comm, gpu_device_open(gpu, collet_comm_local_rank(comm), driver), all);
}

/* A communicator that knew of GPUs would ask theirs how the CPU's buffers go, so the ranks agree before. Who was told
 * of another device is at agree_on_options(), too, if in the communicator that counts. */
static bool enter_if_all_can(struct gpu_device *gpu, const struct options *options, const collet_options *comm_options)
{
	collet_comm *comm;
	uint32_t all = 0;
	if (collet_comm_create(&comm, comm_options) != COLLET_OK)
		return train_fail("%s", collet_last_error());
	const bool fine = agree_on_options(comm, options) && agree_and_open(comm, gpu, &all);
	if (!fine)
		collet_comm_abort(comm);
	collet_comm_destroy(&comm);
	if (!fine || !all)
		gpu_device_close(gpu);
	return fine;
}

bool device_enter(struct gpu_device *gpu, const struct options *options, const collet_options *comm_options)
{
	char why[GPU_WHY_BYTES];
	uint32_t local_rank;
	*gpu = (struct gpu_device){ 0 };
	if (options->device == DEVICE_CPU)
		return true;
	if (options->device == DEVICE_AUTO)
		return enter_if_all_can(gpu, options, comm_options);
	if (local_rank_find(comm_options, &local_rank) != COLLET_OK)
		return train_fail("%s", collet_last_error());
	(void)gpu_device_open(gpu, local_rank, why);
	return true;
}

/* Returns true if this rank can compute on a GPU; else sets why. */
static bool could(struct trainer *trainer, char why[LAYERS_WHY_BYTES])
{
	struct gpu_device probe;
	char driver[GPU_WHY_BYTES];
	trainer->layers = layers_open(why);
	if (!trainer->layers)
		return false;
	if (!gpu_device_open(&probe, collet_comm_local_rank(trainer->comm), driver)) {
		snprintf(why, LAYERS_WHY_BYTES, "%s", driver);
		return false;
	}
	gpu_device_close(&probe);
	return true;
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
	if (!agree(trainer->comm, mine, &all))
		return false;
	if (all)
		return use_cuda(trainer);
	if (first)
		fprintf(stderr, "collet-train: --device auto: cpu: %s\n", why);
	return true;
}
