/* Parses the command line of collet-run strictly. A launcher that guesses would start the wrong job on many
 * machines. */
#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "option_table.h"
#include "say.h"

static bool parse_local_size(void *into, const char *text, char *problem)
{
	struct options *options = into;
	uint64_t number = 0;
	options->has_local_size = true;
	options->by_gpus = strcmp(text, "gpu") == 0;
	options->local_size = 0;
	if (options->by_gpus || strcmp(text, "cores") == 0)
		return true;
	if (text[0] < '0' || text[0] > '9')
		return option_refuse(problem, "-n %s: expected a number of ranks, 'cores' or 'gpu'", text);
	if (!option_number(text, text + strlen(text), NULL, &number) || number < 1 || number > LOCAL_SIZE_MAX)
		return option_refuse(problem, "-n %s: expected a whole number from 1 to %d", text, LOCAL_SIZE_MAX);
	options->local_size = (uint32_t)number;
	return true;
}

/* "HOST:PORT", "ADDRESS:PORT", "[IPV6]:PORT". */
static bool parse_endpoint(void *into, const char *text, char *problem)
{
	struct options *options = into;
	const char *colon = strrchr(text, ':');
	const char *host = text;
	size_t host_bytes = colon == NULL ? 0 : (size_t)(colon - text);
	if (host_bytes >= 2 && host[0] == '[' && host[host_bytes - 1] == ']') {
		host++;
		host_bytes -= 2;
	} else if (host_bytes > 0 && memchr(host, ':', host_bytes) != NULL) {
		return option_refuse(
			problem, "--rdzv-endpoint %s: an IPv6 address needs brackets, [ADDRESS]:PORT", text);
	}
	if (host_bytes == 0 || host_bytes >= sizeof(options->host))
		return option_refuse(problem, "--rdzv-endpoint %s: expected HOST:PORT", text);
	uint64_t port;
	if (!option_number(colon + 1, text + strlen(text), NULL, &port) || port > UINT16_MAX)
		return option_refuse(problem, "--rdzv-endpoint: port %s: expected a whole number from 0 to %d",
			colon + 1, UINT16_MAX);
	memcpy(options->host, host, host_bytes);
	options->host[host_bytes] = '\0';
	options->port = (uint16_t)port;
	return true;
}

/* A job's name becomes part of a socket's name and of a key, so it is kept short and plain. */
static bool parse_job(void *into, const char *text, char *problem)
{
	const size_t bytes = strlen(text);
	const char *plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	if (bytes == 0 || bytes >= JOB_BYTES || strspn(text, plain) != bytes)
		return option_refuse(problem,
			"--rdzv-id %s: expected 1 to %d letters, digits, dots, dashes and underscores", text,
			JOB_BYTES - 1);
	((struct options *)into)->job = text;
	return true;
}

static bool add_environment(void *into, const char *text, char *problem)
{
	struct options *options = into;
	const char *equals = strchr(text, '=');
	if (equals == NULL || equals == text)
		return option_refuse(problem, "--env %s: expected NAME=VALUE", text);
	options->environment[options->environment_count++] = text;
	return true;
}

/* Names in the order of enum bind_policy. */
static const char *const policies[] = { "auto", "core", "share", "none", NULL };
/* Of enum prefix_policy. */
static const char *const prefixes[] = { "auto", "always", "never", NULL };

#define AT(member) OPTION_MEMBER(struct options, member)
#define CALL(function) .kind = OPTION_CALL, .parse = (function)
#define SECONDS(member) OPTION_REAL, AT(member), .high = TIME_MAX_S, .expects = "seconds, 0 or more"

