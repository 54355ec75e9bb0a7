/* Parses the command line of collet-bench strictly. It refuses unknown words, options of other commands, and numbers
 * with text behind them. */
#include "options.h"

#include <stdlib.h>
#include <string.h>

#include <collet/tools.h>

#include "help.h"
#include "names.h"
#include "option_table.h"
#include "options_check.h"

enum collective_word { NONE, ONE, SOME, SOME_OR_NONE };

/* The words that are no collective, in the order of enum bench_command_kind. */
static const struct {
	const char *word;
	enum collective_word collective; /* what follows */
	const char *sizes;
	double seconds;
	uint32_t repeats;
} commands[] = {
	{ "", ONE, "4:256M:x4", 0.3, 0 },
	{ "list", NONE, "0", 0, 0 },
	{ "explain", ONE, "4:256M:x4", 0, 0 },
	{ "limits", NONE, "1M,16M,64M", 0.1, 0 },
	{ "init", NONE, "0", 0, 0 },
	{ "faults", NONE, "0", 0, 10 },
	{ "overlap", ONE, "16M", 0, 9 },
	{ "request", ONE, "8", 0.3, 9 },
	{ "waiting", ONE, "4", 0, 10 },
	{ "compare", SOME, "4,1K,16K,256K,1M,16M,64M", 0.1, 5 },
	{ "tune", SOME_OR_NONE, "8,512,4K,16K,64K,256K,1M,4M,16M", 0.003, 1 },
	{ "training", NONE, "0", 0, 1 },
	{ "driver", NONE, "0", 0, 0 },
	{ "help", SOME_OR_NONE, "0", 0, 0 },
};

/* The target of the table: options, and what they are derived from once the command is known. */
struct command_line {
	struct bench_options options;
	const char *sizes;
	double seconds; /* 0: not given */
	bool stream, graph;
};

static bool parse_dtype(void *into, const char *text, char *problem)
{
	struct bench_options *o = &((struct command_line *)into)->options;
	struct bench_names names = { 0 };
	char hint[BENCH_NAMES_TEXT];
	o->work.dtype = bench_names_dtype(text);
	if (o->work.dtype != COLLET_DTYPE_COUNT)
		return true;
	bench_names_add_dtypes(&names);
	return option_refuse(problem, "--dtype %s: there is no such type; %s", text,
		bench_names_hint(&names, text, hint));
}

static bool parse_op(void *into, const char *text, char *problem)
{
	struct bench_options *o = &((struct command_line *)into)->options;
	struct bench_names names = { 0 };
	char hint[BENCH_NAMES_TEXT];
	o->work.op = bench_names_op(text);
	if (o->work.op != COLLET_OP_COUNT)
		return true;
	bench_names_add_ops(&names);
	return option_refuse(problem, "--op %s: there is no such operation; %s", text,
		bench_names_hint(&names, text, hint));
}

static bool parse_seconds(void *into, const char *text, char *problem)
{
	char *end;
	const double value = strtod(text, &end);
	if (end == text || *end != '\0' || !(value > 0 && value <= 3600))
		return option_refuse(problem, "--seconds %s: expected a number above 0, at most 3600", text);
	((struct command_line *)into)->seconds = value;
	return true;
}

/* Reads a list of numbers of ranks. */
static bool parse_predict(void *into, const char *text, char *problem)
{
	struct bench_options *o = &((struct command_line *)into)->options;
	o->predict_count = 0;
	for (const char *at = text;; at += strcspn(at, ",") + 1) {
		const size_t length = strcspn(at, ",");
		uint64_t ranks;
		if (o->predict_count == BENCH_PREDICT_MOST || !bench_bytes_parse(at, at + length, &ranks) ||
			ranks < 1 || ranks > 100000)
			return option_refuse(problem, "--predict %s: expected up to %d numbers of ranks, 1 to 100000",
				text, BENCH_PREDICT_MOST);
		o->predict[o->predict_count++] = (uint32_t)ranks;
		if (at[length] == '\0')
			return true;
	}
}

/* Names in the order of enum bench_buffer_kind. */
static const char *const buffer_kinds[] = { "malloc", "alloc", "huge", NULL };
/* Index 1 is true. */
static const char *const devices[] = { "cpu", "cuda", NULL };
static const char *const variants[] = { "default", "tuned", NULL };

