/* GPU memory of one process in another: opened by handle and by descriptor, cached, and evicted. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <cmocka.h>

#include "cuda/driver/device.h"
#include "cuda/driver/handle_exchange.h"
#include "cuda/driver/ipc.h"
#include "program.h"
#include "ranks.h"

enum { BYTES = 2 << 20, COUNT = 6 };

/* One rank: the driver as the library sees it, and as the program does. */
struct side {
	struct program program;
	struct collet_cuda cuda;
	struct collet_handle_exchange exchange;
};

/* What the ranks share. */
struct table {
	char name[8];
	struct collet_ipc_handle shared[COUNT];
};

static const struct collet_log no_log;

static bool start(struct rank *rank, struct side *side)
{
	return rank_check(rank, program_start(&side->program, 0), "no GPU") &&
	       rank_ok(rank, collet_cuda_open(&side->cuda, &no_log), "driver") &&
	       rank_ok(rank, collet_handle_exchange_open(&side->exchange), "exchange");
}

static void end(struct rank *rank, struct side *side)
{
	collet_handle_exchange_close(&side->exchange);
	collet_cuda_close(&side->cuda);
	rank_check(rank, program_end(&side->program), "another context is current than before");
}

static collet_status describe(struct side *side, const void *memory, struct collet_ipc_handle *shared)
{
	cu_mem_handle mapped;
	const collet_status status = collet_ipc_handle_get(&side->cuda, 7, memory, shared, &mapped);
	if (mapped)
		(void)side->cuda.cuMemRelease(mapped);
	return status;
}

static char *make_mapped(struct rank *rank, const struct collet_cuda *cuda)
{
	const cu_memory_properties properties = { CU_ALLOCATION_PINNED, CU_HANDLE_FILE_DESCRIPTOR,
		{ CU_LOCATION_DEVICE, 0 }, NULL, { 0 } };
	const cu_access access = { { CU_LOCATION_DEVICE, 0 }, CU_ACCESS_READ_WRITE };
	cu_mem_handle memory = 0;
	cu_pointer pointer = 0;
	rank_check(rank, cuda->cuMemCreate(&memory, BYTES, &properties, 0) == CU_OK &&
			cuda->cuMemAddressReserve(&pointer, BYTES, 0, 0, 0) == CU_OK &&
			cuda->cuMemMap(pointer, BYTES, 0, memory, 0) == CU_OK &&
			cuda->cuMemSetAccess(pointer, BYTES, &access, 1) == CU_OK &&
			cuda->cuMemRelease(memory) == CU_OK, "mapping memory");
	return (char *)(uintptr_t)pointer;
}

static void free_mapped(struct rank *rank, const struct collet_cuda *cuda, char *first)
{
	rank_check(rank, cuda->cuMemUnmap((uintptr_t)first, BYTES) == CU_OK &&
			cuda->cuMemAddressFree((uintptr_t)first, BYTES) == CU_OK, "unmapping memory");
}

