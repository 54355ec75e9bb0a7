/* The drivers' side: take a command, run it, answer. */
#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pin.h"

struct server {
	const struct bench_driver *driver;
	int fd;
	bool prepared;
	struct bench_run run;
	struct bench_samples samples;
};

uint32_t bench_env_u32(const char *const *names, uint32_t missing)
{
	for (; *names != NULL; names++) {
		const char *text = getenv(*names);
		if (text != NULL && *text != '\0')
			return (uint32_t)strtoul(text, NULL, 10);
	}
	return missing;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (path == NULL || strlen(path) >= sizeof(address.sun_path)) {
		fprintf(stderr, "this program is started by collet-bench compare, which sets %s\n",
			BENCH_SOCKET_VARIABLE);
		return -1;
	}
	strcpy(address.sun_path, path);
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	fprintf(stderr, "cannot reach collet-bench at %s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool send_hello(const struct server *s)
{
	const struct bench_library *library = &s->driver->library;
	struct bench_hello hello = { .magic = BENCH_DRIVER_MAGIC, .rank = library->rank, .size = library->size,
		.pinned = bench_is_pinned() };
	snprintf(hello.version, sizeof(hello.version), "%s", s->driver->version);
	return send(s->fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello);
}

static void fail(struct server *s, struct bench_reply *reply)
{
	const struct bench_library *library = &s->driver->library;
	const char *why = library->error != NULL ? library->error(library->context) : "the call failed";
	reply->answer = BENCH_FAILED;
	snprintf(reply->text, sizeof(reply->text), "rank %u: %s", library->rank, why);
}

static void cannot(struct bench_reply *reply, const char *why)
{
	reply->answer = BENCH_CANNOT;
	snprintf(reply->text, sizeof(reply->text), "%s", why);
}

static void release(struct server *s)
{
	if (s->prepared)
		bench_run_deinit(&s->run);
	s->prepared = false;
}

static void prepare(struct server *s, const struct bench_command *command, struct bench_reply *reply)
{
	const struct bench_library *library = &s->driver->library;
	release(s);
	if (!bench_library_can(library, &command->work, command->count)) {
		cannot(reply, "not offered by this library");
		return;
	}
	const void *how = NULL;
	if (s->driver->plan != NULL)
		how = s->driver->plan(library->context, command, reply);
	const char *problem = bench_run_init(&s->run, library, &command->work, command->count,
		(enum bench_buffer_kind)command->buffers, command->cold != 0, how);
	if (problem != NULL) {
		cannot(reply, problem);
		return;
	}
	s->prepared = true;
	if (bench_run_checked(&s->run, &reply->wrong, &reply->first_wrong))
		fail(s, reply);
}

static void batch(struct server *s, const struct bench_command *command, struct bench_reply *reply)
{
	struct bench_times times;
	if (command->warm_iterations > 0 && bench_run_batch(&s->run, command->warm_iterations, &times)) {
		fail(s, reply);
		return;
	}
	const int failed = command->sync ? bench_run_synced_batch(&s->run, command->iterations, &times)
		: bench_run_batch(&s->run, command->iterations, &times);
	if (failed) {
		fail(s, reply);
		return;
	}
	reply->elapsed_ns = times.elapsed_ns;
	reply->cpu_ns = times.cpu_ns;
}

static void sample(struct server *s, const struct bench_command *command, struct bench_reply *reply)
{
	if (bench_run_samples(&s->run, command->iterations, &s->samples)) {
		fail(s, reply);
		return;
	}
	reply->p50_ns = bench_percentile(&s->samples, 0.5);
	reply->p99_ns = bench_percentile(&s->samples, 0.99);
}

static void rewrite(struct server *s, const struct bench_command *command, struct bench_reply *reply)
{
	if (bench_run_rewritten(&s->run, command->iterations, &s->samples, &reply->wrong)) {
		fail(s, reply);
		return;
	}
	reply->p50_ns = bench_percentile(&s->samples, 0.5);
	reply->p99_ns = bench_percentile(&s->samples, 0.99);
}

static void obey(struct server *s, const struct bench_command *command, struct bench_reply *reply)
{
	memset(reply, 0, sizeof(*reply));
	reply->predicted_ns = -1;
	if (command->order == BENCH_PREPARE)
		prepare(s, command, reply);
	else if (!s->prepared)
		cannot(reply, "nothing is prepared");
	else if (command->order == BENCH_BATCH)
		batch(s, command, reply);
	else if (command->order == BENCH_REWRITTEN)
		rewrite(s, command, reply);
	else
		sample(s, command, reply);
}

static int serve(struct server *s)
{
	for (;;) {
		struct bench_command command;
		struct bench_reply reply;
		const ssize_t got = recv(s->fd, &command, sizeof(command), 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got != (ssize_t)sizeof(command))
			return 1;   /* collet-bench is gone */
		if (command.order == BENCH_QUIT)
			return 0;
		obey(s, &command, &reply);
		if (send(s->fd, &reply, sizeof(reply), MSG_NOSIGNAL) != (ssize_t)sizeof(reply))
			return 1;
	}
}

int bench_driver_serve(const struct bench_driver *driver)
{
	struct server s = { .driver = driver, .samples = { .capacity = BENCH_DRIVER_SAMPLES } };
	int status = 1;
	s.fd = connect_to(getenv(BENCH_SOCKET_VARIABLE));
	s.samples.ns = calloc(s.samples.capacity, sizeof(s.samples.ns[0]));
	if (s.fd >= 0 && s.samples.ns != NULL && send_hello(&s))
		status = serve(&s);
	release(&s);
	free(s.samples.ns);
	if (s.fd >= 0)
		close(s.fd);
	return status;
}
