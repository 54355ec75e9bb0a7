#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <collet/collet.h>

#include "error.h"
#include "strategies/strategy.h"

enum { KEPT = 5 };

static const char usage[] =
	"Usage: collet-run -n N collet-train [OPTION...]\n"
	"Trains a network on several ranks: each has the whole network and its share of the images, and gradients are\n"
	"averaged by all-reduce (or see --strategy). Without collet-run (or mpirun, torchrun), one rank trains alone.\n"
	"\n"
	"  --dataset mnist|cifar10|digits  what to learn; digits are drawn, no files needed (mnist)\n"
	"  --data DIR                where the set's files are, in DIR, DIR/mnist or DIR/cifar-10 ($COLLET_DATA)\n"
	"  --model convnet|lenet|linear|resnet20  (convnet; of cifar10: lenet)\n"
	"  --no-batch-norm           leave the model's batch-norm layers out\n"
	"  --sync-batch-norm         batch norm over all ranks' batches together\n"
	"  --precision f32|bf16|f16  what layers compute in, and gradients travel in; parameters stay f32 (f32)\n"
	"  --device cpu|cuda|auto    where layers compute: cuda: on LOCAL_RANK's GPU, shared where GPUs are fewer "
	"than\n"
	"                            ranks; auto: there, if every rank can (cpu)\n"
	"  --tf32                    on a GPU, f32 values may be rounded to TF32 where they are multiplied\n"
	"  --augment                 shift images by up to 4 pixels, mirror them (not digits), by seed and epoch\n"
	"  --workers N               threads a rank that make batches ahead (0)\n"
	"  --epochs N                passes over the training images (1)\n"
	"  --batch-size N            images a step and rank (100)\n"
	"  --lr R                    learning rate (0.01)\n"
	"  --optimizer sgd|adamw     (sgd)\n"
	"  --momentum M              of sgd (0.9)\n"
	"  --nesterov                sgd looks one step ahead\n"
	"  --weight-decay W          (0)\n"
	"  --schedule constant|step|cosine  of the learning rate: the same, stepwise, or down to 0 (constant)\n"
	"  --decay-every N           of step: epochs (10)\n"
	"  --decay-factor F          of step (0.1)\n"
	"  --warmup N                steps in which the rate grows from near 0 (0)\n"
	"  --scale-lr                learning rate times ranks, for a batch that is larger by as much\n"
	"  --clip NORM               scale gradients down to this norm (no limit)\n"
	"  --accumulate N            batches a rank adds up before a step (1)\n"
	"  --compress WORDS          gradients travel as f16, bf16, topk:R, randomk:R, qsgd:8|4|2, sign, powersgd:K\n"
	"  --seed N                  of first values and order of images (0)\n"
	"  --steps N                 stop after N steps, and evaluate (no limit)\n"
	"  --train-samples N         use the first N training images only (all)\n"
	"  --test-samples N          use the first N test images only (all)\n"
	"  --shards N                one rank computes N ranks' shares in turn and adds their gradients in rank order "
	"(1)\n"
	"  --strategy NAME           how ranks work together (allreduce)\n"
	"      allreduce             gradients are averaged by all-reduce, in buckets, while backward goes on\n"
	"      gather                rank 0 gathers all gradients and sends the mean back\n"
	"      data-parallel         rank 0 deals out values and a large batch, and steps by the reduced gradients\n"
	"      parameter-server      the last --servers ranks each own a part of the model, and step it\n"
	"      async                 the same, but workers go on, at most --staleness steps ahead of the slowest\n"
	"      gossip                each rank averages its values with two neighbours'\n"
	"      local-sgd             each rank steps on its own; every --local-steps steps values are averaged\n"
	"      sharded               each rank steps its part of the model: an n-th of the optimiser's memory (ZeRO)\n"
	"  --servers S               of parameter-server and async (1)\n"
	"  --staleness K             of async (2)\n"
	"  --local-steps H           of local-sgd (8)\n"
	"  --threads N               ranks are N threads of this process, without collet-run (1)\n"
	"  --transport NAMES         only these transports: shm, tcp\n"
	"  --algorithm NAME          of the all-reduce of gradients: ring, direct, ... (chosen by size)\n"
	"  --checkpoint FILE|DIR     save all that it takes to go on, after every epoch; in a folder, each by itself\n"
	"  --checkpoint-every N      and every N steps\n"
	"  --keep N                  of a folder's checkpoints the newest N; 0: all of them (5)\n"
	"  --resume                  go on from the last checkpoint, if there is one\n"
	"  --log FILE                one JSON object every --log-every N steps (50), and one an epoch\n"
	"  --plot FILE.svg           loss, accuracy and images/s by epoch, by gnuplot\n"
	"  --json FILE               one object an epoch, on a line of its own; - for standard output\n"
	"  --bucket-bytes N          gradients travel in buckets of this many bytes, K or M behind it: KiB, MiB (25M,\n"
	"                            the first one 1M)\n"
	"  --no-overlap              gradients travel when all of them are there, not during backward\n"
	"  --trace FILE              what each rank did when, and where buckets were, for Perfetto, chrome://tracing\n"
	"  --dump-parameters FILE    the trained parameters, f32 in the machine's byte order, in the model's order\n"
	"  --help, --version\n";