/* Allocations within one reservation have the same number, but are different. */
static void allocations_of_a_reservation_are_told_apart(void **state)
{
	const cu_memory_properties properties = { CU_ALLOCATION_PINNED, CU_HANDLE_FILE_DESCRIPTOR,
		{ CU_LOCATION_DEVICE, 0 }, NULL, { 0 } };
	const cu_access access = { { CU_LOCATION_DEVICE, 0 }, CU_ACCESS_READ_WRITE };
	struct program program;
	struct collet_cuda cuda;
	struct collet_copy_streams copy_streams;
	struct collet_device device = { 0 };
	struct collet_peer_info peer_info = { 0 };
	struct collet_ipc_handle shared[2];
	cu_pointer first = 0;
	assert_true(program_start(&program, 0));
	assert_int_equal(collet_cuda_open(&cuda, &no_log), COLLET_OK);
	collet_copy_streams_init(&copy_streams, &cuda);
	collet_device_init(&device, &cuda, &copy_streams, false, &peer_info, &no_log);
	assert_int_equal(cuda.cuMemAddressReserve(&first, 2 * BYTES, 0, 0, 0), CU_OK);
	for (int i = 0; i < 2; i++) {
		struct collet_pointer_attributes attributes;
		const cu_pointer part = first + (cu_pointer)i * BYTES;
		const void *within = (const void *)(uintptr_t)(part + 100);
		cu_mem_handle memory = 0;
		assert_int_equal(cuda.cuMemCreate(&memory, BYTES, &properties, 0), CU_OK);
		assert_int_equal(cuda.cuMemMap(part, BYTES, 0, memory, 0), CU_OK);
		assert_int_equal(cuda.cuMemSetAccess(part, BYTES, &access, 1), CU_OK);
		assert_int_equal(cuda.cuMemRelease(memory), CU_OK);
		assert_int_equal(collet_pointer_attributes_get(&cuda, "it", within, 100, &attributes), COLLET_OK);
		assert_int_equal(collet_device_get_handle(&device, &attributes, within, &shared[i]), COLLET_OK);
		assert_int_equal(shared[i].kind, COLLET_IPC_FD);
		assert_true(shared[i].address == part && shared[i].bytes == BYTES);
	}
	assert_true(shared[0].allocation != shared[1].allocation);
	for (int i = 0; i < 2; i++)
		assert_int_equal(cuda.cuMemUnmap(first + (cu_pointer)i * BYTES, BYTES), CU_OK);
	assert_int_equal(cuda.cuMemAddressFree(first, 2 * BYTES), CU_OK);
	collet_device_deinit(&device);
	collet_copy_streams_deinit(&copy_streams);
	collet_cuda_close(&cuda);
	assert_true(program_end(&program));
}

/* ---- Opening, reading and writing ---- */

enum { SHOWN, TAKEN };

static void show(struct rank *rank, struct side *side, bool mapped)
{
	struct table *table = rank->shared;
	struct buffer buffer = { .program = &side->program, .gpu = true, .bytes = BYTES };
	struct collet_ipc_handle *shared = &table->shared[0];
	char *bytes = malloc(BYTES);
	memset(bytes, 'a', BYTES);
	if (mapped)
		buffer.first = make_mapped(rank, &side->cuda);
	else
		rank_check(rank, buffer_make(&buffer, &side->program, true, BYTES), "allocating");
	rank_check(rank, buffer_write(&buffer, bytes), "writing");
	rank_ok(rank, describe(side, buffer.first + 100, shared), "describing");
	rank_check(rank, shared->address == (uintptr_t)buffer.first && shared->bytes >= BYTES &&
			shared->kind == (mapped ? COLLET_IPC_FD : COLLET_IPC_LEGACY), "description");
	if (mapped) {
		const struct collet_handle_note note = { .process = 7, .allocation = shared->allocation };
		int file = -1;
		rank_ok(rank, collet_ipc_handle_export_fd(&side->cuda, shared, &file), "exporting");
		rank_ok(rank, collet_handle_exchange_send(&side->exchange, table->name, &note, file), "sending");
		close(file);
	}
	rank_post(rank, SHOWN);
	rank_await(rank, TAKEN, mapped ? 4 : 3);
	rank_check(rank, buffer_read(&buffer, bytes) && bytes[0] == 'a' && bytes[BYTES - 1] == 'b', "what was written");
	if (mapped)
		free_mapped(rank, &side->cuda, buffer.first);
	else
		buffer_free(&buffer);
	free(bytes);
}

