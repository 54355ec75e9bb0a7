#include "cuda/shared_gpu/completion_flags.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/lock.h"

static const struct collet_peer_info *peer_info_of(const struct collet_shared_gpu *shared_gpu, uint32_t member)
{
	const struct collet_comm_state *state = shared_gpu->state;
	return &state->engine->peer_infos[collet_comm_state_world_rank(state, shared_gpu->members[member])];
}

static size_t file_bytes(const struct collet_shared_gpu *shared_gpu)
{
	return shared_gpu->size * COLLET_COMPLETION_FLAGS * sizeof(uint32_t);
}

/* The number that identifies the file in handle exchanges; the driver gives no such number to memory. */
static struct collet_handle_note note_of(const struct collet_shared_gpu *shared_gpu)
{
	return (struct collet_handle_note){ .process = peer_info_of(shared_gpu, 0)->process_id,
		.allocation = shared_gpu->internal_comm.id | UINT64_C(1) << 63 };
}

/* ---- The flags' memory ---- */

static void unmap(struct collet_completion_flags *flags)
{
	(void)munmap((void *)flags->flags, flags->bytes);
	flags->flags = NULL;
}

/* Page-locks the flags for all contexts of this process (PORTABLE) and for streams (MAPPED). Needs the copy stream's
 * context. *is_registered: the driver has them, even if this fails. */
static cu_result register_pages(
	const struct collet_cuda *cuda, cu_context context, struct collet_completion_flags *flags, bool *is_registered)
{
	void *memory = (void *)flags->flags;
	cu_result result = cuda->cuMemHostRegister(
		memory, flags->bytes, CU_HOST_REGISTER_PORTABLE | CU_HOST_REGISTER_MAPPED);
	*is_registered = result == CU_OK;
	if (result != CU_OK)
		return result;
	result = cuda->cuMemHostGetDevicePointer(&flags->gpu, memory, 0);
	if (result != CU_OK)
		*is_registered = !collet_cuda_unregister_host(cuda, context, memory);
	return result;
}