static const struct option_row rows[] = {
	{ "nproc-per-node", "N",
		"ranks on this host; 'cores': one for each core that may be used;\n"
		"'gpu': one for each GPU that the driver shows",
		CALL(parse_local_size), .letter = 'n' },
	/* As torchrun's users write it. */
	{ "nproc_per_node", "N", NULL, CALL(parse_local_size) },
	{ "standalone", NULL, "one host only (default); accepted because torchrun has it", OPTION_SET,
		AT(is_standalone), true },
	{ "nnodes", "N", "hosts in the job, with one collet-run on each (default 1)", OPTION_NUMBER, AT(node_count), 1,
		NODE_COUNT_MAX },
	{ "node-rank", "R", "which of them this is, 0 to N-1 (default 0)", OPTION_NUMBER, AT(node_rank), 0,
		NODE_COUNT_MAX - 1 },
	{ "rdzv-endpoint", "HOST:PORT", "where rank 0 will listen; needed with several hosts", CALL(parse_endpoint) },
	{ "rdzv-id", "ID", "the job's name, the same on every host", CALL(parse_job) },
	{ "bind", NULL,
		"auto: whole cores for each rank when there are enough, else as share\n"
		"where that divides evenly and nothing else runs (default);\n"
		"core: exactly one core each, or fail; share: one core each,\n"
		"neighbours on the same one; none: leave it to the system",
		OPTION_CHOICE, AT(bind), .choices = policies },
	{ "prefix", NULL,
		"put \"[rank] \" before each line of output; auto: not before rank 0's on\n"
		"a standard output that is no terminal (default)",
		OPTION_CHOICE, AT(prefix), .choices = prefixes },
	{ "no-prefix", NULL, "as --prefix never: pass the ranks collet-run's own output untouched", OPTION_SET,
		AT(prefix), PREFIX_NEVER },
	{ "no-stdin", NULL, "rank 0 reads nothing either (the other ranks never do)", OPTION_SET, AT(rank0_reads_stdin),
		false },
	{ "env", "NAME=VALUE", "set this in every rank's environment too; may be repeated", CALL(add_environment) },
	{ "grace", "SECONDS",
		"what the other ranks have to end by themselves after one failed, and\n"
		"again between SIGTERM and SIGKILL (default 1)",
		SECONDS(grace_s) },
	{ "restarts", "R", "when a rank fails, start all of them again, up to R times (default 0)", OPTION_NUMBER,
		AT(restarts), 0, RESTARTS_MAX },
	{ "timeout", "SECONDS", "end the whole run after this long, with exit status 124", SECONDS(timeout_s) },
	{ "make-secret", NULL,
		"make the secret that jobs on several hosts need, if there is none,\nand say where it is", OPTION_SET,
		AT(command), COMMAND_MAKE_SECRET },
	{ "version", NULL, "print the version and exit", OPTION_SET, AT(command), COMMAND_VERSION, .ends = true },
	{ "help", NULL, "print this and exit", OPTION_SET, AT(command), COMMAND_HELP, .letter = 'h', .ends = true },
};

static const char intro[] =
	"Usage: collet-run -n N [OPTION]... PROGRAM [ARGUMENT]...\n"
	"Starts N ranks of PROGRAM on this host, tells each its rank and where to meet the others,\n"
	"and ends them all when one of them fails.\n"
	"\n";

static const char outro[] =
	"\n"
	"Exit status: that of the rank that failed first, 128 + the signal if one killed it, 127 or 126 if\n"
	"PROGRAM cannot be found or run, 124 after --timeout, 2 for a wrong command line, 1 if collet-run\n"
	"itself fails. See collet-run(1).\n";

static const struct option_table table = {
	.program = "collet-run",
	.refusal = "expected",
	.rows = rows,
	.count = sizeof(rows) / sizeof(rows[0]),
	/* The first word that is no option is the program, and what follows is its own. */
	.stops_at_word = true,
	.intro = intro,
	.outro = outro,
};

void options_print_help(void)
{
	option_table_print(&table, stdout);
}

/* Checks combinations of options. */
static bool fits_together(const struct options *options)
{
	if (options->command != COMMAND_RUN)
		return true;
	if (!options->has_local_size) {
		say("-n: missing; say how many ranks to start, as in: collet-run -n 2 PROGRAM");
		return false;
	}
	if (options->program[0] == NULL) {
		say("PROGRAM: missing; say what to run, as in: collet-run -n 2 PROGRAM");
		return false;
	}
	if (options->is_standalone && options->node_count > 1) {
		say("--standalone: means one host, but --nnodes is %u; leave one of both away", options->node_count);
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
	/* The endpoint names the job (environment.c). */
	if (options->node_count > 1 && options->job == NULL &&
		snprintf(NULL, 0, "%s-%u", options->host, options->port) >= JOB_BYTES) {
		say("--rdzv-id: missing; %s is too long to name the job after", options->host);
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
		.prefix = PREFIX_AUTO,
		.rank0_reads_stdin = true,
		.grace_s = 1,
		.environment = calloc((size_t)argc + 1, sizeof(*options->environment)),
	};
	if (options->environment == NULL) {
		say("out of memory");
		return false;
	}
	char problem[OPTION_PROBLEM_BYTES];
	const int words = option_table_parse(&table, argc, argv, options, NULL, problem);
	if (words < 0) {
		say("%s", problem);
		return false;
	}
	options->program = argv + words;
	return fits_together(options);
}

void options_deinit(struct options *options)
{
	free(options->environment);
	options->environment = NULL;
	options->environment_count = 0;
}