#define AT(member) OPTION_MEMBER(struct command_line, member)
#define FLAG(member, value) OPTION_SET, AT(options.member), (value)
#define TEXT(member) OPTION_TEXT, AT(options.member)
#define NUMBER(member, least, most) OPTION_NUMBER, AT(options.member), (least), (most), .units = BENCH_UNITS
#define CHOICE(member, names) OPTION_CHOICE, AT(options.member), .choices = (names)
#define CALL(function) .kind = OPTION_CALL, .parse = (function)
/* The bit of a command in a row's scope. */
#define ON(command) (1U << BENCH_COMMAND_##command)
#define CALLS (ON(MEASURE) | ON(OVERLAP) | ON(REQUEST) | ON(WAITING) | ON(COMPARE))
#define RANKS (CALLS | ON(EXPLAIN) | ON(INIT) | ON(FAULTS) | ON(TUNE) | ON(TRAINING))

static const struct option_row rows[] = {
	{ "ranks", "N", "how many ranks; without it a launcher's, or one for each core", NUMBER(ranks, 1, 65536),
		.letter = 'n', .scope = RANKS },
	{ "transport", "LIST", "only these, as COLLET_TRANSPORT: shm, tcp, shm,tcp", TEXT(transport),
		.scope = RANKS | ON(LIMITS) | ON(DRIVER) },
	{ "algorithm", "NAME", "this one instead of the chosen one (collet-bench list)", TEXT(algorithm),
		.scope = CALLS | ON(EXPLAIN) },
	{ "pieces", "BYTES", "messages cut into pieces of so many bytes instead of the chosen ones",
		NUMBER(segment_bytes, 1, UINT32_MAX), .scope = CALLS },
	{ "channels", "N", "over so many channels (sockets of a pair, for tcp), instead of the chosen number",
		NUMBER(channels, 1, COLLET_CHANNELS_MAX), .scope = CALLS },
	{ "dtype", "NAME", "i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 bool, or float,\n"
		"double, half, int, short and the like (f32)", CALL(parse_dtype), .scope = CALLS | ON(EXPLAIN) },
	{ "op", "NAME", "sum product min max average premul_sum and or xor (sum)", CALL(parse_op),
		.scope = CALLS | ON(EXPLAIN) },
	{ "root", "RANK", "(0)", NUMBER(work.root, 0, UINT32_MAX - 1), .scope = CALLS | ON(EXPLAIN) },
	{ "sizes", "LIST", "bytes: 4:256M:x4, 4:64:+4, 0,1K,1M (4:256M:x4)", OPTION_TEXT, AT(sizes),
		.scope = CALLS | ON(EXPLAIN) | ON(LIMITS) | ON(TUNE) },
	{ "seconds", "S", "of timed calls a size (0.3; compare: a size and repeat, 0.1)", CALL(parse_seconds),
		.scope = ON(MEASURE) | ON(LIMITS) | ON(REQUEST) | ON(COMPARE) | ON(TUNE) },
	{ "iters", "N", "calls a size, instead of --seconds", NUMBER(mode.iterations, 1, UINT32_MAX),
		.scope = ON(MEASURE) | ON(COMPARE) },
	{ "in-place", NULL, "one buffer for both", FLAG(work.in_place, true), .scope = CALLS },
	{ "buffers", "KIND", "malloc, alloc (collet_mem_alloc), huge (huge pages) (malloc)",
		CHOICE(mode.buffers, buffer_kinds), .scope = CALLS },
	{ "device", "WHERE",
		"COLLECTIVE, limits, explain, tune: cpu, or cuda (cpu): buffers in the memory of\n"
		"LOCAL_RANK's GPU, others for each call, and times beside that of a copy within it;\n"
		"explain: which way calls on GPUs' buffers go, and the model's time;\n"
		"tune: a GPU's copies and its memory",
		CHOICE(mode.device, devices), .scope = ON(MEASURE) | ON(LIMITS) | ON(EXPLAIN) | ON(TUNE) },
	{ "stream", NULL,
		"COLLECTIVE, --device cuda: calls on a CUDA stream, timed by its events; and what a\n"
		"call takes of the host's time",
		OPTION_SET, AT(stream), true, .scope = ON(MEASURE) },
	{ "graph", NULL, "the same, captured in a graph that is launched again and again", OPTION_SET, AT(graph),
		true, .scope = ON(MEASURE) },
	{ "threads", NULL, "COLLECTIVE: ranks are threads of one process", FLAG(mode.threads, true),
		.scope = ON(MEASURE) },
	{ "cold", NULL, "other buffers for each call, so that no cache holds them", FLAG(mode.cold, true),
		.scope = CALLS },
	{ "sync", NULL, "a barrier before each call, outside the time", FLAG(mode.sync, true),
		.scope = ON(MEASURE) | ON(COMPARE) },
	{ "rewrite", NULL,
		"COLLECTIVE, compare: time such calls too as a program makes: input written before,\n"
		"result read after each, outside the time",
		FLAG(mode.rewrite, true), .scope = ON(MEASURE) | ON(COMPARE) },
	{ "no-pin", NULL, "do not bind ranks to cores", FLAG(mode.pin, false),
		.scope = RANKS | ON(LIMITS) | ON(DRIVER) },
	{ "json", "FILE", "a JSON object for each measurement; - for standard output instead of the table",
		TEXT(json), .scope = (RANKS & ~ON(EXPLAIN)) | ON(LIMITS) },
	{ "with", "LIST", "compare: openmpi, mpich, gloo, impi, openmpi5, mpich5, or a variant: openmpi:ucx\n"
		"(all that are there)", TEXT(with),
		.scope = ON(COMPARE) },
	{ "variants", "WHICH", "compare: default, or tuned: each library in every setting that helps it (tuned)",
		CHOICE(tuned, variants), .scope = ON(COMPARE) },
	{ "repeats", "N",
		"compare: rounds, the libraries taking turns (5); faults: kills a row (10);\n"
		"overlap, request (9), waiting (10), training (1): rounds; tune: sweeps (1)",
		NUMBER(repeats, 1, BENCH_REPEATS_MAX),
		.scope = ON(FAULTS) | ON(OVERLAP) | ON(REQUEST) | ON(WAITING) | ON(COMPARE) | ON(TUNE) | ON(TRAINING) },
	{ "in-flight", "N", "request: so many in flight together (64)", NUMBER(in_flight, 1, 65536),
		.scope = ON(REQUEST) },
	{ "strategies", "LIST", "training: all, or names as collet-train --strategy has them (all)", TEXT(strategies),
		.scope = ON(TRAINING) },
	{ "predict", "LIST", "training: and what the cost model says of so many ranks, 1,4,8,64 for example",
		CALL(parse_predict), .scope = ON(TRAINING) },
	{ "plot", "FILE.svg", "compare: time and bus bandwidth against bytes; training: its table; by gnuplot",
		TEXT(plot), .scope = ON(COMPARE) | ON(TRAINING) },
	{ "markdown", "FILE", "compare: the table as Markdown; - for standard output instead of the table",
		TEXT(markdown), .scope = ON(COMPARE) },
	{ "baseline", "FILE", "compare: exit status 1 if collet became slower since FILE was written by --json",
		TEXT(baseline), .scope = ON(COMPARE) },
	{ "check", NULL, "tune: judge what is chosen now, write nothing", FLAG(check, true), .scope = ON(TUNE) },
	{ "output", "FILE", "tune: write this instead of COLLET_TUNING or ~/.config/collet/tuning", TEXT(output),
		.scope = ON(TUNE) },
	{ "points", "FILE", "tune: sweeps of earlier runs in FILE count too; this one's are added to it", TEXT(points),
		.scope = ON(TUNE) },
	{ "help", NULL, "print this and exit", FLAG(command, BENCH_COMMAND_HELP), .letter = 'h', .ends = true },
	{ "version", NULL, "print the version and exit", FLAG(command, BENCH_COMMAND_VERSION), .ends = true },
};