enum chosen {
	OPTION_DATASET = 1,
	OPTION_DATA,
	OPTION_MODEL,
	OPTION_NO_BATCH_NORM,
	OPTION_SYNC_BATCH_NORM,
	OPTION_PRECISION,
	OPTION_DEVICE,
	OPTION_TF32,
	OPTION_AUGMENT,
	OPTION_WORKERS,
	OPTION_EPOCHS,
	OPTION_BATCH_SIZE,
	OPTION_LR,
	OPTION_OPTIMIZER,
	OPTION_MOMENTUM,
	OPTION_NESTEROV,
	OPTION_WEIGHT_DECAY,
	OPTION_SCHEDULE,
	OPTION_DECAY_EVERY,
	OPTION_DECAY_FACTOR,
	OPTION_WARMUP,
	OPTION_SCALE_LR,
	OPTION_CLIP,
	OPTION_ACCUMULATE,
	OPTION_COMPRESS,
	OPTION_SEED,
	OPTION_STEPS,
	OPTION_TRAIN_SAMPLES,
	OPTION_TEST_SAMPLES,
	OPTION_SHARDS,
	OPTION_STRATEGY,
	OPTION_SERVERS,
	OPTION_STALENESS,
	OPTION_LOCAL_STEPS,
	OPTION_THREADS,
	OPTION_TRANSPORT,
	OPTION_ALGORITHM,
	OPTION_CHECKPOINT,
	OPTION_CHECKPOINT_EVERY,
	OPTION_KEEP,
	OPTION_RESUME,
	OPTION_LOG,
	OPTION_LOG_EVERY,
	OPTION_PLOT,
	OPTION_JSON,
	OPTION_BUCKET_BYTES,
	OPTION_NO_OVERLAP,
	OPTION_TRACE,
	OPTION_DUMP_PARAMETERS,
	OPTION_HELP,
	OPTION_VERSION
};

