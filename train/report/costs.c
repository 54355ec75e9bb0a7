#include "report/costs.h"

#include <sys/resource.h>

#include "error.h"
#include "strategies/strategy.h"

/* Counts an image's bytes as they are dealt out. */
static uint64_t image_bytes(const struct trainer *trainer)
{
	const struct shape shape = trainer->train.shape;
	const uint64_t pixels = (uint64_t)shape.channels * shape.height * shape.width;
	return trainer->backend->makes_images ? pixels + sizeof(struct placement) : pixels * sizeof(float);
}

static uint64_t resident_bytes(void)
{
	struct rusage usage;
	return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

bool costs_fill(struct trainer *trainer, struct trainer_epoch *epoch)
{
	struct traffic traffic;
	if (!trainer->strategy->traffic(trainer, &traffic))
		return false;
	uint64_t sent = traffic.sent;
	uint64_t most[] = { traffic.sent > traffic.received ? traffic.sent : traffic.received, trainer->work->bytes,
		resident_bytes() };
	if (!train_check(collet_allreduce(trainer->comm, &sent, &sent, 1, COLLET_U64, COLLET_SUM, NULL),
		    "adding up costs") ||
		!train_check(collet_allreduce(trainer->comm, most, most, 3, COLLET_U64, COLLET_MAX, NULL),
			"comparing costs"))
		return false;
	const uint32_t taken = trainer->steps_done - trainer->resumed_steps;
	const double steps = taken > 0 ? taken : 1;
	epoch->strategy = trainer->strategy->name;
	epoch->steps = taken;
	epoch->workers = trainer->workers;
	epoch->model_bytes = trainer->flat.count * sizeof(float);
	epoch->batch_bytes = image_bytes(trainer) * trainer->options->batch_size;
	epoch->bytes_per_step = (double)sent / steps / collet_comm_size(trainer->comm);
	epoch->busiest_bytes_per_step = (double)most[0] / steps;
	epoch->memory_bytes = most[1];
	epoch->resident_bytes = most[2];
	epoch->staleness_bound = OPTIONS_NOT_GIVEN;
	epoch->apart = -1;
	return !trainer->strategy->report || trainer->strategy->report(trainer, epoch);
}