static const char intro[] =
	"Measures collet's collectives: how long, how fast, and whether the results are right.\n"
	"\n"
	"  collet-bench help COMMAND             what a command does, and its options; help allreduce too\n"
	"  collet-bench COLLECTIVE -n 4          start 4 ranks on this host and measure\n"
	"  collet-run -n 4 collet-bench COLLECTIVE\n"
	"                                        the same under a launcher (mpirun and torchrun too)\n"
	"  collet-bench compare COLLECTIVE -n 2 --with openmpi,mpich,gloo\n"
	"                                        beside other libraries, interleaved in one run\n"
	"  collet-bench limits                   what this machine's memory and kernel can do\n"
	"  collet-bench init -n 64               time and memory to create a communicator\n"
	"  collet-bench faults -n 3              how long after kill -9 of one rank all others know\n"
	"  collet-bench overlap COLLECTIVE -n 2  how much of a request hides behind a sleep, or behind computing\n"
	"  collet-bench request COLLECTIVE -n 2  what a request costs over a blocking call; the rate of many\n"
	"  collet-bench waiting COLLECTIVE -n 2  what ranks use of the processor while they wait for a late one\n"
	"  collet-bench training -n 2 [-- OPTION...]\n"
	"                                        collet-train's strategies, one after the other, with its options\n"
	"  collet-bench list                     algorithms and transports\n"
	"  collet-bench explain COLLECTIVE -n 8  which algorithm is chosen for which size, and why\n"
	"  collet-bench tune [COLLECTIVE,...]    measure and fit what choices are made from; tune --check judges them\n"
	"  collet-bench tune limits              up to where messages travel at once, and calls are made in one go\n"
	"\n"
	"COLLECTIVE: allreduce reduce broadcast barrier allgather reduce_scatter gather scatter alltoall sendrecv,\n"
	"or all-reduce, bcast, all2all and the like\n"
	"\n";