static const struct option table[] = {
	{ "dataset", required_argument, NULL, OPTION_DATASET },
	{ "data", required_argument, NULL, OPTION_DATA },
	{ "model", required_argument, NULL, OPTION_MODEL },
	{ "no-batch-norm", no_argument, NULL, OPTION_NO_BATCH_NORM },
	{ "sync-batch-norm", no_argument, NULL, OPTION_SYNC_BATCH_NORM },
	{ "precision", required_argument, NULL, OPTION_PRECISION },
	{ "device", required_argument, NULL, OPTION_DEVICE },
	{ "tf32", no_argument, NULL, OPTION_TF32 },
	{ "augment", no_argument, NULL, OPTION_AUGMENT },
	{ "workers", required_argument, NULL, OPTION_WORKERS },
	{ "epochs", required_argument, NULL, OPTION_EPOCHS },
	{ "batch-size", required_argument, NULL, OPTION_BATCH_SIZE },
	{ "lr", required_argument, NULL, OPTION_LR },
	{ "optimizer", required_argument, NULL, OPTION_OPTIMIZER },
	{ "momentum", required_argument, NULL, OPTION_MOMENTUM },
	{ "nesterov", no_argument, NULL, OPTION_NESTEROV },
	{ "weight-decay", required_argument, NULL, OPTION_WEIGHT_DECAY },
	{ "schedule", required_argument, NULL, OPTION_SCHEDULE },
	{ "decay-every", required_argument, NULL, OPTION_DECAY_EVERY },
	{ "decay-factor", required_argument, NULL, OPTION_DECAY_FACTOR },
	{ "warmup", required_argument, NULL, OPTION_WARMUP },
	{ "scale-lr", no_argument, NULL, OPTION_SCALE_LR },
	{ "clip", required_argument, NULL, OPTION_CLIP },
	{ "accumulate", required_argument, NULL, OPTION_ACCUMULATE },
	{ "compress", required_argument, NULL, OPTION_COMPRESS },
	{ "seed", required_argument, NULL, OPTION_SEED },
	{ "steps", required_argument, NULL, OPTION_STEPS },
	{ "train-samples", required_argument, NULL, OPTION_TRAIN_SAMPLES },
	{ "test-samples", required_argument, NULL, OPTION_TEST_SAMPLES },
	{ "shards", required_argument, NULL, OPTION_SHARDS },
	{ "strategy", required_argument, NULL, OPTION_STRATEGY },
	{ "servers", required_argument, NULL, OPTION_SERVERS },
	{ "staleness", required_argument, NULL, OPTION_STALENESS },
	{ "local-steps", required_argument, NULL, OPTION_LOCAL_STEPS },
	{ "threads", required_argument, NULL, OPTION_THREADS },
	{ "transport", required_argument, NULL, OPTION_TRANSPORT },
	{ "algorithm", required_argument, NULL, OPTION_ALGORITHM },
	{ "checkpoint", required_argument, NULL, OPTION_CHECKPOINT },
	{ "checkpoint-every", required_argument, NULL, OPTION_CHECKPOINT_EVERY },
	{ "keep", required_argument, NULL, OPTION_KEEP },
	{ "resume", no_argument, NULL, OPTION_RESUME },
	{ "log", required_argument, NULL, OPTION_LOG },
	{ "log-every", required_argument, NULL, OPTION_LOG_EVERY },
	{ "plot", required_argument, NULL, OPTION_PLOT },
	{ "json", required_argument, NULL, OPTION_JSON },
	{ "bucket-bytes", required_argument, NULL, OPTION_BUCKET_BYTES },
	{ "no-overlap", no_argument, NULL, OPTION_NO_OVERLAP },
	{ "trace", required_argument, NULL, OPTION_TRACE },
	{ "dump-parameters", required_argument, NULL, OPTION_DUMP_PARAMETERS },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ NULL, 0, NULL, 0 },
};

static const char *name_of(int option)
{
	for (size_t i = 0; table[i].name; i++)
		if (table[i].val == option)
			return table[i].name;
	return "?";
}

static bool parse_u64(int option, const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
	char *end;
	errno = 0;
	const unsigned long long parsed = strtoull(text, &end, 10);
	/* strtoull takes signs and spaces */
	if (*text < '0' || *text > '9' || *end || errno || parsed < low || parsed > high)
		return train_fail("--%s %s: not a whole number from %llu to %llu", name_of(option), text,
			(unsigned long long)low, (unsigned long long)high);
	*value = parsed;
	return true;
}

static bool parse_u32(int option, const char *text, uint32_t low, uint32_t high, uint32_t *value)
{
	uint64_t wide;
	if (!parse_u64(option, text, low, high, &wide))
		return false;
	*value = (uint32_t)wide;
	return true;
}

/* With K or M behind it, units of 1024 or 1024 x 1024 bytes. */
static bool parse_bytes(int option, const char *text, uint64_t *value)
{
	char *end;
	errno = 0;
	const unsigned long long parsed = strtoull(text, &end, 10);
	const unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
	end += shift > 0;
	if (*text < '0' || *text > '9' || *end || errno || parsed < 1 || parsed > UINT64_C(1) << 40 >> shift)
		return train_fail("--%s %s: not a number of bytes from 1 to 2^40, such as 65536, 64K or 1M",
			name_of(option), text);
	*value = (uint64_t)parsed << shift;
	return true;
}

static bool parse_float(int option, const char *text, float high, float *value)
{
	char *end;
	const float parsed = strtof(text, &end);
	if (end == text || *end || !(parsed >= 0 && parsed <= high))
		return train_fail("--%s %s: not a number from 0 to %g", name_of(option), text, (double)high);
	*value = parsed;
	return true;
}

