#include "crash.h"

#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Prints a stack with line numbers, where a sanitizer is linked in. */
extern void __sanitizer_print_stack_trace(void) __attribute__((weak));

enum { FRAMES = 48 };

static const struct {
	int number;
	const char *name;
} signals[] = { { SIGSEGV, "SIGSEGV" }, { SIGBUS, "SIGBUS" }, { SIGILL, "SIGILL" }, { SIGFPE, "SIGFPE" },
	{ SIGABRT, "SIGABRT" } };

static const char *who = "a test";

static void write_text(const char *text)
{
	const ssize_t written = write(STDERR_FILENO, text, strlen(text));
	(void)written;
}

/* The process may have crashed in the middle of malloc() or stdio: neither is used. */
static void write_address(const void *address)
{
	char text[2 + 2 * sizeof(address) + 1] = "0x";
	for (size_t i = 0; i < 2 * sizeof(address); i++)
		text[2 + i] = "0123456789abcdef"[(uintptr_t)address >> (8 * sizeof(address) - 4 * (i + 1)) & 15];
	write_text(text);
}

static void tell(int signal_number, siginfo_t *info, void *context)
{
	void *frames[FRAMES];
	(void)context;
	write_text(who);
	write_text(" has crashed: ");
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (signals[i].number == signal_number)
			write_text(signals[i].name);
	write_text(" at ");
	write_address(info->si_addr);
	write_text(gettid() == getpid() ? ", on its first thread\n" : ", on another thread than its first\n");
	if (__sanitizer_print_stack_trace)
		__sanitizer_print_stack_trace();
	else
		backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
	/* SA_RESETHAND: the failing instruction fails again, and ends the process as without a handler. A signal
	 * that was sent does not repeat itself. */
	(void)raise(signal_number);
}

void crash_tell(const char *name)
{
	struct sigaction action = { .sa_sigaction = tell, .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND | SA_NODEFER) };
	void *frame;
	(void)backtrace(&frame, 1);  /* the first call loads a library */
	if (name)
		who = name;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		(void)sigaction(signals[i].number, &action, NULL);
}