static void take(struct rank *rank, struct side *side, bool mapped)
{
	const struct table *table = rank->shared;
	const struct collet_ipc_handle *shared = &table->shared[0];
	struct collet_ipc_cache ipc;
	struct collet_ipc_mapping *opened, *again;
	struct collet_handle_note note = { 0 };
	int file = -1;
	char byte = 0;
	collet_ipc_cache_init(&ipc, &side->cuda, 4, UINT64_MAX);
	rank_await(rank, SHOWN, mapped ? 2 : 1);
	rank_check(
		rank, !collet_ipc_cache_find(&ipc, shared, side->program.context), "it is open before it was opened");
	if (mapped) {
		rank_status(rank, collet_ipc_cache_open(&ipc, shared, -1, side->program.context, 0, &opened),
			COLLET_ERR_SYSTEM, "without the descriptor");
		rank_check(rank, collet_handle_exchange_receive(&side->exchange, &note, &file) && note.process == 7 &&
				note.allocation == shared->allocation, "the descriptor");
	}
	if (rank_ok(rank, collet_ipc_cache_open(&ipc, shared, file, side->program.context, 0, &opened), "opening")) {
		const cu_pointer last = opened->address + BYTES - 1;
		rank_check(rank, side->program.cuMemcpyDtoH_v2(&byte, last, 1) == CU_OK && byte == 'a', "reading");
		byte = 'b';
		rank_check(rank, program_put(&side->program, last, &byte, 1) == CU_OK, "writing");
		rank_ok(rank, collet_ipc_cache_open(&ipc, shared, -1, side->program.context, 0, &again),
			"opening again");
		rank_check(rank, again == opened && opened->ref_count == 2 && ipc.count == 1, "opened twice");
		collet_ipc_cache_release(&ipc, again);
		collet_ipc_cache_release(&ipc, opened);
	}
	if (file >= 0)
		close(file);
	collet_ipc_cache_deinit(&ipc);
	rank_post(rank, TAKEN);
}

static void read_and_write(struct rank *rank)
{
	struct side side;
	struct table *table = rank->shared;
	if (!start(rank, &side))
		return;
	if (rank->rank == 1)
		memcpy(table->name, side.exchange.address, sizeof(table->name));
	rank_post(rank, TAKEN);
	rank_await(rank, TAKEN, 2);
	for (int mapped = 0; mapped < 2; mapped++) {
		if (rank->rank == 0)
			show(rank, &side, mapped);
		else
			take(rank, &side, mapped);
	}
	end(rank, &side);
}

static void run(ranks_body *body)
{
	const struct ranks_options options = {
		.mode = RANKS_PROCESSES, .size = 2, .bare = true, .shared_bytes = sizeof(struct table) };
	ranks_must_pass(&options, body);
}

static void a_process_reads_and_writes_anothers_memory(void **state)
{
	run(read_and_write);
}

/* ---- Caching and eviction ---- */

static void exporter(struct rank *rank, struct side *side)
{
	struct table *table = rank->shared;
	struct buffer buffers[COUNT];
	for (int i = 0; i < COUNT; i++) {
		rank_check(rank, buffer_make(&buffers[i], &side->program, true, 1000), "allocating");
		rank_ok(rank, describe(side, buffers[i].first, &table->shared[i]), "describing");
		rank_check(rank, !i || table->shared[i].allocation != table->shared[i - 1].allocation, "numbers");
	}
	rank_post(rank, SHOWN);
	rank_await(rank, TAKEN, 1);
	/* A process cannot open its own handle; nor, from now on, can others open this one. */
	cu_pointer own;
	rank_check(rank, side->cuda.cuIpcOpenMemHandle(&own, table->shared[1].legacy, CU_IPC_LAZY_PEER_ACCESS) ==
			CU_INVALID_CONTEXT, "its own handle");
	buffer_free(&buffers[5]);
	rank_post(rank, SHOWN);
	rank_await(rank, TAKEN, 2);
	for (int i = 0; i < COUNT - 1; i++)
		buffer_free(&buffers[i]);
}

static bool is_open(struct collet_ipc_cache *ipc, const struct collet_ipc_handle *shared, cu_context context)
{
	struct collet_ipc_mapping *opened = collet_ipc_cache_find(ipc, shared, context);
	collet_ipc_cache_release(ipc, opened);
	return opened != NULL;
}

