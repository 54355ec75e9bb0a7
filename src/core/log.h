/* Lines on standard error, only when COLLET_LOG=error|warn|info|debug asks (default: warn shows nothing but the
 * warning about ranks that do not arrive; see docs). Whoever first learns of an error logs it, once. */
#ifndef COLLET_CORE_LOG_H
#define COLLET_CORE_LOG_H

#include <collet/log_level.h>

#include <stdint.h>

/* Each context has its own, filled once from its configuration; zeroed logs nothing. */
struct collet_log {
	enum collet_log_level level;
	uint32_t rank;
};

/* "none", "error", ...; -1 for anything else. */
int collet_log_level_parse(const char *text);

/* One line, "collet[rank] level: text", written with one write(2) so that ranks' lines do not mix. */
void collet_log(const struct collet_log *log, enum collet_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
