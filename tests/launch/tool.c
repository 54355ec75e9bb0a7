/* Running collet-run. Output is read while waiting, so that a full pipe never holds it up. */
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void make_pipe(int ends[2])
{
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
}

static void open_terminal(int ends[2])
{
	ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(ends[0] >= 0 && grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0);
	const struct winsize size = { .ws_row = 24, .ws_col = 80 };
	assert_int_equal(ioctl(ends[0], TIOCSWINSZ, &size), 0);
	ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(ends[1] >= 0);
}

static _Noreturn void become_tool(const int files[3], const struct tool_setup *setup, const char *const *arguments)
{
	char *argv[TOOL_ARGUMENTS_MAX + 3] = { setup->program != NULL ? strdup(setup->program) : getenv("COLLET_RUN") };
	size_t count = 1;
	if (setup->program == NULL && !setup->no_prefix_option)
		argv[count++] = strdup("--prefix=always");
	for (size_t i = 0; i < TOOL_ARGUMENTS_MAX && arguments[i] != NULL; i++)
		argv[count++] = strdup(arguments[i]);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	/* Whoever runs the tests may ignore some: nohup, a shell in the background. */
	static const int defaults[] = { SIGPIPE, SIGHUP, SIGINT, SIGQUIT, SIGTERM };
	for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
		signal(defaults[i], SIG_DFL);
	if (setup->terminal && (setsid() < 0 || ioctl(files[0], TIOCSCTTY, 0) != 0))
		_exit(99);
	for (int fd = 0; fd < 3; fd++) {
		if (dup2(files[fd], fd) < 0)
			_exit(99);
	}
	if (setup->lifeline > 0 && dup2(setup->lifeline, 9) < 0)
		_exit(99);
	execvp(argv[0], argv);
	_exit(99);
}

void tool_start(struct tool *tool, const struct tool_setup *setup, const char *const *arguments)
{
	assert_non_null(getenv("COLLET_RUN"));
	*tool = (struct tool){ .input = -1, .files = { -1, -1 } };
	int input[2] = { -1, -1 }, out[2], error[2] = { -1, -1 };
	if (setup->terminal) {
		open_terminal(out);
		setenv("TERM", "xterm", 1);
		input[0] = error[1] = out[1];
	} else {
		make_pipe(out);
		if (setup->merged)
			error[1] = out[1];
		else
			make_pipe(error);
		if (setup->input != NULL)
			make_pipe(input);
		else
			input[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	const int files[3] = { input[0], out[1], error[1] };
	tool->pid = fork();
	assert_true(tool->pid >= 0);
	if (tool->pid == 0)
		become_tool(files, setup, arguments);
	close(out[1]);
	if (error[1] != out[1])
		close(error[1]);
	if (input[0] != out[1])
		close(input[0]);
	tool->files[0] = out[0];
	tool->files[1] = error[0];
	tool->input = setup->terminal ? dup(out[0]) : input[1];
	if (setup->input != NULL && setup->input[0] != '\0') {
		assert_int_equal(write(tool->input, setup->input, strlen(setup->input)), strlen(setup->input));
		close(tool->input);
		tool->input = -1;
	}
}

static void collect(int *fd, struct tool_text *text)
{
	char data[65536];
	const ssize_t got = read(*fd, data, sizeof(data));
	if (got < 0 && errno == EINTR)
		return;
	if (got <= 0) {
		/* A terminal whose last user has gone reads EIO. */
		close(*fd);
		*fd = -1;
		return;
	}
	text->text = realloc(text->text, text->bytes + (size_t)got + 1);
	assert_non_null(text->text);
	memcpy(text->text + text->bytes, data, (size_t)got);
	text->bytes += (size_t)got;
	text->text[text->bytes] = '\0';
}

/* False: both files have ended, or the deadline has passed. */
static bool collect_some(struct tool *tool, int64_t deadline)
{
	struct pollfd polled[2] = {
		{ .fd = tool->files[0], .events = POLLIN }, { .fd = tool->files[1], .events = POLLIN } };
	const int64_t left = deadline - now_ms();
	if ((tool->files[0] < 0 && tool->files[1] < 0) || left <= 0 || poll(polled, 2, (int)left) <= 0)
		return false;
	if (polled[0].revents != 0)
		collect(&tool->files[0], &tool->out);
	if (polled[1].revents != 0)
		collect(&tool->files[1], &tool->error);
	return true;
}

void tool_await(struct tool *tool, const char *text)
{
	const int64_t deadline = now_ms() + TOOL_DEADLINE_MS;
	while (tool->out.text == NULL || strstr(tool->out.text, text) == NULL) {
		if (!collect_some(tool, deadline))
			fail_msg("no \"%s\" in: %s\nstandard error: %s", text, tool->out.text, tool->error.text);
	}
}

int tool_finish(struct tool *tool)
{
	const int64_t deadline = now_ms() + TOOL_DEADLINE_MS;
	while (collect_some(tool, deadline))
		continue;
	if (tool->files[0] >= 0 || tool->files[1] >= 0)
		fail_msg("still running at the deadline; so far: %s\n%s", tool->out.text, tool->error.text);
	int status;
	assert_int_equal(waitpid(tool->pid, &status, 0), tool->pid);
	if (tool->out.text == NULL)
		tool->out.text = calloc(1, 1);
	if (tool->error.text == NULL)
		tool->error.text = calloc(1, 1);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void tool_deinit(struct tool *tool)
{
	free(tool->out.text);
	free(tool->error.text);
	for (int i = 0; i < 2; i++) {
		if (tool->files[i] >= 0)
			close(tool->files[i]);
	}
	if (tool->input >= 0)
		close(tool->input);
}

int tool_run(struct tool *tool, const char *const *arguments)
{
	const struct tool_setup none = { 0 };
	tool_start(tool, &none, arguments);
	return tool_finish(tool);
}

size_t occurrences(const char *in, const char *text)
{
	size_t count = 0;
	for (const char *at = strstr(in, text); at != NULL; at = strstr(at + strlen(text), text))
		count++;
	return count;
}

bool await_end(int read_fd)
{
	const int64_t deadline = now_ms() + TOOL_DEADLINE_MS;
	for (;;) {
		char data[4096];
		struct pollfd polled = { .fd = read_fd, .events = POLLIN };
		const int64_t left = deadline - now_ms();
		if (left <= 0 || poll(&polled, 1, (int)left) <= 0)
			return false;
		const ssize_t got = read(read_fd, data, sizeof(data));
		if (got == 0)
			return true;
		if (got < 0 && errno != EINTR)
			return false;
	}
}

void make_folder(char path[64])
{
	snprintf(path, 64, "/tmp/collet-test-XXXXXX");
	assert_non_null(mkdtemp(path));
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
	return remove(path);
}

void remove_folder(const char *path)
{
	(void)nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