/* *which: its place among the names, which end with NULL. */
static bool parse_word(int option, const char *text, const char *const *names, int *which)
{
	for (int i = 0; names[i]; i++) {
		if (strcmp(names[i], text) != 0)
			continue;
		*which = i;
		return true;
	}
	return train_fail("--%s %s: there is no such thing; collet-train --help lists them", name_of(option), text);
}

/* What an option without an argument sets; NULL: it has one. */
static bool *flag_of(struct options *options, int option)
{
	switch (option) {
	case OPTION_NO_BATCH_NORM: return &options->batch_norm;
	case OPTION_SYNC_BATCH_NORM: return &options->sync_batch_norm;
	case OPTION_TF32: return &options->tf32;
	case OPTION_AUGMENT: return &options->augment;
	case OPTION_NESTEROV: return &options->nesterov;
	case OPTION_SCALE_LR: return &options->scale_rate;
	case OPTION_RESUME: return &options->resume;
	case OPTION_NO_OVERLAP: return &options->no_overlap;
	}
	return NULL;
}

/* What an option sets whose argument is taken as it is; NULL: it is not. */
static const char **text_of(struct options *options, int option)
{
	switch (option) {
	case OPTION_DATASET: return &options->dataset;
	case OPTION_DATA: return &options->data;
	case OPTION_MODEL: return &options->model;
	case OPTION_COMPRESS: return &options->compress;
	case OPTION_STRATEGY: return &options->strategy;
	case OPTION_TRANSPORT: return &options->transport;
	case OPTION_ALGORITHM: return &options->algorithm;
	case OPTION_CHECKPOINT: return &options->checkpoint;
	case OPTION_LOG: return &options->log;
	case OPTION_PLOT: return &options->plot;
	case OPTION_JSON: return &options->json;
	case OPTION_TRACE: return &options->trace;
	case OPTION_DUMP_PARAMETERS: return &options->dump_parameters;
	}
	return NULL;
}

/* One word of a few. */
static bool take_word(struct options *options, int option, const char *const *names, const char *argument)
{
	int which = 0;
	if (!parse_word(option, argument, names, &which))
		return false;
	switch (option) {
	case OPTION_PRECISION: options->precision = (enum precision)which; break;
	case OPTION_DEVICE: options->device = (enum device)which; break;
	case OPTION_OPTIMIZER: options->optimiser = (enum optimiser)which; break;
	case OPTION_SCHEDULE: options->schedule = (enum schedule_kind)which; break;
	}
	return true;
}

static bool take_number(struct options *options, int option, const char *argument)
{
	switch (option) {
	case OPTION_WORKERS: return parse_u32(option, argument, 0, 64, &options->workers);
	case OPTION_EPOCHS: return parse_u32(option, argument, 1, 1000000, &options->epochs);
	case OPTION_BATCH_SIZE: return parse_u32(option, argument, 1, 65536, &options->batch_size);
	case OPTION_LR: return parse_float(option, argument, 1000, &options->learning_rate);
	case OPTION_MOMENTUM: return parse_float(option, argument, 1, &options->momentum);
	case OPTION_WEIGHT_DECAY: return parse_float(option, argument, 1000, &options->weight_decay);
	case OPTION_DECAY_EVERY: return parse_u32(option, argument, 1, 1000000, &options->decay_every);
	case OPTION_DECAY_FACTOR: return parse_float(option, argument, 1, &options->decay_factor);
	case OPTION_WARMUP: return parse_u32(option, argument, 0, UINT32_MAX, &options->warmup);
	case OPTION_CLIP: return parse_float(option, argument, 1e30F, &options->clip);
	case OPTION_ACCUMULATE: return parse_u32(option, argument, 1, 4096, &options->accumulate);
	case OPTION_SEED: return parse_u64(option, argument, 0, UINT64_MAX, &options->seed);
	case OPTION_STEPS: return parse_u32(option, argument, 1, UINT32_MAX, &options->steps);
	case OPTION_TRAIN_SAMPLES: return parse_u32(option, argument, 1, UINT32_MAX, &options->train_samples);
	case OPTION_TEST_SAMPLES: return parse_u32(option, argument, 1, UINT32_MAX, &options->test_samples);
	case OPTION_SHARDS: return parse_u32(option, argument, 1, 4096, &options->shards);
	case OPTION_SERVERS: return parse_u32(option, argument, 1, 4096, &options->servers);
	case OPTION_STALENESS: return parse_u32(option, argument, 0, 1000000, &options->staleness);
	case OPTION_LOCAL_STEPS: return parse_u32(option, argument, 1, 1000000, &options->local_steps);
	case OPTION_THREADS: return parse_u32(option, argument, 1, 4096, &options->threads);
	case OPTION_CHECKPOINT_EVERY: return parse_u32(option, argument, 1, UINT32_MAX, &options->checkpoint_every);
	case OPTION_KEEP: return parse_u32(option, argument, 0, 1000000, &options->keep);
	case OPTION_LOG_EVERY: return parse_u32(option, argument, 1, UINT32_MAX, &options->log_every);
	case OPTION_BUCKET_BYTES: return parse_bytes(option, argument, &options->bucket_bytes);
	}
	return train_fail("collet-train --help lists what it takes");  /* getopt has said what is wrong */
}

