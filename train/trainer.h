/* Data-parallel training on one communicator, from loading the images to the last evaluation. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include <collet/collet.h>

#include "options.h"
#include "report/timeline.h"

struct trainer_progress {
	uint32_t epoch, step, steps;  /* in this epoch */
	double loss;                  /* mean of this rank's last batch */
	double images_per_s;          /* of all ranks */
	double accuracy;              /* 0..1, of the last batch */
	double rate;                  /* of learning, in this step */
	uint32_t steps_done;          /* in all epochs */
};

struct trainer_epoch {
	uint32_t epoch;               /* from 1 */
	double loss;                  /* mean over all images of all ranks, as they were trained on */
	double test_accuracy;         /* 0..1, every test image counted once */
	double images_per_s;          /* of all ranks, training alone */
	struct times times;           /* of a rank, in the mean over all ranks */
	uint64_t checksum;            /* of the parameters, the same on every rank */
	double seconds;               /* in which images were trained on, ... */
	double images;                /* ... and how many by all ranks: both in this run, if it was resumed */
	double rate;                  /* of learning, in its last step */
	uint32_t steps_done;          /* in all epochs */

	/* Totals of all steps so far, over all ranks. */
	const char *strategy;
	uint64_t steps;
	uint32_t workers;             /* ranks that train */
	uint64_t model_bytes;         /* all values */
	uint64_t batch_bytes;         /* the images of a batch, as they are dealt out */
	uint32_t local_steps;         /* local-sgd: from average to average; 0: there is no such thing */
	double bytes_per_step;        /* that a rank sends, in the mean */
	double busiest_bytes_per_step;/* of the rank that sends or receives most */
	uint64_t memory_bytes;        /* values, gradients, optimiser and exchange, on the rank that has most */
	uint64_t resident_bytes;      /* the most that a process has had in memory, images and code included */
	uint32_t staleness_bound;     /* async; OPTIONS_NOT_GIVEN: there is none */
	double staleness_mean;        /* steps by which a worker was ahead of the slowest when it got values */
	uint64_t staleness_most;
	double apart;                 /* gossip: how far any value is from the average, at most; < 0: nobody's is */
};

/* Called on every rank. Members may be NULL. */
struct trainer_watch {
	void (*step)(void *context, const struct trainer_progress *progress);
	bool (*epoch)(void *context, const struct trainer_epoch *epoch);  /* false ends training */
	void *context;
	/* Called with --resume, before the first step: the steps and epochs done (with loss, test accuracy and
	 * images/s); none without a checkpoint. */
	bool (*resumed)(void *context, const struct trainer_epoch *epochs, uint32_t count, uint32_t steps_done);
};

/* Collective. False, after a line on standard error: this rank has failed, and the others may be waiting for it. */
bool trainer_run(collet_comm *comm, const struct options *options, const struct trainer_watch *watch);

#endif
