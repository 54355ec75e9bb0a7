/* Reading the command line strictly: an unknown word, an option that the command has no use for, a number with
 * something behind it are refused. */
#include "options.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <collet/tools.h>

enum {
	OPT_TRANSPORT = 256,
	OPT_ALGORITHM,
	OPT_PIECES,
	OPT_CHANNELS,
	OPT_DTYPE,
	OPT_OP,
	OPT_ROOT,
	OPT_SIZES,
	OPT_SECONDS,
	OPT_ITERS,
	OPT_IN_PLACE,
	OPT_BUFFERS,
	OPT_COLD,
	OPT_SYNC,
	OPT_NO_PIN,
	OPT_JSON,
	OPT_WITH,
	OPT_VARIANTS,
	OPT_REPEATS,
	OPT_PLOT,
	OPT_MARKDOWN,
	OPT_BASELINE,
	OPT_OUTPUT,
	OPT_CHECK,
	OPT_POINTS,
	OPT_STRATEGIES,
	OPT_PREDICT,
	OPT_DEVICE,
	OPT_THREADS,
	OPT_STREAM,
	OPT_GRAPH,
	OPT_VERSION
};

static const struct option long_options[] = {
	{ "ranks", required_argument, NULL, 'n' },
	{ "transport", required_argument, NULL, OPT_TRANSPORT },
	{ "algorithm", required_argument, NULL, OPT_ALGORITHM },
	{ "pieces", required_argument, NULL, OPT_PIECES },
	{ "channels", required_argument, NULL, OPT_CHANNELS },
	{ "dtype", required_argument, NULL, OPT_DTYPE },
	{ "op", required_argument, NULL, OPT_OP },
	{ "root", required_argument, NULL, OPT_ROOT },
	{ "sizes", required_argument, NULL, OPT_SIZES },
	{ "seconds", required_argument, NULL, OPT_SECONDS },
	{ "iters", required_argument, NULL, OPT_ITERS },
	{ "in-place", no_argument, NULL, OPT_IN_PLACE },
	{ "buffers", required_argument, NULL, OPT_BUFFERS },
	{ "cold", no_argument, NULL, OPT_COLD },
	{ "sync", no_argument, NULL, OPT_SYNC },
	{ "no-pin", no_argument, NULL, OPT_NO_PIN },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "with", required_argument, NULL, OPT_WITH },
	{ "variants", required_argument, NULL, OPT_VARIANTS },
	{ "repeats", required_argument, NULL, OPT_REPEATS },
	{ "plot", required_argument, NULL, OPT_PLOT },
	{ "markdown", required_argument, NULL, OPT_MARKDOWN },
	{ "baseline", required_argument, NULL, OPT_BASELINE },
	{ "output", required_argument, NULL, OPT_OUTPUT },
	{ "points", required_argument, NULL, OPT_POINTS },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "strategies", required_argument, NULL, OPT_STRATEGIES },
	{ "predict", required_argument, NULL, OPT_PREDICT },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "stream", no_argument, NULL, OPT_STREAM },
	{ "graph", no_argument, NULL, OPT_GRAPH },
	{ "threads", no_argument, NULL, OPT_THREADS },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ 0 },
};

enum collective_word { NONE, ONE, SOME, SOME_OR_NONE };

