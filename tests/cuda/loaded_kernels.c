#include "loaded_kernels.h"

static bool start(struct loaded *loaded, int ordinal, bool (*begin)(struct program *program, int device))
{
	static const struct collet_log no_log;
	*loaded = (struct loaded){ 0 };
	return collet_cuda_open(&loaded->cuda, &no_log) == COLLET_OK && begin(&loaded->program, ordinal);
}

bool loaded_start(struct loaded *loaded, int ordinal)
{
	return start(loaded, ordinal, program_start);
}

bool loaded_start_beside(struct loaded *loaded, int ordinal)
{
	return start(loaded, ordinal, program_start_beside);
}

bool loaded_end(struct loaded *loaded)
{
	const bool fine = program_end(&loaded->program);
	collet_cuda_close(&loaded->cuda);
	return fine;
}

collet_status loaded_load(struct loaded *loaded)
{
	const struct collet_pointer_attributes attributes = { .is_device = true, .ordinal = loaded->program.device,
		.context = loaded->program.context };
	collet_kernel_sets_init(&loaded->sets, &loaded->cuda);
	collet_copy_streams_init(&loaded->copy_streams, &loaded->cuda);
	const collet_status status = collet_copy_stream_get(&loaded->copy_streams, &attributes, &loaded->copy_stream);
	return status == COLLET_OK ? collet_kernel_set_get(&loaded->sets, loaded->copy_stream, &loaded->set) : status;
}

void loaded_unload(struct loaded *loaded)
{
	collet_kernel_sets_deinit(&loaded->sets);
	collet_copy_streams_deinit(&loaded->copy_streams);
}

collet_status loaded_reduce(struct loaded *loaded, const struct collet_gpu_reduction *reduction,
	const struct collet_gpu_span *spans, uint32_t count)
{
	collet_status status = collet_copy_stream_push_context(&loaded->cuda, loaded->copy_stream);
	if (status != COLLET_OK)
		return status;
	status = collet_gpu_spans_launch(loaded->set, reduction, spans, count, loaded->copy_stream->stream);
	collet_copy_stream_pop_context(&loaded->cuda);
	const collet_status waited = collet_copy_stream_synchronize(&loaded->cuda, loaded->copy_stream, "folding");
	return status == COLLET_OK ? waited : status;
}
