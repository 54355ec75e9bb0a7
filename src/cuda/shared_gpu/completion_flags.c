#include "cuda/shared_gpu/completion_flags.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/lock.h"

static const struct collet_peer_info *card_of(const struct collet_direct *direct, uint32_t place)
{
	const struct collet_comm_state *group = direct->group;
	return &group->engine->peer_infos[collet_comm_state_world_rank(group, direct->members[place])];
}

static size_t file_bytes(const struct collet_direct *direct)
{
	return direct->size * COLLET_ORDER_WORDS * sizeof(uint32_t);
}

/* What the leader's desk and the others' know the file by; the driver numbers no allocation so. */
static struct collet_desk_note note_of(const struct collet_direct *direct)
{
	return (struct collet_desk_note){
		.process = card_of(direct, 0)->process_id, .allocation = direct->shadow.id | UINT64_C(1) << 63 };
}

/* ---- The words ---- */

static void unmap(struct collet_order *order)
{
	(void)munmap((void *)order->words, order->bytes);
	order->words = NULL;
}

/* For every context of this process (PORTABLE), and for streams (MAPPED). In the copier's context. *locked: the driver
 * has them, even if this fails. */
static cu_result lock_pages(
	const struct collet_cuda *cuda, cu_context context, struct collet_order *order, bool *locked)
{
	void *memory = (void *)order->words;
	cu_result result = cuda->cuMemHostRegister(
		memory, order->bytes, CU_HOST_REGISTER_PORTABLE | CU_HOST_REGISTER_MAPPED);
	*locked = result == CU_OK;
	if (result != CU_OK)
		return result;
	result = cuda->cuMemHostGetDevicePointer(&order->gpu, memory, 0);
	if (result != CU_OK)
		*locked = !collet_cuda_unlock(cuda, context, memory);
	return result;
}

