/* Starting drivers, talking to them, and getting rid of them. */
#include "competitor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pin.h"
#include "ranks/process.h"

enum { START_SECONDS = 60 };

bool bootstrap_init(struct bootstrap *m, uint32_t ranks, bool pin)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	*m = (struct bootstrap){ .listener = -1, .ranks = ranks, .pin = pin };
	snprintf(m->folder, sizeof(m->folder), "/tmp/collet-bench-XXXXXX");
	if (mkdtemp(m->folder) == NULL) {
		m->folder[0] = '\0';
		fprintf(stderr, "collet-bench: cannot make a folder in /tmp: %s\n", strerror(errno));
		return false;
	}
	snprintf(m->socket_path, sizeof(m->socket_path), "%s/socket", m->folder);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", m->socket_path);
	m->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (m->listener >= 0 && bind(m->listener, (const struct sockaddr *)&address, sizeof(address)) == 0
		&& listen(m->listener, 1024) == 0)
		return true;
	fprintf(stderr, "collet-bench: cannot listen at %s: %s\n", m->socket_path, strerror(errno));
	bootstrap_deinit(m);
	return false;
}

/* The folder holds the socket, and a folder a competitor with its log and what Gloo's store left. */
static void remove_folder(const char *folder)
{
	const char *const argv[] = { "rm", "-rf", "--", folder, NULL };
	const struct bench_program program = { .argv = argv, .output = -1 };
	const pid_t pid = bench_process_start(&program, 0);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

void bootstrap_deinit(struct bootstrap *m)
{
	if (m->listener >= 0)
		close(m->listener);
	if (m->folder[0] != '\0')
		remove_folder(m->folder);
	*m = (struct bootstrap){ .listener = -1 };
}

static bool fail(struct competitor *c, const char *what)
{
	snprintf(c->problem, sizeof(c->problem), "%s", what);
	competitor_stop(c);
	return false;
}

/* Puts the last line of what it printed behind the problem: usually the reason. */
static bool fail_with_log(struct competitor *c, const char *what)
{
	char line[200] = "", last[200] = "";
	FILE *log = fopen(c->log_path, "re");
	while (log != NULL && fgets(line, sizeof(line), log) != NULL)
		if (strspn(line, " \t\n-=*") != strlen(line))
			memcpy(last, line, sizeof(last));
	if (log != NULL)
		fclose(log);
	last[strcspn(last, "\n")] = '\0';
	char text[320];
	snprintf(text, sizeof(text), "%s%s%s", what, last[0] != '\0' ? ": " : "", last);
	return fail(c, text);
}

/* Finds the driver beside this program in the build, or where it is installed. Returns false if there is none. */
static bool find_program(const char *name, char path[4200])
{
	char folder[4096];
	const char *own = bench_own_path(), *told = getenv("COLLET_BENCH_PEERS");
	if (told != NULL && *told != '\0') {
		snprintf(path, 4200, "%s/%s", told, name);
		return access(path, X_OK) == 0;
	}
	if (own == NULL)
		return false;
	snprintf(folder, sizeof(folder), "%s", own);
	*strrchr(folder, '/') = '\0';
	snprintf(path, 4200, "%.4000s/peers/%s", folder, name);
	if (access(path, X_OK) == 0)
		return true;
	snprintf(path, 4200, "%s/%s", BENCH_PEERS_INSTALLED, name);
	return access(path, X_OK) == 0;
}

/* Can that program be run? A name without a slash is looked for in PATH. */
static bool can_run(const char *name)
{
	char path[4200];
	const char *folders = getenv("PATH");
	if (strchr(name, '/') != NULL)
		return access(name, X_OK) == 0;
	while (folders != NULL && *folders != '\0') {
		const size_t length = strcspn(folders, ":");
		snprintf(path, sizeof(path), "%.*s/%s", (int)(length < 4000 ? length : 4000), folders, name);
		if (access(path, X_OK) == 0)
			return true;
		folders += length + (folders[length] == ':');
	}
	return false;
}

/* The words of the command line: the launcher with its arguments, or the program alone. */
static void put_words(const struct competitor *c, const char *path, const char *count, const char *words[16])
{
	size_t n = 0;
	if (c->variant != NULL && c->variant->launcher != NULL) {
		words[n++] = c->variant->launcher;
		for (size_t i = 0; i < PEER_ARGUMENTS_MAX && c->variant->arguments[i] != NULL; i++)
			words[n++] = c->variant->arguments[i];
		words[n++] = "-n";
		words[n++] = count;
	}
	words[n++] = path;
	if (c->variant == NULL) {
		words[n++] = "driver";
		if (c->transport != NULL) {
			words[n++] = "--transport";
			words[n++] = c->transport;
		}
	}
	words[n] = NULL;
}

static bool start_processes(struct competitor *c, const struct bootstrap *m, const char *path)
{
	char socket_variable[160], folder_variable[160], count[16], job[64];
	static const char no_pin[] = BENCH_NO_PIN_VARIABLE "=1";
	const char *words[16], *env[PEER_SETTINGS_MAX + 4];
	size_t n = 0;
	snprintf(socket_variable, sizeof(socket_variable), "%s=%s", BENCH_SOCKET_VARIABLE, m->socket_path);
	snprintf(folder_variable, sizeof(folder_variable), "COLLET_BENCH_FOLDER=%s", c->folder);
	snprintf(count, sizeof(count), "%u", m->ranks);
	bench_unique_name(job, sizeof(job));
	put_words(c, path, count, words);
	env[n++] = socket_variable;
	env[n++] = folder_variable;
	if (!m->pin)
		env[n++] = no_pin;
	for (size_t i = 0; c->variant != NULL && i < PEER_SETTINGS_MAX && c->variant->settings[i] != NULL; i++)
		env[n++] = c->variant->settings[i];
	env[n] = NULL;

	const bool launched = c->variant != NULL && c->variant->launcher != NULL;
	const int log = open(c->log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	const struct bench_program program = { .argv = words, .env = env, .ranks = launched ? 0 : m->ranks, .job = job,
		.output = log, .own_group = true };
	c->pid_count = launched ? 1 : m->ranks;
	c->pids = calloc(c->pid_count, sizeof(c->pids[0]));
	bool started = c->pids != NULL && log >= 0;
	for (uint32_t i = 0; started && i < c->pid_count; i++)
		started = (c->pids[i] = bench_process_start(&program, i)) > 0;
	if (log >= 0)
		close(log);
	return started;
}

/* Has one of its processes ended? Before it was told to, that is a failure. */
static bool has_ended(struct competitor *c)
{
	for (uint32_t i = 0; i < c->pid_count; i++)
		if (c->pids[i] > 0 && waitpid(c->pids[i], NULL, WNOHANG) == c->pids[i]) {
			c->pids[i] = 0;
			return true;
		}
	return false;
}

/* One rank's hello on a new connection; a connection that says anything else is closed. */
static void greet(struct competitor *c, int fd, uint32_t *arrived)
{
	struct bench_hello hello;
	const struct timeval patience = { .tv_sec = 5 };
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	const bool good = recv(fd, &hello, sizeof(hello), 0) == (ssize_t)sizeof(hello)
		&& hello.magic == BENCH_DRIVER_MAGIC && hello.size == c->ranks && hello.rank < c->ranks
		&& c->fds[hello.rank] < 0;
	if (!good) {
		close(fd);
		return;
	}
	c->fds[hello.rank] = fd;
	struct ucred peer = { 0 };
	socklen_t bytes = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0)
		c->rank_pids[hello.rank] = peer.pid;
	c->pinned = (*arrived == 0 || c->pinned) && hello.pinned;
	hello.version[sizeof(hello.version) - 1] = '\0';
	memcpy(c->version, hello.version, sizeof(c->version));
	(*arrived)++;
}

static bool wait_for_ranks(struct competitor *c, const struct bootstrap *m)
{
	const int64_t deadline = bench_clock_ns() + (int64_t)START_SECONDS * 1000000000;
	uint32_t arrived = 0;
	while (arrived < c->ranks) {
		struct pollfd entry = { .fd = m->listener, .events = POLLIN };
		if (poll(&entry, 1, 50) > 0) {
			const int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);
			if (fd >= 0)
				greet(c, fd, &arrived);
		} else if (has_ended(c)) {
			return fail_with_log(c, "it ended while starting");
		} else if (bench_clock_ns() > deadline) {
			return fail_with_log(c, "its ranks did not all start within a minute");
		}
	}
	return true;
}