static const char outro[] =
	"\n"
	"Exit status: 0; 1 when something failed, an element was wrong or a survivor got no error;\n"
	"2 for a mistake in the command line.\n";

static const struct option_table table = {
	.program = "collet-bench",
	.refusal = "expected",
	.rows = rows,
	.count = sizeof(rows) / sizeof(rows[0]),
	.intro = intro,
	.outro = outro,
};

void bench_options_print_help(enum bench_command_kind topic)
{
	if (topic == BENCH_COMMAND_HELP) {
		option_table_print(&table, stdout);
		return;
	}
	fputs(bench_help_text(topic), stdout);
	fputs("\nOptions:\n", stdout);
	option_table_print_rows(&table, UINT32_C(1) << topic, stdout);
}

/* Refuses an option that is for other commands. */
static bool check_scope(const struct option_row *row, enum bench_command_kind command, char *problem)
{
	if (row->scope == 0 || (row->scope >> command & 1) != 0)
		return true;
	char names[160] = "";
	for (uint32_t left = row->scope & ~ON(DRIVER), c = 0; left != 0; left &= ~(1U << c), c++) {
		if ((left >> c & 1) == 0)
			continue;
		const bool last = left == 1U << c;
		strcat(names, names[0] == '\0' ? "" : last ? " and " : ", ");
		strcat(names, c == BENCH_COMMAND_MEASURE ? "a collective" : commands[c].word);
	}
	return option_refuse(problem, "--%s is for %s", row->name, names);
}

/* Refuses a word that is no collective. The first word may have been meant as a command. */
static bool refuse_collective(enum bench_command_kind command, const char *word, char problem[256])
{
	struct bench_names names = { 0 };
	char hint[BENCH_NAMES_TEXT];
	const bool may_be_command = command == BENCH_COMMAND_MEASURE;
	bench_names_add_collectives(&names);
	for (size_t c = 1; may_be_command && c < sizeof(commands) / sizeof(commands[0]); c++)
		if (c != BENCH_COMMAND_DRIVER)
			bench_names_add(&names, commands[c].word);
	if (command == BENCH_COMMAND_TUNE)
		bench_names_add(&names, commands[BENCH_COMMAND_LIMITS].word);
	return option_refuse(problem, "'%s' is no collective%s; %s", word, may_be_command ? " and no command" : "",
		bench_names_hint(&names, word, hint));
}

/* The collectives of a list, separated by commas, as bits; tune has limits besides. */
static bool parse_collectives(const char *list, struct bench_options *o, char problem[256])
{
	for (const char *at = list;; at += strcspn(at, ",") + 1) {
		char name[32];
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ","), at);
		const bool limits = o->command == BENCH_COMMAND_TUNE && strcmp(name, "limits") == 0;
		const enum bench_collective found = bench_names_collective(name);
		if (found == BENCH_COLLECTIVES && !limits)
			return refuse_collective(o->command, name, problem);
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
static bool take_collectives(
	const char *words, enum collective_word expected, struct bench_options *o, char problem[256])
{
	if (expected != ONE && strcmp(words, "all") == 0)
		take_all(o);
	else if (!parse_collectives(words, o, problem))
		return false;
	if (expected == ONE && strchr(words, ',') != NULL)
		return option_refuse(problem, "%s: only compare and tune take several collectives", words);
	while (o->collectives != 0 && (o->collectives >> o->work.collective & 1) == 0)
		o->work.collective++;
	return true;
}

