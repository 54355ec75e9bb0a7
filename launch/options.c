/* The command line of collet-run. Everything is taken strictly and refused by its name: a launcher that guesses what
 * was meant starts the wrong job on many machines. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"

const char options_help[] =
	"Usage: collet-run -n N [OPTION]... PROGRAM [ARGUMENT]...\n"
	"Starts N ranks of PROGRAM on this host, tells each its rank and where to meet the others,\n"
	"and ends them all when one of them fails.\n"
	"\n"
	"  -n N, --nproc-per-node N   ranks on this host; 'cores': one for each core that may be used;\n"
	"                             'gpu': one for each GPU that the driver shows\n"
	"      --nnodes N             hosts in the job, with one collet-run on each (default 1)\n"
	"      --node-rank R          which of them this is, 0 to N-1 (default 0)\n"
	"      --rdzv-endpoint HOST:PORT\n"
	"                             where rank 0 will listen; needed with several hosts\n"
	"      --rdzv-id ID           the job's name, the same on every host\n"
	"      --bind auto|core|share|none\n"
	"                             auto: whole cores for each rank when there are enough, else as share\n"
	"                             where that divides evenly and nothing else runs (default);\n"
	"                             core: exactly one core each, or fail; share: one core each,\n"
	"                             neighbours on the same one; none: leave it to the system\n"
	"      --prefix, --no-prefix  put \"[rank] \" before each line of output (default), or pass the\n"
	"                             ranks collet-run's own output untouched\n"
	"      --no-stdin             rank 0 reads nothing either (the other ranks never do)\n"
	"      --env NAME=VALUE       set this in every rank's environment too; may be repeated\n"
	"      --grace SECONDS        what the other ranks have to end by themselves after one failed, and\n"
	"                             again between SIGTERM and SIGKILL (default 1)\n"
	"      --restarts R           when a rank fails, start all of them again, up to R times (default 0)\n"
	"      --timeout SECONDS      end the whole run after this long, with exit status 124\n"
	"      --make-secret          make the secret that jobs on several hosts need, if there is none,\n"
	"                             and say where it is\n"
	"      --version, --help      print this and exit\n"
	"\n"
	"Exit status: that of the rank that failed first, 128 + the signal if one killed it, 127 or 126 if\n"
	"PROGRAM cannot be found or run, 124 after --timeout, 2 for a wrong command line. See collet-run(1).\n";

/* Long options without a letter of their own. */
enum {
	OPTION_NODE_COUNT = 256,
	OPTION_NODE_RANK,
	OPTION_ENDPOINT,
	OPTION_JOB,
	OPTION_BIND,
	OPTION_PREFIX,
	OPTION_NO_PREFIX,
	OPTION_NO_STDIN,
	OPTION_ENV,
	OPTION_GRACE,
	OPTION_RESTARTS,
	OPTION_TIMEOUT,
	OPTION_MAKE_SECRET,
	OPTION_VERSION,
	OPTION_HELP,
};

static const struct option long_options[] = {
	{ "nproc-per-node", required_argument, NULL, 'n' },
	{ "nnodes", required_argument, NULL, OPTION_NODE_COUNT },
	{ "node-rank", required_argument, NULL, OPTION_NODE_RANK },
	{ "rdzv-endpoint", required_argument, NULL, OPTION_ENDPOINT },
	{ "rdzv-id", required_argument, NULL, OPTION_JOB },
	{ "bind", required_argument, NULL, OPTION_BIND },
	{ "prefix", no_argument, NULL, OPTION_PREFIX },
	{ "no-prefix", no_argument, NULL, OPTION_NO_PREFIX },
	{ "no-stdin", no_argument, NULL, OPTION_NO_STDIN },
	{ "env", required_argument, NULL, OPTION_ENV },
	{ "grace", required_argument, NULL, OPTION_GRACE },
	{ "restarts", required_argument, NULL, OPTION_RESTARTS },
	{ "timeout", required_argument, NULL, OPTION_TIMEOUT },
	{ "make-secret", no_argument, NULL, OPTION_MAKE_SECRET },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ NULL, 0, NULL, 0 },
};