static bool fail_missing(struct competitor *c, const char *what, const char *then)
{
	char text[200];
	c->missing = true;
	snprintf(text, sizeof(text), "%s: scripts/install-deps %s%s", what,
		c->variant->group != NULL ? c->variant->group : "peers", then);
	return fail(c, text);
}

bool competitor_start(struct competitor *c, struct bootstrap *m)
{
	char path[4200];
	c->ranks = m->ranks;
	snprintf(c->folder, sizeof(c->folder), "%s/%u", m->folder, m->started++);
	snprintf(c->log_path, sizeof(c->log_path), "%s/log", c->folder);
	if (mkdir(c->folder, 0700) != 0)
		return fail(c, strerror(errno));
	c->fds = malloc(m->ranks * sizeof(c->fds[0]));
	c->rank_pids = calloc(m->ranks, sizeof(c->rank_pids[0]));
	if (c->fds == NULL || c->rank_pids == NULL)
		return fail(c, "out of memory");
	memset(c->fds, 0xff, m->ranks * sizeof(c->fds[0]));
	if (c->variant == NULL) {
		if (bench_own_path() == NULL)
			return fail(c, "cannot find this program in /proc");
		snprintf(path, sizeof(path), "%s", bench_own_path());
	} else if (!find_program(c->variant->program, path)) {
		return fail_missing(c, "its driver was not built", "; then meson setup --reconfigure, and build");
	} else if (c->variant->launcher != NULL && !can_run(c->variant->launcher)) {
		return fail_missing(c, "its launcher is not installed", "");
	}
	if (!start_processes(c, m, path))
		return fail(c, strerror(errno));
	return wait_for_ranks(c, m);
}