/* The words that are no collective. */
static const struct {
	const char *word;
	enum bench_command_kind command;
	enum collective_word collective;   /* what follows */
	const char *sizes;
	double seconds;
	uint32_t repeats;   /* 0: it does not repeat */
} commands[] = {
	{ "", BENCH_COMMAND_MEASURE, ONE, "4:256M:x4", 0.3, 0 },
	{ "list", BENCH_COMMAND_LIST, NONE, "0", 0, 0 },
	{ "explain", BENCH_COMMAND_EXPLAIN, ONE, "4:256M:x4", 0, 0 },
	{ "limits", BENCH_COMMAND_LIMITS, NONE, "1M,16M,64M", 0.1, 0 },
	{ "init", BENCH_COMMAND_INIT, NONE, "0", 0, 0 },
	{ "faults", BENCH_COMMAND_FAULTS, NONE, "0", 0, 10 },
	{ "overlap", BENCH_COMMAND_OVERLAP, ONE, "16M", 0, 9 },
	{ "request", BENCH_COMMAND_REQUEST, ONE, "8", 0.3, 9 },
	{ "waiting", BENCH_COMMAND_WAITING, ONE, "4", 0, 10 },
	{ "compare", BENCH_COMMAND_COMPARE, SOME, "4,1K,16K,256K,1M,16M,64M", 0.1, 5 },
	{ "tune", BENCH_COMMAND_TUNE, SOME_OR_NONE, "8,512,4K,16K,64K,256K,1M,4M,16M", 0.003, 1 },
	{ "training", BENCH_COMMAND_TRAINING, NONE, "0", 0, 1 },
	{ "driver", BENCH_COMMAND_DRIVER, NONE, "0", 0, 0 },
};

/* What was given, before it is known what for. */
struct given {
	const char *sizes;
	double seconds;   /* < 0: not given */
	const char *stray;   /* an option of compare alone */
	const char *for_tune;   /* of tune alone */
	const char *for_training;   /* of training alone */
	const char *for_device;   /* of collectives and limits */
};

static bool fail(char problem[256], const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(char problem[256], const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(problem, 256, format, arguments);
	va_end(arguments);
	return false;
}

static bool parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	return bench_bytes_parse(text, text + strlen(text), value) && *value >= least && *value <= most;
}

static bool parse_seconds(const char *text, double *seconds)
{
	char *end;
	const double value = strtod(text, &end);
	if (end == text || *end != '\0' || !(value > 0 && value <= 3600))
		return false;
	*seconds = value;
	return true;
}

static bool take_number(const char *name, uint64_t least, uint64_t most, uint64_t *value, char problem[256])
{
	if (parse_number(optarg, least, most, value))
		return true;
	return fail(problem, "--%s %s: expected a number from %llu to %llu", name, optarg, (unsigned long long)least,
		(unsigned long long)most);
}

static bool take_work(int option, struct bench_options *o, char problem[256])
{
	uint64_t number;
	switch (option) {
	case OPT_DTYPE:
		o->work.dtype = bench_dtype_find(optarg);
		return o->work.dtype != COLLET_DTYPE_COUNT
			|| fail(problem, "--dtype %s: there is no such type", optarg);
	case OPT_OP:
		o->work.op = bench_op_find(optarg);
		return o->work.op != COLLET_OP_COUNT || fail(problem, "--op %s: there is no such operation", optarg);
	case OPT_IN_PLACE:
		o->work.in_place = 1;
		return true;
	default:
		if (!take_number("root", 0, UINT32_MAX - 1, &number, problem))
			return false;
		o->work.root = (uint32_t)number;
		return true;
	}
}

static bool take_manner(int option, struct bench_options *o, struct given *given, char problem[256])
{
	switch (option) {
	case OPT_SECONDS:
		return parse_seconds(optarg, &given->seconds)
			|| fail(problem, "--seconds %s: expected a number above 0, at most 3600", optarg);
	case OPT_ITERS:
		return take_number("iters", 1, UINT32_MAX, &o->manner.iterations, problem);
	case OPT_BUFFERS:
		o->manner.buffers = bench_buffer_kind_find(optarg);
		return o->manner.buffers != BENCH_BUFFER_KINDS
			|| fail(problem, "--buffers %s: expected malloc, alloc or huge", optarg);
	case OPT_DEVICE:
		given->for_device = "--device";
		o->manner.device = strcmp(optarg, "cuda") == 0;
		return o->manner.device || strcmp(optarg, "cpu") == 0
			|| fail(problem, "--device %s: expected cpu or cuda", optarg);
	case OPT_STREAM:
		o->manner.calling = o->manner.calling == BENCH_BLOCKING ? BENCH_ON_STREAM : o->manner.calling;
		return true;
	case OPT_GRAPH: o->manner.calling = BENCH_IN_GRAPH; return true;
	case OPT_THREADS: o->manner.threads = true; return true;
	case OPT_COLD: o->manner.cold = true; return true;
	case OPT_SYNC: o->manner.sync = true; return true;
	default: o->manner.pin = false; return true;
	}
}

