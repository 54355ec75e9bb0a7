#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool train_fail(const char *format, ...)
{
	char line[1200] = "collet-train: ";
	size_t used = strlen(line);
	va_list arguments;
	va_start(arguments, format);
	int more = vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
	va_end(arguments);
	if (more > 0)
		used += (size_t)more < sizeof(line) - used - 1 ? (size_t)more : sizeof(line) - used - 2;
	line[used++] = '\n';
	/* One write, so that the lines of several ranks do not mix. */
	ssize_t written = write(STDERR_FILENO, line, used);
	(void)written;
	return false;
}

bool train_check(collet_status status, const char *what)
{
	return status == COLLET_OK || train_fail("%s: %s: %s", what, collet_status_name(status), collet_last_error());
}