static bool parse_number(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *value)
{
	char *end = NULL;
	errno = 0;
	const unsigned long long number = strtoull(text, &end, 10);
	/* strtoull also takes " 5", "+5" and "-5"; a count starts with a digit. */
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number < min || number > max) {
		say("%s %s: expected a whole number from %u to %u", option, text, min, max);
		return false;
	}
	*value = (uint32_t)number;
	return true;
}

static bool parse_seconds(const char *option, const char *text, double *value)
{
	char *end = NULL;
	const double seconds = strtod(text, &end);
	if (end == text || *end != '\0' || !isfinite(seconds) || seconds < 0 || seconds > TIME_MAX_S) {
		say("%s %s: expected seconds, 0 or more", option, text);
		return false;
	}
	*value = seconds;
	return true;
}

static bool parse_local_size(const char *text, struct options *options)
{
	options->by_gpus = strcmp(text, "gpu") == 0;
	if (options->by_gpus || strcmp(text, "cores") == 0) {
		options->local_size = 0;
		return true;
	}
	if (text[0] < '0' || text[0] > '9') {
		say("-n %s: expected a number of ranks, 'cores' or 'gpu'", text);
		return false;
	}
	return parse_number("-n", text, 1, LOCAL_SIZE_MAX, &options->local_size);
}

/* "HOST:PORT", "ADDRESS:PORT", "[IPV6]:PORT". */
static bool parse_endpoint(const char *text, struct options *options)
{
	const char *colon = strrchr(text, ':');
	const char *host = text;
	size_t host_bytes = colon == NULL ? 0 : (size_t)(colon - text);
	if (host_bytes >= 2 && host[0] == '[' && host[host_bytes - 1] == ']') {
		host++;
		host_bytes -= 2;
	} else if (host_bytes > 0 && memchr(host, ':', host_bytes) != NULL) {
		say("--rdzv-endpoint %s: an IPv6 address needs brackets, [ADDRESS]:PORT", text);
		return false;
	}
	if (host_bytes == 0 || host_bytes >= sizeof(options->host)) {
		say("--rdzv-endpoint %s: expected HOST:PORT", text);
		return false;
	}
	uint32_t port;
	if (!parse_number("--rdzv-endpoint: port", colon + 1, 0, UINT16_MAX, &port))
		return false;
	memcpy(options->host, host, host_bytes);
	options->host[host_bytes] = '\0';
	options->port = (uint16_t)port;
	return true;
}

/* A job's name becomes part of a socket's name and of a key, so it is kept short and plain. */
static bool parse_job(const char *text, const char **job)
{
	const size_t bytes = strlen(text);
	const char *plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	if (bytes == 0 || bytes >= JOB_BYTES || strspn(text, plain) != bytes) {
		say("--rdzv-id %s: expected 1 to %d letters, digits, dots, dashes and underscores", text,
			JOB_BYTES - 1);
		return false;
	}
	*job = text;
	return true;
}

static bool parse_bind(const char *text, enum bind_policy *bind)
{
	static const struct {
		const char *name;
		enum bind_policy policy;
	} rows[] = { { "auto", BIND_AUTO }, { "core", BIND_CORE }, { "share", BIND_SHARE }, { "none", BIND_NONE } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(text, rows[i].name) == 0) {
			*bind = rows[i].policy;
			return true;
		}
	}
	say("--bind %s: expected auto, core, share or none", text);
	return false;
}

static bool add_environment(struct options *options, const char *text)
{
	const char *equals = strchr(text, '=');
	if (equals == NULL || equals == text) {
		say("--env %s: expected NAME=VALUE", text);
		return false;
	}
	options->environment[options->environment_count++] = text;
	return true;
}

/* getopt has refused the last argument it looked at: say which and why. */
static void say_refused(int why, char **argv)
{
	const char *argument = argv[optind - 1];
	const bool is_short = optopt > 0 && optopt < 256 && strncmp(argument, "--", 2) != 0;
	const char letter[3] = { '-', is_short ? (char)optopt : '\0', '\0' };
	const char *name = is_short ? letter : argument;
	const bool known = optopt >= 256 || optopt == 'n';
	if (why == ':')
		say("%s: a value is missing; see collet-run --help", name);
	else if (known)
		say("%s: this option takes no value", name);
	else
		say("%s: unknown or ambiguous option; see collet-run --help", name);
}