static struct collet_ipc_mapping *open_one(struct rank *rank, struct side *side, struct collet_ipc_cache *ipc, int i)
{
	const struct table *table = rank->shared;
	struct collet_ipc_mapping *opened = NULL;
	rank_ok(rank, collet_ipc_cache_open(ipc, &table->shared[i], -1, side->program.context, 0, &opened), "opening");
	return opened;
}

static void importer(struct rank *rank, struct side *side)
{
	const struct table *table = rank->shared;
	const cu_context context = side->program.context;
	struct collet_ipc_cache ipc;
	struct collet_ipc_mapping *opened[COUNT], *none;
	collet_ipc_cache_init(&ipc, &side->cuda, 2, 10 * 1001);
	rank_await(rank, SHOWN, 1);
	/* Three in use exceed the limit of two. The first that becomes idle is the first evicted. */
	for (int i = 0; i < 3; i++)
		opened[i] = open_one(rank, side, &ipc, i);
	rank_check(rank, ipc.count == 3, "in use, and dropped");
	collet_ipc_cache_release(&ipc, opened[1]);
	rank_check(rank, ipc.count == 2 && !is_open(&ipc, &table->shared[1], context), "beyond what is kept");
	collet_ipc_cache_release(&ipc, opened[0]);
	collet_ipc_cache_release(&ipc, opened[2]);
	rank_check(rank, is_open(&ipc, &table->shared[0], context), "the latest are kept");
	collet_ipc_cache_release(&ipc, open_one(rank, side, &ipc, 3));
	rank_check(rank, is_open(&ipc, &table->shared[0], context) && is_open(&ipc, &table->shared[3], context) &&
			!is_open(&ipc, &table->shared[2], context), "the longest unused goes");
	/* The same address with another number: the old allocation was freed. */
	struct collet_ipc_handle anew = table->shared[4];
	anew.address = table->shared[3].address;
	rank_ok(rank, collet_ipc_cache_open(&ipc, &anew, -1, context, 0, &opened[4]), "anew");
	rank_check(rank, !is_open(&ipc, &table->shared[3], context) && ipc.count == 2, "what was freed is kept");
	collet_ipc_cache_release(&ipc, opened[4]);
	/* While eviction is paused, neither freed memory nor mappings beyond the limit go. */
	collet_ipc_cache_pause_eviction(&ipc);
	collet_ipc_cache_release(&ipc, open_one(rank, side, &ipc, 3));
	collet_ipc_cache_release(&ipc, open_one(rank, side, &ipc, 2));
	anew = table->shared[1];
	anew.address = table->shared[3].address;
	rank_ok(rank, collet_ipc_cache_open(&ipc, &anew, -1, context, 0, &opened[1]), "anew, held");
	collet_ipc_cache_release(&ipc, opened[1]);
	rank_check(rank, ipc.count == 5, "%u are open", ipc.count);
	collet_ipc_cache_resume_eviction(&ipc);
	rank_check(rank, ipc.count == 2 && is_open(&ipc, &table->shared[1], context) &&
			is_open(&ipc, &table->shared[2], context), "released");
	collet_ipc_cache_release(&ipc, open_one(rank, side, &ipc, 4));
	/* The driver opens no handle twice in a process, and none of freed memory. */
	cu_pointer twice;
	rank_check(rank, side->cuda.cuIpcOpenMemHandle(&twice, table->shared[4].legacy, CU_IPC_LAZY_PEER_ACCESS) ==
			CU_ALREADY_MAPPED, "twice");
	rank_post(rank, TAKEN);
	rank_await(rank, SHOWN, 2);
	rank_status(rank, collet_ipc_cache_open(&ipc, &table->shared[5], -1, context, 0, &none), COLLET_ERR_SYSTEM,
		"freed");
	rank_check(rank, strstr(collet_last_error(), "another process's allocation: CUDA_ERROR_MAP_FAILED") != NULL,
		"%s", collet_last_error());
	const struct collet_ipc_handle not = { .kind = COLLET_IPC_NONE };
	rank_status(
		rank, collet_ipc_cache_open(&ipc, &not, -1, context, 0, &none), COLLET_ERR_UNSUPPORTED, "not shared");
	/* Limited by bytes. */
	ipc.max_bytes = 1001;
	collet_ipc_cache_release(&ipc, open_one(rank, side, &ipc, 2));
	rank_check(rank, ipc.count == 1 && is_open(&ipc, &table->shared[2], context), "more bytes than are kept");
	collet_ipc_cache_deinit(&ipc);
	rank_post(rank, TAKEN);
}

