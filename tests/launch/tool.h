/* Running collet-run as its users do: a real process, its output collected, and a deadline on every wait. */
#ifndef COLLET_TESTS_LAUNCH_TOOL_H
#define COLLET_TESTS_LAUNCH_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { TOOL_DEADLINE_MS = 60000, TOOL_ARGUMENTS_MAX = 48 };

/* What has come from one of its files, always NUL-terminated (the NUL is not counted). */
struct tool_text {
	char *text;
	size_t bytes;
};

struct tool {
	pid_t pid;
	int input;               /* its standard input; -1: none, or closed */
	int files[2];            /* its standard output and error; -1 once ended */
	struct tool_text out, error;
};

struct tool_setup {
	const char *program;     /* looked for in PATH; NULL: $COLLET_RUN --prefix=always */
	bool no_prefix_option;   /* $COLLET_RUN alone */
	const char *input;       /* NULL: /dev/null; "": a pipe that the test writes to */
	bool merged;             /* standard error goes where standard output goes */
	bool terminal;           /* all three are one new terminal, which is tool.files[0] and tool.input */
	int lifeline;            /* a descriptor that it and all it starts inherit as 9; 0: none */
};

/* Starts the program with these arguments (NULL-terminated). It is asked to end if the test dies. */
void tool_start(struct tool *tool, const struct tool_setup *setup, const char *const *arguments);

/* Waits until its standard output contains text; fails the test at the deadline or if it ends without. */
void tool_await(struct tool *tool, const char *text);

/* Collects all output and waits for the end; returns the exit status as a shell gives it. deinit frees the texts. */
int tool_finish(struct tool *tool);
void tool_deinit(struct tool *tool);

/* start with no setup, and finish. */
int tool_run(struct tool *tool, const char *const *arguments);

/* How often text occurs. */
size_t occurrences(const char *in, const char *text);

/* Waits until the last holder of a pipe's writing end has died. False: not before the deadline. */
bool await_end(int read_fd);

/* A new folder under /tmp, removed with its files by remove_folder(). */
void make_folder(char path[64]);
void remove_folder(const char *path);

/* The words of a command line, without a cast at each place. */
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

#endif
