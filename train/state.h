/* Holds one rank's state, shared by the trainer's folders: its options, its model and its progress. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include <collet/collet.h>
#include <collet/sampler.h>

#include "backend.h"
#include "checkpoint/writer.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "model/flat.h"
#include "model/model.h"
#include "model/optimiser.h"
#include "model/scaling.h"
#include "options.h"
#include "report/timeline.h"
#include "trainer.h"

struct strategy;
struct cuda_device;
struct layers_table;

/* The images of one rank (or one shard of --shards) in an epoch, as the sampler assigns them. */
struct partition {
	collet_sampler sampler;
	uint64_t *indices;
};

/* Images in the order in which a loader is asked for them, and the batches they come in (order.h). */
struct order {
	uint64_t *indices;
	uint32_t *counts;          /* of each batch */
	uint64_t batch_count;
};

struct trainer {
	collet_comm *comm;         /* of all ranks */
	collet_comm *step_comm;    /* likewise, for what steps move; NULL: the strategy has communicators of its own */
	const struct options *options;
	const struct trainer_watch *watch;
	const struct backend *backend;
	const struct strategy *strategy;
	struct cuda_device *device;          /* NULL: the CPU */
	const struct layers_table *layers;   /* on that device */
	void *strategy_state;      /* the strategy's own: its create() makes it, its destroy() frees it */

	struct dataset train, test;
	struct model model;
	struct flat flat;          /* the model in the host's memory: what is made, saved, compared and told */
	struct flat *work;         /* what steps work on: that, or, where a GPU computes, ... */
	struct flat device_flat;         /* ... this, in its memory; the host's is then as old as the last fetch() */
	struct norm_sync norm_sync;  /* with --sync-batch-norm */
	struct network *network;
	float *gathered[MODEL_PARAMETERS];  /* what earlier batches of a step have given; with --accumulate only */

	uint32_t workers;          /* ranks 0 .. workers - 1 train; the others serve them */
	uint32_t share_count;      /* whose gradients this rank computes in a step: 1, or --shards, or on a server 0 */
	double *loss_sums;         /* one a share, of this epoch */
	uint64_t share_images;     /* of each share in an epoch */
	struct partition
		*partitions; /* that this rank's loader gives out: its shares' own, unless a strategy deals them */
	uint32_t partition_count;
	struct order order, test_order;
	struct loader *loader, *test_loader;

	struct timeline *timeline;
	struct scaling scaling;
	struct schedule schedule;
	uint32_t resumed_steps;    /* that had been taken before this process began */
	uint32_t epochs_done, steps_done;  /* steps: in all epochs */
	uint32_t epoch_step;       /* steps done in the epoch under way */
	uint64_t epoch_images;     /* and how many images this rank has seen in it */
	struct trainer_epoch *history;     /* epochs done, those before a resumed run included */
	uint32_t history_count;
	struct writer writer;      /* of checkpoints */
};

#endif
