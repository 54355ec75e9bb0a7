#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <collet/collet.h>
#include <collet/ddp_hook.h>

#include "data/dataset.h"
#include "error.h"
#include "model/model.h"
#include "option_table.h"
#include "strategies/strategy.h"

enum { KEPT = 5 };

/* The target of the table. */
struct command_line {
	struct options options;
	bool help, version;
};

/* Names in the order of their enumerators. */
static const char *const precisions[] = { "f32", "bf16", "f16", NULL };
static const char *const devices[] = { "cpu", "cuda", "auto", NULL };
static const char *const optimisers[] = { "sgd", "adamw", NULL };
static const char *const schedules[] = { "constant", "step", "cosine", NULL };

#define AT(member) OPTION_MEMBER(struct command_line, member)
#define FLAG(member, value) OPTION_SET, AT(options.member), (value)
#define TEXT(member) OPTION_TEXT, AT(options.member)
#define NUMBER(member, least, most) OPTION_NUMBER, AT(options.member), (least), (most)
#define REAL(member, most) OPTION_REAL, AT(options.member), .high = (most)
#define CHOICE(member, names) OPTION_CHOICE, AT(options.member), .choices = (names)

static const struct option_row rows[] = {
	{ "dataset", "mnist|cifar10|digits", "what to learn; digits are drawn, no files needed (mnist)",
		TEXT(dataset) },
	{ "data", "DIR", "where the set's files are, in DIR, DIR/mnist or DIR/cifar-10 ($COLLET_DATA)", TEXT(data) },
	{ "model", "convnet|lenet|linear|resnet20", "(convnet; of cifar10: lenet)", TEXT(model) },
	{ "no-batch-norm", NULL, "leave the model's batch-norm layers out", FLAG(batch_norm, false) },
	{ "sync-batch-norm", NULL, "batch norm over all ranks' batches together", FLAG(sync_batch_norm, true) },
	{ "precision", NULL, "what layers compute in, and gradients travel in; parameters stay f32 (f32)",
		CHOICE(precision, precisions) },
	{ "device", NULL,
		"where layers compute: cuda: on LOCAL_RANK's GPU, shared where GPUs are fewer than\n"
		"ranks; auto: there, if every rank can (cpu)",
		CHOICE(device, devices) },
	{ "tf32", NULL, "on a GPU, f32 values may be rounded to TF32 where they are multiplied", FLAG(tf32, true) },
	{ "augment", NULL, "shift images by up to 4 pixels, mirror them (not digits), by seed and epoch",
		FLAG(augment, true) },
	{ "workers", "N", "threads a rank that make batches ahead (0)", NUMBER(workers, 0, 64) },
	{ "epochs", "N", "passes over the training images (1)", NUMBER(epochs, 1, 1000000) },
	{ "batch-size", "N", "images a step and rank (100)", NUMBER(batch_size, 1, 65536) },
	{ "lr", "R", "learning rate (0.01)", REAL(learning_rate, 1000) },
	{ "optimizer", NULL, "(sgd)", CHOICE(optimiser, optimisers) },
	{ "momentum", "M", "of sgd (0.9)", REAL(momentum, 1) },
	{ "nesterov", NULL, "sgd looks one step ahead", FLAG(nesterov, true) },
	{ "weight-decay", "W", "(0)", REAL(weight_decay, 1000) },
	{ "schedule", NULL, "of the learning rate: the same, stepwise, or down to 0 (constant)",
		CHOICE(schedule, schedules) },
	{ "decay-every", "N", "of step: epochs (10)", NUMBER(decay_every, 1, 1000000) },
	{ "decay-factor", "F", "of step (0.1)", REAL(decay_factor, 1) },
	{ "warmup", "N", "steps in which the rate grows from near 0 (0)", NUMBER(warmup, 0, UINT32_MAX) },
	{ "scale-lr", NULL, "learning rate times ranks, for a batch that is larger by as much",
		FLAG(scale_rate, true) },
	{ "clip", "NORM", "scale gradients down to this norm (no limit)", REAL(clip, 1e30F) },
	{ "accumulate", "N", "batches a rank adds up before a step (1)", NUMBER(accumulate, 1, 4096) },
	{ "compress", "WORDS", "gradients travel as f16, bf16, topk:R, randomk:R, qsgd:8|4|2, sign, powersgd:K",
		TEXT(compress) },
	{ "seed", "N", "of first values and order of images (0)", NUMBER(seed, 0, UINT64_MAX) },
	{ "steps", "N", "stop after N steps, and evaluate (no limit)", NUMBER(steps, 1, UINT32_MAX) },
	{ "train-samples", "N", "use the first N training images only (all)", NUMBER(train_samples, 1, UINT32_MAX) },
	{ "test-samples", "N", "use the first N test images only (all)", NUMBER(test_samples, 1, UINT32_MAX) },
	{ "shards", "N", "one rank computes N ranks' shares in turn and adds their gradients in rank order (1)",
		NUMBER(shards, 1, 4096) },
	{ "strategy", "NAME", "how ranks work together, see below (allreduce)", TEXT(strategy) },
	{ "servers", "S", "of parameter-server and async (1)", NUMBER(servers, 1, 4096) },
	{ "staleness", "K", "of async (2)", NUMBER(staleness, 0, 1000000) },
	{ "local-steps", "H", "of local-sgd (8)", NUMBER(local_steps, 1, 1000000) },
	{ "threads", "N", "ranks are N threads of this process, without collet-run (1)", NUMBER(threads, 1, 4096) },
	{ "transport", "NAMES", "only these transports: shm, tcp", TEXT(transport) },
	{ "algorithm", "NAME", "of the all-reduce of gradients: ring, direct, ... (chosen by size)", TEXT(algorithm) },
	{ "checkpoint", "FILE|DIR", "save all that it takes to go on, after every epoch; in a folder, each by itself",
		TEXT(checkpoint) },
	{ "checkpoint-every", "N", "and every N steps", NUMBER(checkpoint_every, 1, UINT32_MAX) },
	{ "keep", "N", "of a folder's checkpoints the newest N; 0: all of them (5)", NUMBER(keep, 0, 1000000) },
	{ "resume", NULL, "go on from the last checkpoint, if there is one", FLAG(resume, true) },
	{ "log", "FILE", "one JSON object every --log-every N steps (50), and one an epoch", TEXT(log) },
	{ "log-every", "N", NULL, NUMBER(log_every, 1, UINT32_MAX) },
	{ "plot", "FILE.svg", "loss, accuracy and images/s by epoch, by gnuplot", TEXT(plot) },
	{ "json", "FILE", "one object an epoch, on a line of its own; - for standard output", TEXT(json) },
	{ "bucket-bytes", "N",
		"gradients travel in buckets of this many bytes, K or M behind it: KiB, MiB (25M,\nthe first one 1M)",
		NUMBER(bucket_bytes, 1, UINT64_C(1) << 40), .units = "KM",
		.expects = "a number of bytes from 1 to 2^40, such as 65536, 64K or 1M" },
	{ "no-overlap", NULL, "gradients travel when all of them are there, not during backward",
		FLAG(no_overlap, true) },
	{ "trace", "FILE", "what each rank did when, and where buckets were, for Perfetto, chrome://tracing",
		TEXT(trace) },
	{ "dump-parameters", "FILE", "the trained parameters, f32 in the machine's byte order, in the model's order",
		TEXT(dump_parameters) },
	{ "help", NULL, "print this and exit", OPTION_SET, AT(help), true, .ends = true },
	{ "version", NULL, "print the version and exit", OPTION_SET, AT(version), true, .ends = true },
};