static collet_status map(struct collet_shared_gpu *shared_gpu, int fd)
{
	const struct collet_cuda *cuda = shared_gpu->device->cuda;
	struct collet_completion_flags *flags = &shared_gpu->completion_flags;
	flags->bytes = file_bytes(shared_gpu);
	void *mapped = mmap(NULL, flags->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
		return collet_fail(COLLET_ERR_SYSTEM, "mapping completion flags: %s", strerror(errno));
	flags->flags = mapped;
	bool is_registered = false;
	collet_status status = collet_copy_stream_push_context(cuda, shared_gpu->copy_stream);
	if (status == COLLET_OK) {
		const cu_result result = register_pages(cuda, shared_gpu->copy_stream->context, flags, &is_registered);
		collet_copy_stream_pop_context(cuda);
		if (result != CU_OK)
			status = collet_cuda_fail(cuda, result, "page-locking completion flags");
	}
	if (status != COLLET_OK) {
		if (!is_registered)
			unmap(flags);
		flags->flags = NULL;
		return status;
	}
	flags->free_count = COLLET_COMPLETION_FLAGS - 1;
	for (uint32_t i = 0; i < flags->free_count; i++)
		flags->free_flags[i] = (uint16_t)(COLLET_COMPLETION_FLAGS - 1 - i);
	return COLLET_OK;
}

static void log_unavailable(const struct collet_shared_gpu *shared_gpu)
{
	collet_log(shared_gpu->device->log, COLLET_LOG_INFO,
		"cuda: hosts, not the GPU, signal streams of ranks that share a GPU: %s", collet_last_error());
}

/* ---- Connecting ---- */

/* Seals the file: other ranks write to it, and must not find it truncated. */
static int make_file(size_t bytes)
{
	const int fd = memfd_create("collet-flags", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
		return fd;
	const int error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* True if other members are threads of the leader's process: then they cannot all have flags. */
static bool has_leader_threads(const struct collet_shared_gpu *shared_gpu)
{
	for (uint32_t r = 1; r < shared_gpu->size; r++)
		if (peer_info_of(shared_gpu, r)->process_id == peer_info_of(shared_gpu, 0)->process_id)
			return true;
	return false;
}

void collet_completion_flags_create(struct collet_shared_gpu *shared_gpu)
{
	const struct collet_handle_exchange *exchange = &shared_gpu->device->handle_exchange;
	const struct collet_handle_note note = note_of(shared_gpu);
	if (shared_gpu->is_per_host || !shared_gpu->has_one_gpu || exchange->socket < 0 ||
		has_leader_threads(shared_gpu))
		return;
	const int fd = make_file(file_bytes(shared_gpu));
	if (fd < 0) {
		(void)collet_fail(COLLET_ERR_SYSTEM, "memfd_create: %s", strerror(errno));
		log_unavailable(shared_gpu);
		return;
	}
	if (map(shared_gpu, fd) != COLLET_OK)
		log_unavailable(shared_gpu);
	for (uint32_t r = 1; shared_gpu->completion_flags.flags && r < shared_gpu->size; r++) {
		const struct collet_peer_info *peer_info = peer_info_of(shared_gpu, r);
		/* A member that does not get the file sends no flags, and then nobody uses them. */
		if (peer_info->handle_exchange[1] && collet_handle_exchange_send(exchange, peer_info->handle_exchange,
							     &note, fd) == COLLET_ERR_SYSTEM)
			log_unavailable(shared_gpu);
	}
	close(fd);
}

static bool is_valid_file(const struct collet_shared_gpu *shared_gpu, int fd)
{
	struct stat found;
	const int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && seals & F_SEAL_SHRINK && fstat(fd, &found) == 0 &&
		(size_t)found.st_size >= file_bytes(shared_gpu);
}

void collet_completion_flags_attach(struct collet_shared_gpu *shared_gpu)
{
	const struct collet_handle_note note = note_of(shared_gpu);
	if (shared_gpu->shares_leader_gpu || shared_gpu->is_per_host)
		return;
	collet_engine_lock(shared_gpu->state->engine);
	const int fd = collet_device_take_fd(shared_gpu->device, note.process, note.allocation);
	collet_engine_unlock(shared_gpu->state->engine);
	if (fd < 0)
		return;
	if (is_valid_file(shared_gpu, fd) && map(shared_gpu, fd) != COLLET_OK)
		log_unavailable(shared_gpu);
	close(fd);
}

/* ---- Flags of calls ---- */

void collet_shared_gpu_claim_flag(struct collet_shared_gpu *shared_gpu, struct collet_completion_flag *flag)
{
	struct collet_completion_flags *flags = &shared_gpu->completion_flags;
	*flag = (struct collet_completion_flag){ 0 };
	if (!flags->free_count)
		return;
	flag->index = flags->free_flags[--flags->free_count];
	const size_t at = (size_t)shared_gpu->member * COLLET_COMPLETION_FLAGS + flag->index;
	flag->host = flags->flags + at;
	flag->gpu = flags->gpu + at * sizeof(uint32_t);
}

void collet_shared_gpu_release_flag(struct collet_shared_gpu *shared_gpu, const struct collet_completion_flag *flag)
{
	if (flag->index)
		shared_gpu->completion_flags.free_flags[shared_gpu->completion_flags.free_count++] =
			(uint16_t)flag->index;
}

/* ---- The leader ---- */

static bool all_have_flags(const struct collet_shared_gpu *shared_gpu, const struct shared_call *call)
{
	for (uint32_t r = 0; r < shared_gpu->size; r++) {
		const uint32_t flag = descriptor_of(shared_gpu, call, r)->flag;
		if (!flag || flag >= COLLET_COMPLETION_FLAGS)
			return false;
	}
	return shared_gpu->completion_flags.flags != NULL;
}

static cu_mem_op flag_write(const struct collet_shared_gpu *shared_gpu, uint32_t member, uint32_t flag, uint32_t value)
{
	const size_t at = (size_t)member * COLLET_COMPLETION_FLAGS + flag;
	return (cu_mem_op){ .write = { .operation = CU_MEM_OP_WRITE_32,
				    .word = shared_gpu->completion_flags.gpu + at * sizeof(uint32_t),
				    .value = value } };
}

bool collet_completion_flags_enqueue(struct collet_shared_gpu *shared_gpu, const struct shared_call *call)
{
	cu_mem_op writes[COLLET_SHARED_GPU_RANKS + 1];
	struct collet_completion_flags *flags = &shared_gpu->completion_flags;
	if (!all_have_flags(shared_gpu, call))
		return false;
	for (uint32_t r = 0; r < shared_gpu->size; r++)
		writes[r] = flag_write(shared_gpu, r, descriptor_of(shared_gpu, call, r)->flag, 1);
	writes[shared_gpu->size] = flag_write(shared_gpu, 0, 0, flags->launched + 1);
	/* The batch is executed entirely or not at all, so either the GPU signals all ranks, or hosts do. */
	if (shared_gpu->device->cuda->cuStreamBatchMemOp(shared_gpu->stream, shared_gpu->size + 1, writes, 0) !=
		CU_OK)
		return false;
	flags->launched++;
	return true;
}

void collet_completion_flags_defer_release(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	struct collet_completion_flags *flags = &shared_gpu->completion_flags;
	call->next = NULL;
	if (!flags->first)
		flags->last = &flags->first;
	*flags->last = call;
	flags->last = &call->next;
}

static void release_first(struct collet_shared_gpu *shared_gpu)
{
	struct shared_call *call = shared_gpu->completion_flags.first;
	shared_gpu->completion_flags.first = call->next;
	collet_leader_release(shared_gpu, call);
	collet_shared_call_put(shared_gpu, call);
}

void collet_completion_flags_reap(struct collet_shared_gpu *shared_gpu)
{
	struct collet_completion_flags *flags = &shared_gpu->completion_flags;
	/* Acquire: pairs with the stream's write behind the launch, whose results are visible after it. */
	while (flags->first &&
		(int32_t)(atomic_load_explicit(flags->flags, memory_order_acquire) - flags->first->launch_number) >= 0)
		release_first(shared_gpu);
}

/* The leader's stream thread calls this while it waits for flags: nobody else would notice that the GPU has failed. */
void collet_shared_gpu_check_fault(struct collet_shared_gpu *shared_gpu)
{
	const struct collet_cuda *cuda = shared_gpu->device->cuda;
	collet_completion_flags_reap(shared_gpu);
	if (!shared_gpu->completion_flags.first)
		return;
	cu_result result = collet_cuda_push_context(cuda, shared_gpu->copy_stream->context);
	if (result == CU_OK) {
		result = cuda->cuStreamQuery(shared_gpu->stream);
		collet_cuda_pop_context(cuda);
	}
	if (result == CU_OK || result == CU_NOT_READY)
		return;
	(void)collet_cuda_fail(cuda, result, "a collective of ranks that share a GPU");
	collet_comm_state_end(shared_gpu->state, COLLET_ERR_SYSTEM, true, collet_last_error());
}

void collet_completion_flags_deinit(struct collet_shared_gpu *shared_gpu, bool streams)
{
	const struct collet_cuda *cuda = shared_gpu->device->cuda;
	struct collet_completion_flags *flags = &shared_gpu->completion_flags;
	while (flags->first)
		release_first(shared_gpu);
	/* If the GPU's context is broken, it may still write the flags. Then they stay mapped, so that it hits no other
	 * memory. */
	if (flags->flags && !streams &&
		collet_cuda_unregister_host(cuda, shared_gpu->copy_stream->context, (void *)(uintptr_t)flags->flags))
		unmap(flags);
	flags->flags = NULL;
}

/* The registration with the driver belongs to the parent process. */
void collet_completion_flags_atfork_child(struct collet_completion_flags *flags)
{
	if (flags->flags)
		unmap(flags);
}