static void merge(struct bench_reply *all, const struct bench_reply *one, bool first)
{
	if (first) {
		*all = *one;
		return;
	}
	all->elapsed_ns = one->elapsed_ns > all->elapsed_ns ? one->elapsed_ns : all->elapsed_ns;
	all->p50_ns = one->p50_ns > all->p50_ns ? one->p50_ns : all->p50_ns;
	all->p99_ns = one->p99_ns > all->p99_ns ? one->p99_ns : all->p99_ns;
	all->cpu_ns += one->cpu_ns;
	all->wrong += one->wrong;
	if (one->answer > all->answer) {
		all->answer = one->answer;
		memcpy(all->text, one->text, sizeof(all->text));
	}
}

bool competitor_command(struct competitor *c, const struct bench_command *command, double deadline_seconds,
	struct bench_reply *merged)
{
	for (uint32_t r = 0; r < c->ranks; r++)
		if (send(c->fds[r], command, sizeof(*command), MSG_NOSIGNAL) != (ssize_t)sizeof(*command))
			return fail_with_log(c, "a rank has gone");
	const int64_t deadline = bench_clock_ns() + (int64_t)(deadline_seconds * 1e9);
	for (uint32_t r = 0; r < c->ranks; r++) {
		struct bench_reply reply;
		struct pollfd entry = { .fd = c->fds[r], .events = POLLIN };
		const int64_t left_ms = (deadline - bench_clock_ns()) / 1000000;
		if (poll(&entry, 1, left_ms > 0 ? (int)left_ms : 0) <= 0)
			return fail(c, "it did not answer in time, and was stopped");
		if (recv(c->fds[r], &reply, sizeof(reply), 0) != (ssize_t)sizeof(reply))
			return fail_with_log(c, "a rank has gone");
		reply.text[sizeof(reply.text) - 1] = '\0';
		reply.algorithm[sizeof(reply.algorithm) - 1] = reply.transport[sizeof(reply.transport) - 1] = '\0';
		merge(merged, &reply, r == 0);
	}
	return merged->answer != BENCH_FAILED || fail(c, merged->text);
}

/* Told to quit, they end by themselves; what has not after a second is killed with all it has started. */
static void end_processes(struct competitor *c)
{
	static const struct timespec moment = { .tv_nsec = 10000000 };
	uint32_t left = c->pid_count;
	for (int tries = 0; tries < 200 && left > 0; tries++) {
		left = 0;
		for (uint32_t i = 0; i < c->pid_count; i++) {
			if (c->pids[i] > 0 && tries == 100)
				kill(-c->pids[i], SIGTERM);   /* a launcher then kills its ranks */
			if (c->pids[i] > 0 && tries == 199)
				kill(-c->pids[i], SIGKILL);
			if (c->pids[i] > 0 && waitpid(c->pids[i], NULL, tries == 199 ? 0 : WNOHANG) == c->pids[i])
				c->pids[i] = 0;
			left += c->pids[i] > 0;
		}
		if (left > 0)
			nanosleep(&moment, NULL);
	}
}

void competitor_stop(struct competitor *c)
{
	const struct bench_command quit = { .order = BENCH_QUIT };
	for (uint32_t r = 0; c->fds != NULL && r < c->ranks; r++)
		if (c->fds[r] >= 0) {
			(void)send(c->fds[r], &quit, sizeof(quit), MSG_NOSIGNAL | MSG_DONTWAIT);
			close(c->fds[r]);
		}
	free(c->fds);
	c->fds = NULL;
	free(c->rank_pids);
	c->rank_pids = NULL;
	if (c->pids != NULL)
		end_processes(c);
	free(c->pids);
	c->pids = NULL;
	c->pid_count = 0;
}
