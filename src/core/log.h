/* Writes log lines to standard error as COLLET_LOG=error|warn|info|debug asks. At the default, warn, the only line is
 * the warning about ranks that do not arrive (see docs). Whoever first learns of an error logs it, once. */
#ifndef COLLET_CORE_LOG_H
#define COLLET_CORE_LOG_H

#include <collet/log_level.h>

#include <stdint.h>

/* The log of one context, filled once from its configuration. A zeroed one logs nothing. */
struct collet_log {
	enum collet_log_level level;
	uint32_t rank;
};

/* Returns the level named "none", "error", ..., or -1 if there is none. */
int collet_log_level_parse(const char *text);

/* Writes one line, "collet[rank] level: text". It uses one write(2), so lines of several ranks do not mix. */
void collet_log(const struct collet_log *log, enum collet_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
