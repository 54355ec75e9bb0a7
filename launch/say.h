/* Prints collet-run's own messages: one line each on standard error, with the program's name in front. */
#ifndef COLLET_LAUNCH_SAY_H
#define COLLET_LAUNCH_SAY_H

/* Exit statuses of collet-run's own, as the shell and timeout(1) use them. */
enum {
	EXIT_USAGE = 2,
	EXIT_TIMED_OUT = 124,
	EXIT_CANNOT_EXECUTE = 126,
	EXIT_NOT_FOUND = 127,
	EXIT_SIGNAL_BASE = 128,
};

/* Writes "collet-run: <sentence>\n" to standard error in one piece. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns "SIGTERM" for 15; "signal 40" style names for signals without a name, in the caller's buffer. */
const char *signal_name(int number, char *buffer, unsigned buffer_bytes);

#endif
