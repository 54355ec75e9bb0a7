/* Parses hook specifications and creates hooks. */
#include <stdio.h>
#include <stdlib.h>

#include "core/number.h"
#include "core/status.h"
#include "ddp/hooks.h"

struct hook_object {
	collet_ddp_hook hook;       /* public part: the hook's kind, or the one that wraps it */
	collet_ddp_hook compressor;
	struct collet_ddp_hook_spec spec;
	char name[];
};

collet_status collet_ddp_hook_check_f32(const collet_ddp_hook *hook, const collet_ddp_hook_args *args)
{
	if (args->bucket.dtype == COLLET_F32)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_UNSUPPORTED,
		"collet_ddp: hook %s supports f32 gradients only, and bucket %u has %s", hook->name, args->index,
		collet_dtype_name(args->bucket.dtype));
}

collet_status collet_ddp_hook_no_memory(const collet_ddp_hook *hook, const collet_ddp_hook_args *args)
{
	return collet_fail(COLLET_ERR_MEMORY, "collet_ddp: hook %s: no memory for bucket %u", hook->name, args->index);
}

void collet_ddp_zero_gaps(const collet_ddp_hook_args *args)
{
	const collet_ddp_bucket *bucket = &args->bucket;
	const size_t element = collet_dtype_bytes(bucket->dtype);
	for (uint32_t i = 0; i < bucket->slice_count; i++) {
		const uint64_t from = bucket->slices[i].first + bucket->slices[i].count;
		const uint64_t to = i + 1 < bucket->slice_count ? bucket->slices[i + 1].first : bucket->count;
		memset((unsigned char *)bucket->gradients + from * element, 0, (to - from) * element);
	}
}

/* Parses the number after the colon. Returns false if there is none, or it is out of range. */
static bool parse_number(const char *text, double low, double high, double *value)
{
	return collet_number_read(text, value) && *value >= low && *value <= high;
}

static const collet_ddp_hook *parse_compressor(const char *text, struct collet_ddp_hook_spec *spec)
{
	double value;
	if (strcmp(text, "f16") == 0 || strcmp(text, "bf16") == 0) {
		spec->dtype = text[0] == 'f' ? COLLET_F16 : COLLET_BF16;
		return &collet_ddp_hook_half;
	}
	if (strcmp(text, "sign") == 0) {
		spec->bits = 1;
		return &collet_ddp_hook_quantize;
	}
	if (strncmp(text, "topk:", 5) == 0 && parse_number(text + 5, 0, 1, &spec->fraction) && spec->fraction > 0)
		return &collet_ddp_hook_topk;
	if (strncmp(text, "randomk:", 8) == 0 && parse_number(text + 8, 0, 1, &spec->fraction) && spec->fraction > 0)
		return &collet_ddp_hook_randomk;
	if (strncmp(text, "qsgd:", 5) == 0 && parse_number(text + 5, 2, 8, &value) &&
		(value == 8 || value == 4 || value == 2)) {
		spec->bits = (uint32_t)value;
		return &collet_ddp_hook_quantize;
	}
	if (strncmp(text, "powersgd:", 9) == 0 && parse_number(text + 9, 1, 1024, &value) && value == (uint32_t)value) {
		spec->rank = (uint32_t)value;
		return &collet_ddp_hook_powersgd;
	}
	return NULL;
}

/* Parses the part before a comma, and "momentum:M" after it, if present. */
static const collet_ddp_hook *parse_spec(const char *text, struct collet_ddp_hook_spec *spec)
{
	static const char momentum_key[] = ",momentum:";
	char compressor[32];
	double value;
	const size_t length = strcspn(text, ",");
	if (length >= sizeof(compressor))
		return NULL;
	memcpy(compressor, text, length);
	compressor[length] = 0;
	if (text[length]) {
		if (strncmp(text + length, momentum_key, sizeof(momentum_key) - 1) != 0 ||
			!parse_number(text + length + sizeof(momentum_key) - 1, 0, 1, &value) || value >= 1)
			return NULL;
		spec->momentum = (float)value;
	}
	return parse_compressor(compressor, spec);
}

collet_status collet_ddp_hook_create(collet_ddp_hook **hook, const char *spec, uint64_t seed)
{
	if (!hook || !spec)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_hook_create: hook or spec is NULL");
	struct collet_ddp_hook_spec parsed = { .seed = seed };
	const collet_ddp_hook *compressor = parse_spec(spec, &parsed);
	if (!compressor)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_hook_create: '%s' is none of f16, bf16, topk:SHARE, randomk:SHARE (0 < SHARE <= "
			"1), qsgd:BITS (8, 4, 2), sign, powersgd:RANK (1 to 1024), each with or without ,momentum:M "
			"(0 <= M < 1) after it",
			spec);
	/* The name includes the seed, since ranks compare names and must draw alike. */
	const size_t bytes = strlen(spec) + 24;
	struct hook_object *object = calloc(1, sizeof(*object) + bytes);
	if (!object)
		return collet_fail(COLLET_ERR_MEMORY, "collet_ddp_hook_create: no memory");
	object->spec = parsed;
	object->compressor = *compressor;
	object->compressor.context = &object->spec;
	object->compressor.name = object->name;
	object->hook = object->compressor;
	if (parsed.momentum > 0) {
		object->hook = collet_ddp_hook_momentum;
		object->hook.stages = compressor->stages;
		object->hook.context = &object->compressor;
		object->hook.name = object->name;
	}
	snprintf(object->name, bytes, "%s/%llu", spec, (unsigned long long)seed);
	*hook = &object->hook;
	return COLLET_OK;
}

collet_status collet_ddp_hook_destroy(collet_ddp_hook **hook)
{
	if (!hook || !*hook)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_hook_destroy: hook is NULL");
	free(*hook);
	*hook = NULL;
	return COLLET_OK;
}
