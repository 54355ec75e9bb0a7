#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "closest_name.h"

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

bool train_check_name(const char *what, const char *name, const char *const *names)
{
	char known[400] = "", meant[96] = "";
	size_t count = 0;
	for (; names[count]; count++)
		if (strcmp(names[count], name) == 0)
			return true;
	for (size_t i = 0; i < count; i++) {
		const size_t used = strlen(known);
		snprintf(known + used, sizeof(known) - used, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " and ",
			names[i]);
	}
	const char *closest = collet_closest_name(name, names, count);
	if (closest)
		snprintf(meant, sizeof(meant), " (did you mean \"%s\"?)", closest);
	return train_fail("there is no %s %s%s; %s are known", what, name, meant, known);
}

bool train_check(collet_status status, const char *what)
{
	return status == COLLET_OK || train_fail("%s: %s: %s", what, collet_status_name(status), collet_last_error());
}