static bool parse_option(struct options *options, int option, bool *has_local_size)
{
	switch (option) {
	case 'n':
		*has_local_size = true;
		return parse_local_size(optarg, options);
	case OPTION_NODE_COUNT:
		return parse_number("--nnodes", optarg, 1, NODE_COUNT_MAX, &options->node_count);
	case OPTION_NODE_RANK:
		return parse_number("--node-rank", optarg, 0, NODE_COUNT_MAX - 1, &options->node_rank);
	case OPTION_ENDPOINT:
		return parse_endpoint(optarg, options);
	case OPTION_JOB:
		return parse_job(optarg, &options->job);
	case OPTION_BIND:
		return parse_bind(optarg, &options->bind);
	case OPTION_PREFIX:
		options->prefix = true;
		return true;
	case OPTION_NO_PREFIX:
		options->prefix = false;
		return true;
	case OPTION_NO_STDIN:
		options->rank0_reads_stdin = false;
		return true;
	case OPTION_ENV:
		return add_environment(options, optarg);
	case OPTION_GRACE:
		return parse_seconds("--grace", optarg, &options->grace_s);
	case OPTION_RESTARTS:
		return parse_number("--restarts", optarg, 0, RESTARTS_MAX, &options->restarts);
	case OPTION_TIMEOUT:
		return parse_seconds("--timeout", optarg, &options->timeout_s);
	case OPTION_MAKE_SECRET:
		options->command = COMMAND_MAKE_SECRET;
		return true;
	case OPTION_VERSION:
		options->command = COMMAND_VERSION;
		return true;
	default:
		options->command = COMMAND_HELP;
		return true;
	}
}

/* What no single option can tell. */
static bool fits_together(const struct options *options, bool has_local_size)
{
	if (options->command != COMMAND_RUN)
		return true;
	if (!has_local_size) {
		say("-n: missing; say how many ranks to start, as in: collet-run -n 2 PROGRAM");
		return false;
	}
	if (options->program[0] == NULL) {
		say("PROGRAM: missing; say what to run, as in: collet-run -n 2 PROGRAM");
		return false;
	}
	if (options->node_rank >= options->node_count) {
		say("--node-rank %u: there are %u hosts (--nnodes), so expected 0 to %u", options->node_rank,
			options->node_count, options->node_count - 1);
		return false;
	}
	if (options->node_count > 1 && options->port == 0) {
		say("--rdzv-endpoint: with --nnodes %u, expected HOST:PORT with a port that is not 0: the host that "
			"runs --node-rank 0, and the same on every host",
			options->node_count);
		return false;
	}
	return true;
}

bool options_parse(struct options *options, int argc, char **argv)
{
	*options = (struct options){
		.command = COMMAND_RUN,
		.node_count = 1,
		.bind = BIND_AUTO,
		.prefix = true,
		.rank0_reads_stdin = true,
		.grace_s = 1,
		.environment = calloc((size_t)argc + 1, sizeof(*options->environment)),
	};
	if (options->environment == NULL) {
		say("out of memory");
		return false;
	}
	bool has_local_size = false;
	opterr = 0;
	for (;;) {
		/* '+': the first word that is no option is the program, and what follows is its own. */
		const int option = getopt_long(argc, argv, "+:n:h", long_options, NULL);
		if (option == -1)
			break;
		if (option == '?' || option == ':') {
			say_refused(option, argv);
			return false;
		}
		if (!parse_option(options, option, &has_local_size))
			return false;
		if (options->command == COMMAND_HELP || options->command == COMMAND_VERSION)
			return true;
	}
	options->program = argv + optind;
	return fits_together(options, has_local_size);
}

void options_deinit(struct options *options)
{
	free(options->environment);
	options->environment = NULL;
	options->environment_count = 0;
}
