#include "core/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/number.h"
#include "core/status.h"

const char *collet_env(const char *name)
{
	const char *text = getenv(name);
	return text && *text ? text : NULL;
}

bool collet_parse_u64(const char *text, uint64_t max, uint64_t *value)
{
	if (*text < '0' || *text > '9')  /* strtoull takes signs and spaces */
		return false;
	char *end;
	errno = 0;
	unsigned long long parsed = strtoull(text, &end, 10);
	if (errno || *end || parsed > max)
		return false;
	*value = parsed;
	return true;
}

bool collet_parse_bytes(const char *text, uint64_t *value)
{
	if (*text < '0' || *text > '9')
		return false;
	char *end;
	errno = 0;
	unsigned long long parsed = strtoull(text, &end, 10);
	unsigned shift = 0;
	switch (*end) {
	case 'k': case 'K': shift = 10; break;
	case 'm': case 'M': shift = 20; break;
	case 'g': case 'G': shift = 30; break;
	}
	if (shift)
		end++;
	if (errno || *end || parsed > UINT64_MAX >> shift)
		return false;
	*value = (uint64_t)parsed << shift;
	return true;
}

collet_status collet_env_u64(const char *name, uint64_t max, uint64_t *value)
{
	const char *text = collet_env(name);
	if (!text || collet_parse_u64(text, max, value))
		return COLLET_OK;
	return collet_fail(
		COLLET_ERR_CONFIG, "%s=%s is not a number from 0 to %llu", name, text, (unsigned long long)max);
}

/* Parses a list of numbers up to max. Writes the entry of this index if there is one, and how many there are. */
static bool parse_list(const char *text, uint64_t index, uint64_t max, uint64_t *value, uint32_t *count)
{
	char entry[24];
	uint64_t number;
	for (*count = 0;; text++) {
		const size_t length = strcspn(text, ",");
		if (length >= sizeof(entry))
			return false;
		memcpy(entry, text, length);
		entry[length] = '\0';
		if (!collet_parse_u64(entry, max, &number))
			return false;
		if ((*count)++ == index)
			*value = number;
		text += length;
		if (!*text)
			return true;
	}
}

collet_status collet_env_list_u64(const char *name, uint32_t index, uint64_t max, uint64_t *value)
{
	const char *text = collet_env(name);
	uint64_t found;
	uint32_t count;
	if (!text)
		return COLLET_OK;
	if (!parse_list(text, index, max, &found, &count))
		return collet_fail(COLLET_ERR_CONFIG, "%s=%s is no list of numbers from 0 to %llu, as 4,5,6", name,
			text, (unsigned long long)max);
	(void)parse_list(text, index % count, max, value, &count);
	return COLLET_OK;
}

collet_status collet_env_bytes(const char *name, uint64_t *value)
{
	const char *text = collet_env(name);
	if (!text || collet_parse_bytes(text, value))
		return COLLET_OK;
	return collet_fail(COLLET_ERR_CONFIG, "%s=%s is not a number of bytes such as 65536, 64K or 1M", name, text);
}

collet_status collet_env_bool(const char *name, bool *value)
{
	static const char *const yes[] = { "1", "yes", "true", "on" }, *const no[] = { "0", "no", "false", "off" };
	const char *text = collet_env(name);
	if (!text)
		return COLLET_OK;
	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
			*value = strcasecmp(text, yes[i]) == 0;
			return COLLET_OK;
		}
	}
	return collet_fail(COLLET_ERR_CONFIG, "%s=%s is neither 1 nor 0", name, text);
}

collet_status collet_env_timeout(const char *name, int64_t *timeout_ns)
{
	const char *text = collet_env(name);
	if (!text)
		return COLLET_OK;
	double seconds;
	if (!collet_number_read(text, &seconds) || seconds < 0 || seconds > 1e9)
		return collet_fail(COLLET_ERR_CONFIG, "%s=%s is not a number of seconds (0: no timeout)", name, text);
	if (seconds == 0)
		*timeout_ns = COLLET_NO_TIMEOUT;
	else
		*timeout_ns = seconds < 1e-9 ? 1 : (int64_t)(seconds * 1e9);
	return COLLET_OK;
}
