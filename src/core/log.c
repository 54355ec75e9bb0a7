#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = { "none", "error", "warn", "info", "debug" };

int collet_log_level_parse(const char *text)
{
	for (int i = 0; i < (int)(sizeof(level_names) / sizeof(level_names[0])); i++)
		if (strcmp(text, level_names[i]) == 0)
			return i;
	return -1;
}

void collet_log(const struct collet_log *log, enum collet_log_level level, const char *format, ...)
{
	if (level > log->level || level == COLLET_LOG_NONE)
		return;
	char line[1200];
	int head_bytes = snprintf(line, sizeof(line), "collet[%u] %s: ", log->rank, level_names[level]);
	va_list arguments;
	va_start(arguments, format);
	int text_bytes = vsnprintf(line + head_bytes, sizeof(line) - (size_t)head_bytes, format, arguments);
	va_end(arguments);
	if (text_bytes < 0)
		return;
	size_t length = (size_t)head_bytes + (size_t)text_bytes;
	if (length > sizeof(line) - 1)
		length = sizeof(line) - 1;
	line[length++] = '\n';  /* replaces the NUL */
	ssize_t written = write(STDERR_FILENO, line, length);
	(void)written;  /* a failure of the log itself cannot be reported */
}
