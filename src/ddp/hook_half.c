/* f16 and bf16: averages buckets in 16 bits. */
#include <stdlib.h>

#include "core/cpu.h"
#include "ddp/hooks.h"
#include "reduce/convert.h"

struct half {
	collet_comm *comm;
	struct collet_conversion conversion;
	void *narrow;
};

static void half_close(void *state)
{
	struct half *half = state;
	collet_mem_free(half->comm, half->narrow);
	free(half);
}

static collet_status half_open(const collet_ddp_hook *hook, const collet_ddp_hook_args *args, void **state)
{
	const struct collet_ddp_hook_spec *spec = hook->context;
	collet_status status = collet_ddp_hook_check_f32(hook, args);
	if (status != COLLET_OK)
		return status;
	struct half *half = calloc(1, sizeof(*half));
	if (!half)
		return collet_ddp_hook_no_memory(hook, args);
	half->comm = args->comms[0];
	status = collet_conversion_init(&half->conversion, spec->dtype, collet_isa_best());
	if (status == COLLET_OK)
		status = collet_mem_alloc(half->comm, &half->narrow, (size_t)args->bucket.count * 2);
	if (status == COLLET_OK)
		*state = half;
	else
		half_close(half);
	return status;
}

/* Divides first: a sum of values that just fit into f16 would overflow. */
static collet_status half_start(void *state, const collet_ddp_hook_args *args, uint32_t stage, collet_request **request)
{
	struct half *half = state;
	collet_how how = collet_ddp_hook_how(args, request);
	how.scale = 1.0 / collet_comm_size(half->comm);
	collet_narrow(&half->conversion, half->narrow, args->bucket.gradients, args->bucket.count);
	return collet_allreduce(half->comm, half->narrow, half->narrow, args->bucket.count, half->conversion.dtype,
		COLLET_PREMUL_SUM, &how);
}

static collet_status half_finish(void *state, const collet_ddp_hook_args *args)
{
	struct half *half = state;
	collet_widen(&half->conversion, args->bucket.gradients, half->narrow, args->bucket.count);
	return COLLET_OK;
}

const collet_ddp_hook collet_ddp_hook_half = {
	.stages = 1, .open = half_open, .start = half_start, .finish = half_finish, .close = half_close };
