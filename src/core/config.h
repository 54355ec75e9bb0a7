/* Reading environment variables: strict, with the variable's name in every error. */
#ifndef COLLET_CORE_CONFIG_H
#define COLLET_CORE_CONFIG_H

#include <collet/collet.h>

/* NULL when unset or empty. */
const char *collet_env(const char *name);

/* These leave *value alone when the variable is unset or empty; COLLET_ERR_CONFIG, naming it, when it makes no
 * sense. */
collet_status collet_env_u64(const char *name, uint64_t max, uint64_t *value);
/* "4096", "64K", "1M", "2G" (powers of 1024). */
collet_status collet_env_bytes(const char *name, uint64_t *value);
/* "0", "1", "yes", "no", "true", "false", "on", "off". */
collet_status collet_env_bool(const char *name, bool *value);
/* Seconds, may have a fraction; 0 means none and gives COLLET_NO_TIMEOUT. */
collet_status collet_env_timeout(const char *name, int64_t *timeout_ns);

/* The parsers behind them; false: not such a thing. */
bool collet_parse_u64(const char *text, uint64_t max, uint64_t *value);
bool collet_parse_bytes(const char *text, uint64_t *value);

#endif