static const char intro[] =
	"Usage: collet-run -n N collet-train [OPTION...]\n"
	"Trains a network on several ranks: each has the whole network and its share of the images, and gradients are\n"
	"averaged by all-reduce (or see --strategy). Without collet-run (or mpirun, torchrun), one rank trains alone.\n"
	"\n";

static const char outro[] =
	"\n"
	"Strategies:\n"
	"  allreduce                gradients are averaged by all-reduce, in buckets, while backward goes on\n"
	"  gather                   rank 0 gathers all gradients and sends the mean back\n"
	"  data-parallel            rank 0 deals out values and a large batch, and steps by the reduced gradients\n"
	"  parameter-server         the last --servers ranks each own a part of the model, and step it\n"
	"  async                    the same, but workers go on, at most --staleness steps ahead of the slowest\n"
	"  gossip                   each rank averages its values with two neighbours'\n"
	"  local-sgd                each rank steps on its own; every --local-steps steps values are averaged\n"
	"  sharded                  each rank steps its part of the model: an n-th of the optimiser's memory (ZeRO)\n";

static const struct option_table table = {
	.program = "collet-train",
	.refusal = "not",
	.rows = rows,
	.count = sizeof(rows) / sizeof(rows[0]),
	.intro = intro,
	.outro = outro,
};

/* Makes a hook only to see that its words are right: a mistake in them is found before the ranks meet. */
static bool check_compress(const char *words)
{
	collet_ddp_hook *hook = NULL;
	return (collet_ddp_hook_create(&hook, words, 0) == COLLET_OK && collet_ddp_hook_destroy(&hook) == COLLET_OK) ||
		train_fail("--compress: %s", collet_last_error());
}

/* Refuses options that exclude each other, and fills in missing ones. */
static bool complete_options(struct options *options)
{
	if (!train_check_name("data set", options->dataset, dataset_names) ||
		(options->model && !train_check_name("model", options->model, model_names)) ||
		(options->compress && !check_compress(options->compress)))
		return false;
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
	struct command_line line = { .options = { .dataset = "mnist",
					     .data = data && *data ? data : NULL,
					     .epochs = 1,
					     .batch_size = 100,
					     .shards = 1,
					     .accumulate = 1,
					     .log_every = 50,
					     .keep = OPTIONS_NOT_GIVEN,
					     .decay_every = 10,
					     .decay_factor = 0.1F,
					     .learning_rate = 0.01F,
					     .momentum = 0.9F,
					     .batch_norm = true,
					     .strategy = "allreduce",
					     .staleness = OPTIONS_NOT_GIVEN,
					     .threads = 1 } };
	char problem[OPTION_PROBLEM_BYTES];
	const int words = option_table_parse(&table, argc, argv, &line, NULL, problem);
	*options = line.options;
	if (words < 0) {
		train_fail("%s", problem);
		return OPTIONS_WRONG;
	}
	if (line.help)
		option_table_print(&table, stdout);
	if (line.version)
		printf("collet-train %s\n", collet_version());
	if (line.help || line.version)
		return OPTIONS_DONE;
	if (words < argc) {
		train_fail("%s: not an option; collet-train --help lists them", argv[words]);
		return OPTIONS_WRONG;
	}
	return complete_options(options) ? OPTIONS_RUN : OPTIONS_WRONG;
}