static bool take(struct options *options, int option, const char *argument)
{
	/* In the order of their enumerators. */
	static const char *const precisions[] = { "f32", "bf16", "f16", NULL };
	static const char *const devices[] = { "cpu", "cuda", "auto", NULL };
	static const char *const optimisers[] = { "sgd", "adamw", NULL };
	static const char *const schedules[] = { "constant", "step", "cosine", NULL };
	bool *flag = flag_of(options, option);
	const char **text = text_of(options, option);
	if (flag)
		*flag = option != OPTION_NO_BATCH_NORM;
	if (text)
		*text = argument;
	if (flag || text)
		return true;
	switch (option) {
	case OPTION_PRECISION: return take_word(options, option, precisions, argument);
	case OPTION_DEVICE: return take_word(options, option, devices, argument);
	case OPTION_OPTIMIZER: return take_word(options, option, optimisers, argument);
	case OPTION_SCHEDULE: return take_word(options, option, schedules, argument);
	}
	return take_number(options, option, argument);
}

/* What does not go together is refused; what was not said follows from the rest. */
static bool settle(struct options *options)
{
	if (options->sync_batch_norm && options->shards > 1)
		return train_fail("--sync-batch-norm is for ranks that compute at once: not with --shards");
	if (options->shards > 1 && options->precision != PRECISION_F32)
		return train_fail("--shards goes with --precision f32 only");
	if (options->shards > 1 && (options->compress || options->accumulate > 1))
		return train_fail("--shards goes neither with --compress nor with --accumulate");
	if ((options->resume || options->checkpoint_every > 0) && !options->checkpoint)
		return train_fail(
			"%s: say where with --checkpoint", options->resume ? "--resume" : "--checkpoint-every");
	if (options->tf32 && (options->device == DEVICE_CPU || options->precision != PRECISION_F32))
		return train_fail("--tf32 is for --device cuda with --precision f32");
	if (options->keep != OPTIONS_NOT_GIVEN && !options->checkpoint)
		return train_fail("--keep: say where with --checkpoint");
	if (options->keep == OPTIONS_NOT_GIVEN)
		options->keep = KEPT;
	if (!strategy_fits(options))
		return false;
	if (!options->model)
		options->model = strcmp(options->dataset, "cifar10") == 0 ? "lenet" : "convnet";
	return true;
}

enum options_verdict options_parse(struct options *options, int argc, char **argv)
{
	const char *data = getenv("COLLET_DATA");
	*options = (struct options){ .dataset = "mnist", .data = data && *data ? data : NULL,
		.epochs = 1, .batch_size = 100, .shards = 1, .accumulate = 1, .log_every = 50,
		.keep = OPTIONS_NOT_GIVEN,
		.decay_every = 10, .decay_factor = 0.1F, .learning_rate = 0.01F, .momentum = 0.9F,
		.batch_norm = true, .strategy = "allreduce", .staleness = OPTIONS_NOT_GIVEN, .threads = 1 };
	optind = 1;
	int option;
	while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
		if (option == OPTION_HELP) {
			fputs(usage, stdout);
			return OPTIONS_DONE;
		}
		if (option == OPTION_VERSION) {
			printf("collet-train %s\n", collet_version());
			return OPTIONS_DONE;
		}
		if (!take(options, option, optarg))
			return OPTIONS_WRONG;
	}
	if (optind < argc) {
		train_fail("%s: not an option; collet-train --help lists them", argv[optind]);
		return OPTIONS_WRONG;
	}
	return settle(options) ? OPTIONS_RUN : OPTIONS_WRONG;
}
