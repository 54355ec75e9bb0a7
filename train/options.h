/* The options of collet-train. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"
#include "model/optimiser.h"

#define OPTIONS_NOT_GIVEN UINT32_MAX

/* The device that layers compute on; AUTO: GPUs if every rank has one. */
enum device { DEVICE_CPU, DEVICE_CUDA, DEVICE_AUTO };

struct options {
	const char *dataset, *data, *model;
	const char *transport, *algorithm;      /* NULL: collet's choice; algorithm: of the gradients' all-reduce */
	const char *json, *dump_parameters;     /* NULL: not asked for */
	const char *checkpoint;                 /* a file, or a folder; NULL: none */
	uint32_t checkpoint_every;              /* steps; 0: after each epoch only */
	uint32_t keep;                          /* of a folder's; 0: all */
	bool resume;
	const char *log, *plot;                 /* NULL: not asked for */
	uint32_t log_every;                     /* steps a line */
	uint64_t bucket_bytes;                  /* 0: the library's sizes */
	bool no_overlap;
	const char *trace;                      /* NULL: not asked for */
	uint32_t epochs, batch_size, steps;     /* steps 0: no limit */
	uint32_t train_samples, test_samples;   /* 0: all there are */
	const char *compress;                   /* words of collet_ddp_hook_create(); NULL: gradients are sent as f32 */
	uint32_t shards, accumulate, workers;
	const char *strategy;
	uint32_t servers, local_steps;          /* 0: not given */
	uint32_t staleness;                     /* OPTIONS_NOT_GIVEN */
	uint32_t threads;                       /* ranks that are threads of this process */
	enum precision precision;
	enum device device;
	bool tf32;
	enum optimiser optimiser;
	enum schedule_kind schedule;
	float learning_rate, momentum, weight_decay, decay_factor;
	float clip;                             /* the most that gradients' norm may be; 0: any */
	uint32_t warmup, decay_every;           /* steps; epochs */
	uint64_t seed;
	bool augment, batch_norm, sync_batch_norm, nesterov, scale_rate;
};

enum options_verdict { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_WRONG };

/* Fills the defaults and what the arguments say; strings point into them. DONE: --help or --version has been printed.
 * WRONG: a line on standard error has said what. */
enum options_verdict options_parse(struct options *options, int argc, char **argv);

#endif
