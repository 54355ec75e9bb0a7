/* Reads environment variables strictly. Every error names the variable. */
#ifndef COLLET_CORE_CONFIG_H
#define COLLET_CORE_CONFIG_H

#include <collet/collet.h>

/* Returns the variable's value, or NULL if it is unset or empty. */
const char *collet_env(const char *name);

/* The next functions parse a variable. They leave *value unchanged if it is unset or empty. They return
 * COLLET_ERR_CONFIG if it is not valid. */
collet_status collet_env_u64(const char *name, uint64_t max, uint64_t *value);
/* "4096", "64K", "1M", "2G" (powers of 1024). */
collet_status collet_env_bytes(const char *name, uint64_t *value);
/* "0", "1", "yes", "no", "true", "false", "on", "off". */
collet_status collet_env_bool(const char *name, bool *value);
/* Reads the entry of this index of a list ("4,5,6"), which is repeated if it is shorter. */
collet_status collet_env_list_u64(const char *name, uint32_t index, uint64_t max, uint64_t *value);
/* Reads seconds, also with a fraction. 0 gives COLLET_NO_TIMEOUT. */
collet_status collet_env_timeout(const char *name, int64_t *timeout_ns);

/* Parse a text as the functions above do. Return false if it is not valid. */
bool collet_parse_u64(const char *text, uint64_t max, uint64_t *value);
bool collet_parse_bytes(const char *text, uint64_t *value);

#endif