static collet_status map(struct collet_direct *direct, int file)
{
	const struct collet_cuda *cuda = direct->device->cuda;
	struct collet_order *order = &direct->order;
	order->bytes = file_bytes(direct);
	void *mapped = mmap(NULL, order->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (mapped == MAP_FAILED)
		return collet_fail(COLLET_ERR_SYSTEM, "mapping words for streams: %s", strerror(errno));
	order->words = mapped;
	bool locked = false;
	collet_status status = collet_copier_begin(cuda, direct->copier);
	if (status == COLLET_OK) {
		const cu_result result = lock_pages(cuda, direct->copier->context, order, &locked);
		collet_copier_end(cuda);
		if (result != CU_OK)
			status = collet_cuda_fail(cuda, result, "page-locking words for streams");
	}
	if (status != COLLET_OK) {
		if (!locked)
			unmap(order);
		order->words = NULL;
		return status;
	}
	order->unused_count = COLLET_ORDER_WORDS - 1;
	for (uint32_t i = 0; i < order->unused_count; i++)
		order->unused[i] = (uint16_t)(COLLET_ORDER_WORDS - 1 - i);
	return COLLET_OK;
}

static void do_without(const struct collet_direct *direct)
{
	collet_log(direct->device->log, COLLET_LOG_INFO,
		"cuda: hosts tell streams of ranks that share a GPU when calls are done: %s", collet_last_error());
}

/* ---- Connecting ---- */

/* The others read and write it, and must not find it shorter than it was. */
static int make_file(size_t bytes)
{
	const int file = memfd_create("collet-order", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file < 0)
		return -1;
	if (ftruncate(file, (off_t)bytes) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
		return file;
	const int error = errno;
	close(file);
	errno = error;
	return -1;
}

/* Do others share the leader's process? Then not all of them will have words. */
static bool leads_threads(const struct collet_direct *direct)
{
	for (uint32_t r = 1; r < direct->size; r++)
		if (card_of(direct, r)->process_id == card_of(direct, 0)->process_id)
			return true;
	return false;
}

void collet_order_offer(struct collet_direct *direct)
{
	const struct collet_desk *desk = &direct->device->desk;
	const struct collet_desk_note note = note_of(direct);
	if (direct->by_host || !direct->one_gpu || desk->socket < 0 || leads_threads(direct))
		return;
	const int file = make_file(file_bytes(direct));
	if (file < 0) {
		(void)collet_fail(COLLET_ERR_SYSTEM, "memfd_create: %s", strerror(errno));
		do_without(direct);
		return;
	}
	if (map(direct, file) != COLLET_OK)
		do_without(direct);
	for (uint32_t r = 1; direct->order.words && r < direct->size; r++) {
		const struct collet_peer_info *card = card_of(direct, r);
		/* Whoever does not get it offers no words, and all do without. */
		if (card->handle_exchange[1] &&
			collet_desk_send(desk, card->handle_exchange, &note, file) == COLLET_ERR_SYSTEM)
			do_without(direct);
	}
	close(file);
}

static bool is_sound(const struct collet_direct *direct, int file)
{
	struct stat found;
	const int seals = fcntl(file, F_GET_SEALS);
	return seals >= 0 && seals & F_SEAL_SHRINK && fstat(file, &found) == 0 &&
		(size_t)found.st_size >= file_bytes(direct);
}

void collet_order_take(struct collet_direct *direct)
{
	const struct collet_desk_note note = note_of(direct);
	if (direct->beside_leader || direct->by_host)
		return;
	collet_engine_lock(direct->group->engine);
	const int file = collet_device_take_file(direct->device, note.process, note.allocation);
	collet_engine_unlock(direct->group->engine);
	if (file < 0)
		return;
	if (is_sound(direct, file) && map(direct, file) != COLLET_OK)
		do_without(direct);
	close(file);
}

/* ---- Calls' words ---- */

void collet_direct_word_take(struct collet_direct *direct, struct collet_order_word *word)
{
	struct collet_order *order = &direct->order;
	*word = (struct collet_order_word){ 0 };
	if (!order->unused_count)
		return;
	word->number = order->unused[--order->unused_count];
	const size_t at = (size_t)direct->place * COLLET_ORDER_WORDS + word->number;
	word->host = order->words + at;
	word->gpu = order->gpu + at * sizeof(uint32_t);
}

void collet_direct_word_give(struct collet_direct *direct, const struct collet_order_word *word)
{
	if (word->number)
		direct->order.unused[direct->order.unused_count++] = (uint16_t)word->number;
}

/* ---- The leader ---- */

static bool all_have_words(const struct collet_direct *direct, const struct call *call)
{
	for (uint32_t r = 0; r < direct->size; r++) {
		const uint32_t word = offer_of(direct, call, r)->word;
		if (!word || word >= COLLET_ORDER_WORDS)
			return false;
	}
	return direct->order.words != NULL;
}

static cu_word_operation setting(const struct collet_direct *direct, uint32_t place, uint32_t word, uint32_t value)
{
	const size_t at = (size_t)place * COLLET_ORDER_WORDS + word;
	return (cu_word_operation){ .write = {
		.operation = CU_WRITE_WORD, .word = direct->order.gpu + at * sizeof(uint32_t), .value = value } };
}

bool collet_order_put(struct collet_direct *direct, const struct call *call)
{
	cu_word_operation settings[COLLET_DIRECT_RANKS + 1];
	struct collet_order *order = &direct->order;
	if (!all_have_words(direct, call))
		return false;
	for (uint32_t r = 0; r < direct->size; r++)
		settings[r] = setting(direct, r, offer_of(direct, call, r)->word, 1);
	settings[direct->size] = setting(direct, 0, 0, order->launched + 1);
	/* All of them or none, so that either the GPU tells or hosts do. */
	if (direct->device->cuda->cuStreamBatchMemOp(direct->stream, direct->size + 1, settings, 0) != CU_OK)
		return false;
	order->launched++;
	return true;
}

void collet_order_keep(struct collet_direct *direct, struct call *call)
{
	struct collet_order *order = &direct->order;
	call->next = NULL;
	if (!order->first)
		order->last = &order->first;
	*order->last = call;
	order->last = &call->next;
}

static void put_first(struct collet_direct *direct)
{
	struct call *call = direct->order.first;
	direct->order.first = call->next;
	collet_leader_release(direct, call);
	collet_direct_put(direct, call);
}

void collet_order_reap(struct collet_direct *direct)
{
	struct collet_order *order = &direct->order;
	/* Acquire: what the launch has done comes before. */
	while (order->first &&
		(int32_t)(atomic_load_explicit(order->words, memory_order_acquire) - order->first->launch) >= 0)
		put_first(direct);
}

/* The leader is asked by its streams' thread, which waits for words: nobody else would find out that the GPU fails. */
void collet_direct_look(struct collet_direct *direct)
{
	const struct collet_cuda *cuda = direct->device->cuda;
	collet_order_reap(direct);
	if (!direct->order.first)
		return;
	cu_result result = collet_cuda_enter(cuda, direct->copier->context);
	if (result == CU_OK) {
		result = cuda->cuStreamQuery(direct->stream);
		collet_cuda_leave(cuda);
	}
	if (result == CU_OK || result == CU_NOT_READY)
		return;
	(void)collet_cuda_fail(cuda, result, "a collective of ranks that share a GPU");
	collet_comm_state_end(direct->group, COLLET_ERR_SYSTEM, true, collet_last_error());
}

void collet_order_end(struct collet_direct *direct, bool streams)
{
	const struct collet_cuda *cuda = direct->device->cuda;
	struct collet_order *order = &direct->order;
	while (order->first)
		put_first(direct);
	/* The GPU may be in the middle of setting them where its context is broken: then the driver has them yet, and
	 * they stay where they are, so that it hits nobody's memory. */
	if (order->words && !streams &&
		collet_cuda_unlock(cuda, direct->copier->context, (void *)(uintptr_t)order->words))
		unmap(order);
	order->words = NULL;
}

/* What the driver has of them is the parent's. */
void collet_order_forget(struct collet_order *order)
{
	if (order->words)
		unmap(order);
}