/* BENCH_COMMAND_MEASURE: the word is no command. */
static enum bench_command_kind find_command(const char *word)
{
	for (size_t c = 1; c < sizeof(commands) / sizeof(commands[0]); c++)
		if (strcmp(word, commands[c].word) == 0)
			return (enum bench_command_kind)c;
	return BENCH_COMMAND_MEASURE;
}

/* The command or collective that help is asked about; without a word, all. */
static bool take_topic(int count, char **words, struct bench_options *o, char problem[256])
{
	o->topic = count > 0 ? find_command(words[0]) : BENCH_COMMAND_HELP;
	if (count > 1)
		return option_refuse(problem, "do not know what to do with '%s'", words[1]);
	if (o->topic == BENCH_COMMAND_DRIVER)
		o->topic = BENCH_COMMAND_HELP;
	if (o->topic == BENCH_COMMAND_MEASURE && bench_names_collective(words[0]) == BENCH_COLLECTIVES)
		return refuse_collective(BENCH_COMMAND_MEASURE, words[0], problem);
	return true;
}

/* The command's and the collective's words. */
static bool take_words(int count, char **words, struct bench_options *o, char problem[256])
{
	o->command = count > 0 ? find_command(words[0]) : BENCH_COMMAND_MEASURE;
	const int own = o->command != BENCH_COMMAND_MEASURE;
	if (o->command == BENCH_COMMAND_HELP)
		return take_topic(count - own, words + own, o, problem);
	if (o->command == BENCH_COMMAND_TRAINING) {
		o->words = words + own;
		o->word_count = count - own;
		return true;
	}
	const enum collective_word expected = commands[o->command].collective;
	const int most = own + (expected != NONE);
	if (count > own && expected != NONE && !take_collectives(words[own], expected, o, problem))
		return false;
	if (count > most)
		return option_refuse(problem, "do not know what to do with '%s'", words[most]);
	if (count < most && expected != SOME_OR_NONE)
		return option_refuse(problem, "which collective? allreduce, for example; --help shows all");
	if (count == own && expected == SOME_OR_NONE)
		take_all(o);
	return true;
}

/* "compare --help" asks about compare. */
static enum bench_command_kind find_topic(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const enum bench_command_kind command = find_command(argv[i]);
		if (command != BENCH_COMMAND_MEASURE && command != BENCH_COMMAND_DRIVER)
			return command;
		if (bench_names_collective(argv[i]) != BENCH_COLLECTIVES)
			return BENCH_COMMAND_MEASURE;
	}
	return BENCH_COMMAND_HELP;
}

bool bench_options_parse(int argc, char **argv, struct bench_options *options, char problem[256])
{
	struct command_line line = {
		.options = { .work = { .dtype = COLLET_F32, .op = COLLET_SUM }, .mode.pin = true, .tuned = true }
	};
	struct bench_options *o = &line.options;
	uint64_t given = 0;
	o->command = BENCH_COMMAND_MEASURE;
	const int first = option_table_parse(&table, argc, argv, &line, &given, problem);
	if (first < 0)
		return false;
	if (o->command == BENCH_COMMAND_HELP || o->command == BENCH_COMMAND_VERSION) {
		o->topic = find_topic(argc, argv);
		*options = *o;
		return true;
	}
	if (!take_words(argc - first, argv + first, o, problem))
		return false;
	for (size_t i = 0; i < table.count; i++)
		if ((given >> i & 1) != 0 && !check_scope(&rows[i], o->command, problem))
			return false;
	if (o->in_flight == 0)
		o->in_flight = 64;
	if (o->repeats == 0)
		o->repeats = commands[o->command].repeats;
	const char *wrong = bench_sizes_parse(line.sizes != NULL ? line.sizes : commands[o->command].sizes, &o->sizes);
	if (wrong != NULL)
		return option_refuse(problem, "--sizes %s: %s", line.sizes, wrong);
	o->mode.seconds = line.seconds > 0 ? line.seconds : commands[o->command].seconds;
	o->mode.calling = line.graph ? BENCH_IN_GRAPH : line.stream ? BENCH_ON_STREAM : BENCH_BLOCKING;
	if (!bench_options_check(o, problem))
		return false;
	*options = *o;
	return true;
}
