/* The ranks' environment: torchrun's names, so that programs written for it run unchanged, and collet's own. */
#include "environment.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "say.h"
#include "secret.h"

/* Reserves a free port for the duration of the run. The socket does not listen and has SO_REUSEADDR. So bind(0) of
 * others avoids the port, while a rank that asks for MASTER_PORT by name with SO_REUSEADDR still gets it, as torch's
 * store does. It binds to all addresses, because that rank may listen on any of them. */
static bool hold_port(struct bootstrap *bootstrap)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int one = 1;
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
	socklen_t bytes = sizeof(address);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
		bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
		getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
		say("no TCP port can be had for MASTER_PORT: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return false;
	}
	bootstrap->port_holder = fd;
	bootstrap->port = ntohs(address.sin_port);
	return true;
}

static bool name_job(struct bootstrap *bootstrap, const struct options *options)
{
	if (options->job != NULL) {
		snprintf(bootstrap->job, sizeof(bootstrap->job), "%s", options->job);
		return true;
	}
	if (options->node_count == 1) {
		uint8_t random[16];
		if (!random_fill(random, sizeof(random)))
			return false;
		hex_encode(bootstrap->job, random, sizeof(random));
		return true;
	}
	/* Every host must arrive at the same name without having met; the endpoint is what they share. */
	const int length = snprintf(bootstrap->job, sizeof(bootstrap->job), "%s-%u", options->host, options->port);
	if (length < 0 || (size_t)length >= sizeof(bootstrap->job))
		return false; /* which options_parse() has refused */
	for (char *at = bootstrap->job; *at != '\0'; at++) {
		if (*at == ':' || *at == '%')
			*at = '-'; /* an IPv6 address, perhaps with its interface */
	}
	return true;
}

bool bootstrap_init(struct bootstrap *bootstrap, const struct options *options)
{
	memset(bootstrap, 0, sizeof(*bootstrap));
	bootstrap->port_holder = -1;
	bootstrap->port = options->port;
	if (!name_job(bootstrap, options))
		return false;
	snprintf(
		bootstrap->host, sizeof(bootstrap->host), "%s", options->host[0] != '\0' ? options->host : "127.0.0.1");
	if (options->node_count > 1) {
		const bool is_ipv6 = strchr(bootstrap->host, ':') != NULL;
		snprintf(bootstrap->store, sizeof(bootstrap->store), is_ipv6 ? "tcp://[%s]:%u" : "tcp://%s:%u",
			bootstrap->host, bootstrap->port);
		return true;
	}
	snprintf(bootstrap->store, sizeof(bootstrap->store), "unix:%s", bootstrap->job);
	return options->port != 0 || hold_port(bootstrap);
}

void bootstrap_deinit(struct bootstrap *bootstrap)
{
	if (bootstrap->port_holder >= 0)
		close(bootstrap->port_holder);
	bootstrap->port_holder = -1;
}

static bool set_number(const char *name, uint64_t value)
{
	char text[24];
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return setenv(name, text, 1) == 0;
}

static bool set_torchrun(
	const struct options *options, const struct bootstrap *bootstrap, uint32_t local_rank, uint32_t restart)
{
	const uint64_t rank = (uint64_t)options->node_rank * options->local_size + local_rank;
	const uint64_t world_size = (uint64_t)options->node_count * options->local_size;
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{ "RANK", rank },
		{ "WORLD_SIZE", world_size },
		{ "LOCAL_RANK", local_rank },
		{ "LOCAL_WORLD_SIZE", options->local_size },
		{ "GROUP_RANK", options->node_rank },
		{ "GROUP_WORLD_SIZE", options->node_count },
		{ "NODE_RANK", options->node_rank },
		{ "ROLE_RANK", rank },
		{ "ROLE_WORLD_SIZE", world_size },
		{ "MASTER_PORT", bootstrap->port },
		{ "TORCHELASTIC_RESTART_COUNT", restart },
		{ "TORCHELASTIC_MAX_RESTARTS", options->restarts },
		{ "COLLET_RESTART", restart },
	};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (!set_number(numbers[i].name, numbers[i].value))
			return false;
	}
	return setenv("ROLE_NAME", "default", 1) == 0 && setenv("MASTER_ADDR", bootstrap->host, 1) == 0 &&
		setenv("TORCHELASTIC_RUN_ID", bootstrap->job, 1) == 0 &&
		/* collet-run keeps no torch store of its own at MASTER_PORT. */
		setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1) == 0;
}

bool environment_set(const struct options *options, const struct bootstrap *bootstrap, uint32_t local_rank,
	uint32_t restart, uint32_t threads, uint32_t columns)
{
	if (!set_torchrun(options, bootstrap, local_rank, restart))
		return false;
	if (setenv("COLLET_JOB", bootstrap->job, 1) != 0 || setenv("COLLET_STORE", bootstrap->store, 1) != 0)
		return false;
	/* Settings of the user about threads win. */
	char text[24];
	snprintf(text, sizeof(text), "%u", threads);
	if (setenv("OMP_NUM_THREADS", text, 0) != 0)
		return false;
	/* A program that would draw a bar on a terminal sees a pipe. This tells the one rank whose bar is shown. */
	unsetenv("COLLET_RUN_TERMINAL");
	if (columns > 0 && (!set_number("COLUMNS", columns) || setenv("COLLET_RUN_TERMINAL", "1", 1) != 0))
		return false;
	for (size_t i = 0; i < options->environment_count; i++) {
		const char *equals = strchr(options->environment[i], '=');
		char *name = strndup(options->environment[i], (size_t)(equals - options->environment[i]));
		const bool set = name != NULL && setenv(name, equals + 1, 1) == 0;
		free(name);
		if (!set)
			return false;
	}
	return true;
}
