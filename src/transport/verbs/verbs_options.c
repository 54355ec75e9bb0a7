/* verbs: reads the options COLLET_VERBS_*, except the list of devices (verbs_adapters.c). */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/sysinfo.h>

#include "verbs_adapter.h"

enum { MAX_WIDE = 32 };

static collet_status read_number(
	const struct collet_services *services, const char *name, unsigned long max, unsigned long *value)
{
	const char *text = services->option(name);
	if (!text)
		return COLLET_OK;
	char *end;
	errno = 0;
	const unsigned long parsed = strtoul(text, &end, 10);
	if (errno || *end || *text < '0' || *text > '9' || parsed > max)
		return services->fail(
			COLLET_ERR_CONFIG, "verbs: %s=%s is not a number from 0 to %lu", name, text, max);
	*value = parsed;
	return COLLET_OK;
}

collet_status collet_verbs_read_options(const struct collet_services *services, struct verbs_options *options)
{
	/* 2^16 * 4.096 us = 0.27 s, seven times; adapters may take up to four times as long. That is longer than a
	 * switch needs to find another path, and short enough that nobody waits for minutes. Some adapters, rxe among
	 * them, never give up with 7 retries. */
	unsigned long timeout = 16, retries = 6, level = 0, class = 0, gid = ULONG_MAX, pinned = 0, wide = MAX_WIDE;
	struct sysinfo machine;
	if (sysinfo(&machine) == 0)
		pinned = machine.totalram / 2 * machine.mem_unit >> 20;
	const struct {
		const char *name;
		unsigned long most, *value;
	} rows[] = {
		{ "COLLET_VERBS_TIMEOUT", 31, &timeout },
		{ "COLLET_VERBS_RETRY_COUNT", 7, &retries },
		{ "COLLET_VERBS_SERVICE_LEVEL", 15, &level },
		{ "COLLET_VERBS_TRAFFIC_CLASS", 255, &class },
		{ "COLLET_VERBS_GID_INDEX", 255, &gid },
		{ "COLLET_VERBS_PINNED_MIB", ULONG_MAX >> 20, &pinned },
		{ "COLLET_VERBS_WIDE", UINT32_MAX, &wide },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const collet_status status = read_number(services, rows[i].name, rows[i].most, rows[i].value);
		if (status != COLLET_OK)
			return status;
	}
	*options = (struct verbs_options){ .timeout = (uint8_t)timeout,
		.retries = (uint8_t)retries,
		.service_level = (uint8_t)level,
		.traffic_class = (uint8_t)class,
		.gid_index = gid == ULONG_MAX ? -1 : (int)gid,
		.max_pinned_bytes = (uint64_t)pinned << 20,
		.max_wide = (uint32_t)wide };
	return COLLET_OK;
}
