/* Reads the settings of the faulty wrapper: COLLET_FAULTY and COLLET_FAULTY_SEED. */
#include <stdio.h>
#include <string.h>

#include "core/config.h"
#include "core/status.h"
#include "transport/wrap/faulty.h"

enum { RANDOM_MAX = 100 }; /* a fault whose message the seed chooses comes among this many first messages */

static uint64_t random_message(uint64_t seed, uint32_t setting)
{
	uint64_t state = seed ^ (uint64_t)setting << 32;
	return 1 + faulty_random(&state) % RANDOM_MAX;
}

static collet_status parse(struct faulty_device *device, const char *text, bool *is_random)
{
	const struct {
		const char *name;
		uint64_t *value, most;
		bool is_fault;
	} known[] = {
		{ "delay", &device->delay_us, 1000000, false }, { "split", &device->split, UINT32_MAX, false },
		{ "skip", &device->skip, UINT32_MAX, false }, { "lose", &device->lose, UINT64_MAX, true },
		{ "fail", &device->fail, UINT64_MAX, true }, { "drop", &device->drop, UINT64_MAX, true },
		{ "leave", &device->leave, UINT64_MAX, true }, { "rank", &device->rank, UINT32_MAX, false },
	};
	for (const char *at = text; *at;) {
		char name[16], value[32];
		int word = 0, used = 0;
		uint32_t k = 0;
		if (sscanf(at, "%15[a-z]%n=%31[0-9]%n", name, &word, value, &used) >= 1)
			while (k < sizeof(known) / sizeof(known[0]) && strcmp(known[k].name, name) != 0)
				k++;
		/* A fault without a number: the seed chooses the message. */
		const bool is_fault = word && k < sizeof(known) / sizeof(known[0]) && known[k].is_fault;
		if (is_fault && !used) {
			*known[k].value = random_message(device->seed, k);
			used = word;
			*is_random = true;
		} else if (!used || k == sizeof(known) / sizeof(known[0]) ||
			!collet_parse_u64(value, known[k].most, known[k].value)) {
			used = 0;
		}
		if (!used || (at[used] != ',' && at[used] != '\0'))
			return collet_fail(COLLET_ERR_CONFIG,
				"COLLET_FAULTY=%s: \"%s\" is none of delay=US (up to 1000000), split=N, skip=N, "
				"lose[=N], fail[=N], drop[=N], leave[=N], rank=R",
				text, at);
		at += used + (at[used] == ',');
	}
	if (device->skip == 1)
		return collet_fail(COLLET_ERR_CONFIG, "COLLET_FAULTY=%s: skip=1 would never make progress", text);
	return COLLET_OK;
}

collet_status faulty_read_settings(struct faulty_device *device, uint64_t job, bool *is_random)
{
	const char *text = collet_env("COLLET_FAULTY");
	*is_random = !collet_env("COLLET_FAULTY_SEED");
	device->rank = UINT64_MAX;
	/* The same on all ranks. */
	device->seed = (job ^ job >> 32) & UINT32_MAX;
	const collet_status status = collet_env_u64("COLLET_FAULTY_SEED", UINT64_MAX, &device->seed);
	return status == COLLET_OK ? parse(device, text ? text : "delay=50,split=3,skip=4", is_random) : status;
}
