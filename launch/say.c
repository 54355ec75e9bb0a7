/* Prints collet-run's own messages. Each is one write, so that it never mixes with a rank's line. */
#include "say.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void say(const char *format, ...)
{
	char line[2048] = "collet-run: ";
	const size_t name_bytes = strlen(line);
	const size_t room = sizeof(line) - name_bytes - 1;
	va_list arguments;
	va_start(arguments, format);
	const int written = vsnprintf(line + name_bytes, room, format, arguments);
	va_end(arguments);
	if (written < 0)
		return;
	size_t bytes = name_bytes + ((size_t)written < room ? (size_t)written : room - 1);
	line[bytes++] = '\n';
	/* Nobody is left to tell if this fails. */
	const ssize_t ignored = write(STDERR_FILENO, line, bytes);
	(void)ignored;
}

const char *signal_name(int number, char *buffer, unsigned buffer_bytes)
{
	const char *abbreviation = sigabbrev_np(number);
	if (abbreviation != NULL)
		snprintf(buffer, buffer_bytes, "SIG%s", abbreviation);
	else
		snprintf(buffer, buffer_bytes, "signal %d", number);
	return buffer;
}