/* A list of numbers of ranks. */
static bool take_ranks(struct bench_options *o, char problem[256])
{
	o->predict_count = 0;
	for (const char *at = optarg;; at += strcspn(at, ",") + 1) {
		const size_t length = strcspn(at, ",");
		uint64_t ranks;
		if (o->predict_count == BENCH_PREDICT_MOST || !bench_bytes_parse(at, at + length, &ranks) || ranks < 1
			|| ranks > 100000)
			return fail(problem, "--predict %s: expected up to %d numbers of ranks, 1 to 100000", optarg,
				BENCH_PREDICT_MOST);
		o->predict[o->predict_count++] = (uint32_t)ranks;
		if (at[length] == '\0')
			return true;
	}
}

static bool take(int option, struct bench_options *o, struct given *given, char problem[256])
{
	uint64_t number;
	switch (option) {
	case 'n':
		if (!take_number("ranks", 1, 65536, &number, problem))
			return false;
		o->ranks = (uint32_t)number;
		return true;
	case 'h': o->command = BENCH_COMMAND_HELP; return true;
	case OPT_VERSION: o->command = BENCH_COMMAND_VERSION; return true;
	case OPT_TRANSPORT: o->transport = optarg; return true;
	case OPT_ALGORITHM: o->algorithm = optarg; return true;
	case OPT_PIECES:
		if (!take_number("pieces", 1, UINT32_MAX, &number, problem))
			return false;
		o->piece_bytes = (uint32_t)number;
		return true;
	case OPT_CHANNELS:
		if (!take_number("channels", 1, COLLET_CHANNELS_MOST, &number, problem))
			return false;
		o->channels = (uint32_t)number;
		return true;
	case OPT_SIZES: given->sizes = optarg; return true;
	case OPT_JSON: o->json = optarg; return true;
	case OPT_WITH: o->with = optarg; given->stray = "--with"; return true;
	case OPT_VARIANTS:
		given->stray = "--variants";
		o->tuned = strcmp(optarg, "tuned") == 0;
		return o->tuned || strcmp(optarg, "default") == 0
			|| fail(problem, "--variants %s: expected default or tuned", optarg);
	case OPT_MARKDOWN: o->markdown = optarg; given->stray = "--markdown"; return true;
	case OPT_BASELINE: o->baseline = optarg; given->stray = "--baseline"; return true;
	case OPT_PLOT: o->plot = optarg; return true;
	case OPT_OUTPUT: o->output = optarg; given->for_tune = "--output"; return true;
	case OPT_POINTS: o->points = optarg; given->for_tune = "--points"; return true;
	case OPT_STRATEGIES: o->strategies = optarg; given->for_training = "--strategies"; return true;
	case OPT_PREDICT: given->for_training = "--predict"; return take_ranks(o, problem);
	case OPT_CHECK: o->check = true; given->for_tune = "--check"; return true;
	case OPT_REPEATS:
		if (!take_number("repeats", 1, 1000, &number, problem))
			return false;
		o->repeats = (uint32_t)number;
		return true;
	case OPT_DTYPE: case OPT_OP: case OPT_ROOT: case OPT_IN_PLACE:
		return take_work(option, o, problem);
	case OPT_SECONDS: case OPT_ITERS: case OPT_BUFFERS: case OPT_COLD: case OPT_SYNC: case OPT_NO_PIN:
	case OPT_DEVICE: case OPT_STREAM: case OPT_GRAPH: case OPT_THREADS:
		return take_manner(option, o, given, problem);
	default:
		return false;   /* the caller knows the word */
	}
}

