/* From words to hooks. */
#include <stdio.h>
#include <stdlib.h>

#include "core/number.h"
#include "core/status.h"
#include "ddp/hooks.h"

struct made {
	collet_ddp_hook hook;       /* what users see: the kind, or what goes around it */
	collet_ddp_hook kind;
	struct collet_ddp_words words;
	char name[];
};

collet_status collet_ddp_needs_f32(const collet_ddp_hook *hook, const collet_ddp_task *task)
{
	if (task->bucket.dtype == COLLET_F32)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_UNSUPPORTED, "collet_ddp: hook %s takes gradients of f32, and bucket %u has %s",
		hook->name, task->index, collet_dtype_name(task->bucket.dtype));
}

collet_status collet_ddp_hook_no_memory(const collet_ddp_hook *hook, const collet_ddp_task *task)
{
	return collet_fail(COLLET_ERR_MEMORY, "collet_ddp: hook %s: no memory for bucket %u", hook->name, task->index);
}

void collet_ddp_zero_gaps(const collet_ddp_task *task)
{
	const collet_ddp_bucket *bucket = &task->bucket;
	const size_t element = collet_dtype_bytes(bucket->dtype);
	for (uint32_t i = 0; i < bucket->slice_count; i++) {
		const uint64_t from = bucket->slices[i].first + bucket->slices[i].count;
		const uint64_t to = i + 1 < bucket->slice_count ? bucket->slices[i + 1].first : bucket->count;
		memset((unsigned char *)bucket->gradients + from * element, 0, (to - from) * element);
	}
}

/* Reads the number behind the colon. False: there is none, or it is out of range. */
static bool number(const char *text, double low, double high, double *value)
{
	return collet_number_read(text, value) && *value >= low && *value <= high;
}

static const collet_ddp_hook *parse(const char *text, struct collet_ddp_words *words)
{
	double value;
	if (strcmp(text, "f16") == 0 || strcmp(text, "bf16") == 0) {
		words->dtype = text[0] == 'f' ? COLLET_F16 : COLLET_BF16;
		return &collet_ddp_half;
	}
	if (strcmp(text, "sign") == 0) {
		words->bits = 1;
		return &collet_ddp_codes;
	}
	if (strncmp(text, "topk:", 5) == 0 && number(text + 5, 0, 1, &words->share) && words->share > 0)
		return &collet_ddp_top;
	if (strncmp(text, "randomk:", 8) == 0 && number(text + 8, 0, 1, &words->share) && words->share > 0)
		return &collet_ddp_random;
	if (strncmp(text, "qsgd:", 5) == 0 && number(text + 5, 2, 8, &value) &&
		(value == 8 || value == 4 || value == 2)) {
		words->bits = (uint32_t)value;
		return &collet_ddp_codes;
	}
	if (strncmp(text, "powersgd:", 9) == 0 && number(text + 9, 1, 1024, &value) && value == (uint32_t)value) {
		words->rank = (uint32_t)value;
		return &collet_ddp_power;
	}
	return NULL;
}

/* What stands before a comma and "momentum:M", if that is there. */
static const collet_ddp_hook *parse_all(const char *text, struct collet_ddp_words *words)
{
	static const char more[] = ",momentum:";
	char kind[32];
	double value;
	const size_t length = strcspn(text, ",");
	if (length >= sizeof(kind))
		return NULL;
	memcpy(kind, text, length);
	kind[length] = 0;
	if (text[length]) {
		if (strncmp(text + length, more, sizeof(more) - 1) != 0 ||
			!number(text + length + sizeof(more) - 1, 0, 1, &value) || value >= 1)
			return NULL;
		words->momentum = (float)value;
	}
	return parse(kind, words);
}

collet_status collet_ddp_hook_create(collet_ddp_hook **hook, const char *words, uint64_t seed)
{
	if (!hook || !words)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_hook_create: hook or words is NULL");
	struct collet_ddp_words heard = { .seed = seed };
	const collet_ddp_hook *kind = parse_all(words, &heard);
	if (!kind)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_hook_create: '%s' is none of f16, bf16, topk:SHARE, randomk:SHARE (0 < SHARE <= "
			"1), qsgd:BITS (8, 4, 2), sign, powersgd:RANK (1 to 1024), each alone or with ,momentum:M "
			"(0 <= M < 1) behind it",
			words);
	/* Hooks that draw must draw alike: ranks compare names. */
	const size_t bytes = strlen(words) + 24;
	struct made *made = calloc(1, sizeof(*made) + bytes);
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "collet_ddp_hook_create: no memory");
	made->words = heard;
	made->kind = *kind;
	made->kind.context = &made->words;
	made->kind.name = made->name;
	made->hook = made->kind;
	if (heard.momentum > 0) {
		made->hook = collet_ddp_momentum;
		made->hook.stages = kind->stages;
		made->hook.context = &made->kind;
		made->hook.name = made->name;
	}
	snprintf(made->name, bytes, "%s/%llu", words, (unsigned long long)seed);
	*hook = &made->hook;
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
