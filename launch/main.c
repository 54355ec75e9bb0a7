/* collet-run starts a job's ranks on this host. This file runs the steps in order: options, placement, bootstrap
 * (environment.c), secret, front. The supervisor runs the processes. */
#include <collet/collet.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "front.h"
#include "gpu.h"
#include "say.h"
#include "secret.h"

/* Descriptors 0 to 2 are given to the ranks, so something must be there, or a pipe's end would be. */
static bool open_missing_files(void)
{
	struct stat status;
	for (int fd = 0; fd <= 2; fd++) {
		/* open() takes the lowest number that is free, which is fd. */
		if (fstat(fd, &status) != 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
			return false;
	}
	return true;
}

static bool is_set(const char *name)
{
	const char *value = getenv(name);
	return value != NULL && value[0] != '\0';
}

/* Prepares the secret that a job on several hosts needs. The library judges one that the user gives in a variable.
 * This checks the permissions of a file before any rank starts. */
static bool prepare_secret(const struct options *options)
{
	if (options->node_count == 1 || is_set("COLLET_SECRET"))
		return true;
	char path[PATH_MAX];
	const bool given = is_set("COLLET_SECRET_FILE");
	if (given)
		snprintf(path, sizeof(path), "%s", getenv("COLLET_SECRET_FILE"));
	else if (!secret_path(path, sizeof(path)))
		return false;
	if (!given && options->node_rank == 0) {
		bool made;
		if (!secret_make(path, &made))
			return false;
		if (made)
			say("made the job secret %s; every other host needs a copy of it (mode 0600)", path);
	}
	return secret_check(path) && setenv("COLLET_SECRET_FILE", path, 1) == 0;
}

static int make_secret(void)
{
	char path[PATH_MAX];
	bool made;
	if (is_set("COLLET_SECRET_FILE"))
		snprintf(path, sizeof(path), "%s", getenv("COLLET_SECRET_FILE"));
	else if (!secret_path(path, sizeof(path)))
		return EXIT_FAILURE;
	if (!secret_make(path, &made) || !secret_check(path))
		return EXIT_FAILURE;
	printf("%s\n", path);
	return EXIT_SUCCESS;
}

/* Sets the number of ranks that -n left open. */
static bool count_ranks(struct options *options, const struct placement *placement)
{
	char why[GPU_WHY_BYTES] = "";
	if (options->local_size == 0)
		options->local_size = options->by_gpus ? gpu_count(why) : placement->usable_count;
	if (options->local_size == 0)
		say("-n gpu: %s; give a number of ranks, or 'cores'", why);
	return options->local_size > 0;
}

static int run(struct job *job)
{
	struct options *options = &job->options;
	if (gethostname(job->host_name, sizeof(job->host_name) - 1) != 0)
		strcpy(job->host_name, "?");
	if (!placement_init(&job->placement) || !count_ranks(options, &job->placement) ||
		!placement_choose(&job->placement, options->bind, options->local_size) || !prepare_secret(options) ||
		!bootstrap_init(&job->bootstrap, options))
		return EXIT_FAILURE;
	const int status = front_run(job);
	bootstrap_deinit(&job->bootstrap);
	return status;
}

int main(int argc, char **argv)
{
	struct job job = { 0 };
	if (!open_missing_files())
		return EXIT_FAILURE;
	int status = EXIT_USAGE;
	if (options_parse(&job.options, argc, argv)) {
		switch (job.options.command) {
		case COMMAND_HELP:
			options_print_help();
			status = EXIT_SUCCESS;
			break;
		case COMMAND_VERSION:
			printf("collet-run %d.%d.%d\n", COLLET_VERSION_MAJOR, COLLET_VERSION_MINOR,
				COLLET_VERSION_PATCH);
			status = EXIT_SUCCESS;
			break;
		case COMMAND_MAKE_SECRET:
			status = make_secret();
			break;
		case COMMAND_RUN:
			status = run(&job);
			break;
		}
	}
	placement_deinit(&job.placement);
	options_deinit(&job.options);
	return status;
}