static void keep_some(struct rank *rank)
{
	struct side side;
	if (!start(rank, &side))
		return;
	if (rank->rank == 0)
		exporter(rank, &side);
	else
		importer(rank, &side);
	end(rank, &side);
}

static void opened_memory_is_cached_up_to_a_limit(void **state)
{
	run(keep_some);
}

/* ---- Driver failures: an error, and nothing stays mapped ---- */

static void map_and_fail(struct rank *rank)
{
	static const char *const fails[] = { "cuMemImportFromShareableHandle:1:1", "cuMemAddressReserve:1:2",
		"cuMemMap:1:1", "cuMemSetAccess:1:1" };
	struct side side;
	struct table *table = rank->shared;
	if (!start(rank, &side))
		return;
	if (rank->rank == 0) {
		rank_await(rank, TAKEN, 1);
		char *first = make_mapped(rank, &side.cuda);
		int file = -1;
		rank_ok(rank, describe(&side, first, &table->shared[0]), "describing");
		rank_ok(rank, collet_ipc_handle_export_fd(&side.cuda, &table->shared[0], &file), "exporting");
		const struct collet_handle_note note = {
			.process = 7, .allocation = table->shared[0].allocation };
		rank_ok(rank, collet_handle_exchange_send(&side.exchange, table->name, &note, file), "sending");
		close(file);
		rank_post(rank, SHOWN);
		rank_await(rank, TAKEN, 2);
		free_mapped(rank, &side.cuda, first);
	} else {
		struct collet_ipc_cache ipc;
		struct collet_ipc_mapping *opened;
		struct collet_handle_note note;
		int file = -1;
		memcpy(table->name, side.exchange.address, sizeof(table->name));
		rank_post(rank, TAKEN);
		rank_await(rank, SHOWN, 1);
		rank_check(rank, collet_handle_exchange_receive(&side.exchange, &note, &file), "no descriptor");
		collet_ipc_cache_init(&ipc, &side.cuda, 2, UINT64_MAX);
		for (size_t i = 0; i < sizeof(fails) / sizeof(fails[0]); i++) {
			rank_doing(rank, "%s", fails[i]);
			setenv("FAKE_CUDA_FAIL", fails[i], 1);
			const collet_status status = collet_ipc_cache_open(
				&ipc, &table->shared[0], file, side.program.context, 0, &opened);
			unsetenv("FAKE_CUDA_FAIL");
			rank_status(rank, status, i == 1 ? COLLET_ERR_MEMORY : COLLET_ERR_SYSTEM, fails[i]);
		}
		if (rank_ok(rank,
			    collet_ipc_cache_open(&ipc, &table->shared[0], file, side.program.context, 0, &opened),
			    "afterwards"))
			collet_ipc_cache_release(&ipc, opened);
		close(file);
		collet_ipc_cache_deinit(&ipc);
		rank_post(rank, TAKEN);
	}
	end(rank, &side);
}

static void what_the_driver_refuses_is_an_error(void **state)
{
	run(map_and_fail);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(allocations_of_a_reservation_are_told_apart),
		cmocka_unit_test(a_process_reads_and_writes_anothers_memory),
		cmocka_unit_test(opened_memory_is_cached_up_to_a_limit),
		cmocka_unit_test(what_the_driver_refuses_is_an_error),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