/* The collectives of a list, separated by commas, as bits; tune has limits besides. */
static bool parse_collectives(const char *list, struct bench_options *o, char problem[256])
{
	for (const char *at = list;; at += strcspn(at, ",") + 1) {
		char name[32];
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ","), at);
		const bool limits = o->command == BENCH_COMMAND_TUNE && strcmp(name, "limits") == 0;
		const enum bench_collective found = bench_collective_find(name);
		if (found == BENCH_COLLECTIVES && !limits)
			return fail(problem, "'%s' is no collective and no command; --help shows them", name);
		if (limits)
			o->limits = true;
		else
			o->collectives |= UINT32_C(1) << found;
		if (at[strcspn(at, ",")] == '\0')
			return true;
	}
}

static void take_all(struct bench_options *o)
{
	o->collectives = (UINT32_C(1) << BENCH_COLLECTIVES) - 1;
	o->limits = o->command == BENCH_COMMAND_TUNE;
}

/* "allreduce"; for compare and tune also "allreduce,broadcast" and "all". */
static bool take_collectives(const char *words, enum collective_word expected, struct bench_options *o,
	char problem[256])
{
	if (expected != ONE && strcmp(words, "all") == 0)
		take_all(o);
	else if (!parse_collectives(words, o, problem))
		return false;
	if (expected == ONE && strchr(words, ',') != NULL)
		return fail(problem, "%s: only compare and tune take several collectives", words);
	while (o->collectives != 0 && (o->collectives >> o->work.collective & 1) == 0)
		o->work.collective++;
	return true;
}

static bool any_combines(uint32_t collectives)
{
	for (int c = 0; c < BENCH_COLLECTIVES; c++)
		if ((collectives >> c & 1) != 0 && bench_collective_combines((enum bench_collective)c))
			return true;
	return false;
}

/* The command's and the collective's words; *row is the command's line. */
static bool take_words(int count, char **words, struct bench_options *o, size_t *row, char problem[256])
{
	*row = 0;
	for (size_t c = 1; count > 0 && c < sizeof(commands) / sizeof(commands[0]); c++)
		if (strcmp(words[0], commands[c].word) == 0)
			*row = c;
	const int own = *row > 0;
	o->command = commands[*row].command;
	if (o->command == BENCH_COMMAND_TRAINING) {
		o->words = words + own;
		o->word_count = count - own;
		return true;
	}
	const enum collective_word expected = commands[*row].collective;
	const int most = own + (expected != NONE);
	if (count > most)
		return fail(problem, "do not know what to do with '%s'", words[most]);
	if (count < most && expected != SOME_OR_NONE)
		return fail(problem, "which collective? allreduce, for example; --help shows all");
	if (count == own && expected == SOME_OR_NONE)
		take_all(o);
	return count == own || take_collectives(words[own], expected, o, problem);
}

static bool check(const struct bench_options *o, char problem[256])
{
	if (o->command == BENCH_COMMAND_TUNE && o->sizes.count > COLLET_TUNING_SIZES)
		return fail(problem, "--sizes: tune takes up to %d", COLLET_TUNING_SIZES);
	if (o->command == BENCH_COMMAND_TUNE && o->ranks == 1)
		return fail(problem, "-n 1: one rank has nothing to tune");
	if (o->command == BENCH_COMMAND_TUNE && o->collectives == UINT32_C(1) << BENCH_SENDRECV)
		return fail(problem, "sendrecv has no algorithms to choose from; its limit is one of tune limits");
	if (o->ranks > 0 && o->work.root >= o->ranks)
		return fail(problem, "--root %u: the ranks are 0 to %u", o->work.root, o->ranks - 1);
	if (any_combines(o->collectives) && !bench_op_fits((collet_op)o->work.op, (collet_dtype)o->work.dtype))
		return fail(problem, "--op %s is not measured for --dtype %s", collet_op_name((collet_op)o->work.op),
			collet_dtype_name((collet_dtype)o->work.dtype));
	if (o->command == BENCH_COMMAND_FAULTS && o->ranks == 1)
		return fail(problem, "-n 1: faults kills one rank, and asks the others");
	if (o->manner.device && o->command == BENCH_COMMAND_LIMITS && o->transport != NULL)
		return fail(problem, "--transport: with --device cuda, limits are the GPU's");
	if (o->manner.calling != BENCH_BLOCKING && (!o->manner.device || o->command != BENCH_COMMAND_MEASURE))
		return fail(problem, "--stream and --graph are for a collective with --device cuda");
	if (o->manner.calling != BENCH_BLOCKING && o->manner.sync)
		return fail(problem, "--sync: calls on a stream are not waited for one by one");
	if (o->manner.device && o->manner.buffers != BENCH_MALLOC)
		return fail(problem, "--buffers %s: with --device cuda they are the GPU's",
			bench_buffer_kind_name(o->manner.buffers));
	if (o->work.in_place && (o->collectives >> BENCH_SENDRECV & 1) != 0)
		return fail(problem, "sendrecv has no in-place form");
	if (o->plot != NULL && (o->collectives & (o->collectives - 1)) != 0)
		return fail(problem, "--plot draws one collective");
	return true;
}

bool bench_options_parse(int argc, char **argv, struct bench_options *options, char problem[256])
{
	struct bench_options o = {
		.work = { .dtype = COLLET_F32, .op = COLLET_SUM }, .manner.pin = true, .tuned = true
	};
	struct given given = { .seconds = -1 };
	size_t row;
	int option;
	o.command = BENCH_COMMAND_MEASURE;
	optind = 0;   /* getopt may have been used before: start over */
	while ((option = getopt_long(argc, argv, ":n:h", long_options, NULL)) != -1) {
		problem[0] = '\0';
		if (option == ':')
			return fail(problem, "%s needs a value", argv[optind - 1]);
		if (!take(option, &o, &given, problem))
			return problem[0] != '\0'
				? false
				: fail(problem, "%s: no such option; --help shows them", argv[optind - 1]);
		if (o.command == BENCH_COMMAND_HELP || o.command == BENCH_COMMAND_VERSION) {
			*options = o;
			return true;
		}
	}
	if (!take_words(argc - optind, argv + optind, &o, &row, problem))
		return false;
	if (given.stray != NULL && o.command != BENCH_COMMAND_COMPARE)
		return fail(problem, "%s is for compare", given.stray);
	if (given.for_tune != NULL && o.command != BENCH_COMMAND_TUNE)
		return fail(problem, "%s is for tune", given.for_tune);
	if (given.for_training != NULL && o.command != BENCH_COMMAND_TRAINING)
		return fail(problem, "%s is for training", given.for_training);
	if (given.for_device != NULL && o.command != BENCH_COMMAND_MEASURE && o.command != BENCH_COMMAND_LIMITS &&
		o.command != BENCH_COMMAND_EXPLAIN && o.command != BENCH_COMMAND_TUNE)
		return fail(problem, "--device is for a collective, explain, limits and tune");
	if (o.manner.threads && o.command != BENCH_COMMAND_MEASURE)
		return fail(problem, "--threads is for a collective");
	if (o.plot != NULL && o.command != BENCH_COMMAND_COMPARE && o.command != BENCH_COMMAND_TRAINING)
		return fail(problem, "--plot is for compare and training");
	if (o.repeats > 0 && commands[row].repeats == 0)
		return fail(problem, "--repeats is for compare, faults, overlap, request, waiting, training and tune");
	if (o.repeats == 0)
		o.repeats = commands[row].repeats;
	const char *wrong = bench_sizes_parse(given.sizes != NULL ? given.sizes : commands[row].sizes, &o.sizes);
	if (wrong != NULL)
		return fail(problem, "--sizes %s: %s", given.sizes, wrong);
	o.manner.seconds = given.seconds > 0 ? given.seconds : commands[row].seconds;
	if (!check(&o, problem))
		return false;
	*options = o;
	return true;
}
