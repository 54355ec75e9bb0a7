/* GPU memory is registered with transports as a dma-buf of that memory. If there is none, or no transport accepts it,
 * calls are staged through the host as before. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/driver/dmabuf.h"
#include "cuda/driver/vmm.h"
#include "program.h"
#include "ranks.h"

enum { BYTES = 1 << 20 };

static const struct collet_log no_log;

/* ---- Exporting ---- */

static collet_status export_it(const struct collet_cuda *cuda, const char *memory, size_t bytes, int *file,
	uint64_t *offset)
{
	struct collet_pointer_attributes attributes;
	const collet_status status = collet_pointer_attributes_get(cuda, "it", memory, bytes, &attributes);
	return status == COLLET_OK ? collet_dmabuf_export(cuda, &attributes, memory, bytes, file, offset) : status;
}

static void a_dmabuf_is_the_memory(void **state)
{
	struct program program;
	struct collet_cuda cuda;
	struct buffer buffer;
	char *bytes = malloc(BYTES);
	int file = -1;
	uint64_t offset = 0;
	assert_true(program_start(&program, 0) && buffer_make(&buffer, &program, true, BYTES));
	assert_int_equal(collet_cuda_open(&cuda, &no_log), COLLET_OK);
	for (size_t b = 0; b < BYTES; b++)
		bytes[b] = (char)(b * 7);
	assert_true(buffer_write(&buffer, bytes));
	assert_int_equal(export_it(&cuda, buffer.first + 300, 1000, &file, &offset), COLLET_OK);
	assert_int_equal(offset, 300);
	const char *seen = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0);
	assert_ptr_not_equal(seen, MAP_FAILED);
	assert_memory_equal(seen + offset, bytes + 300, 1000);
	munmap((void *)(uintptr_t)seen, BYTES);
	close(file);
	setenv("FAKE_CUDA_FAIL", "cuMemGetHandleForAddressRange:0:999", 1);
	assert_int_equal(export_it(&cuda, buffer.first, BYTES, &file, &offset), COLLET_ERR_SYSTEM);
	unsetenv("FAKE_CUDA_FAIL");
	setenv("FAKE_CUDA_WITHOUT", "dma-bufs", 1);
	assert_int_equal(export_it(&cuda, buffer.first, BYTES, &file, &offset), COLLET_ERR_UNSUPPORTED);
	unsetenv("FAKE_CUDA_WITHOUT");
	buffer_free(&buffer);
	collet_cuda_close(&cuda);
	assert_true(program_end(&program));
	free(bytes);
}

/* The library's own memory is allocated so that it has dma-bufs, and also where there are none. */
static void mapped_memory_has_one_too(void **state)
{
	struct program program;
	struct collet_cuda cuda;
	struct collet_vmm_memory mapped;
	char bytes[1000], seen[1000];
	int file = -1;
	uint64_t offset = 0;
	memset(bytes, 5, sizeof(bytes));
	assert_true(program_start(&program, 0));
	assert_int_equal(collet_cuda_open(&cuda, &no_log), COLLET_OK);
	assert_int_equal(collet_vmm_alloc(&cuda, 0, BYTES, &mapped), COLLET_OK);
	assert_int_equal(program_put(&program, mapped.address, bytes, sizeof(bytes)), CU_OK);
	assert_int_equal(export_it(&cuda, (const char *)(uintptr_t)mapped.address, BYTES, &file, &offset), COLLET_OK);
	assert_int_equal(pread(file, seen, sizeof(seen), (off_t)offset), sizeof(seen));
	assert_memory_equal(seen, bytes, sizeof(bytes));
	close(file);
	collet_vmm_free(&cuda, &mapped);
	setenv("FAKE_CUDA_WITHOUT", "dma-bufs", 1);
	assert_int_equal(collet_vmm_alloc(&cuda, 0, BYTES, &mapped), COLLET_OK);
	unsetenv("FAKE_CUDA_WITHOUT");
	collet_vmm_free(&cuda, &mapped);
	collet_cuda_close(&cuda);
	assert_true(program_end(&program));
}

/* ---- Registering ---- */

/* Number of regions that the module knows, once a page or more is registered. */
static unsigned known(struct rank *rank)
{
	char path[400];
	snprintf(path, sizeof(path), "%s/libcollet-transport-memory.so", getenv("COLLET_TRANSPORT_PATH"));
	void *module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	const unsigned *count = module ? dlsym(module, "memory_known_count") : NULL;
	const unsigned found = count ? *count : 0;
	rank_check(rank, count != NULL, "the module is not loaded: %s", path);
	if (module)
		dlclose(module);
	return found;
}

static void reduce(struct rank *rank, const struct buffer *buffer)
{
	rank_ok(rank, collet_allreduce(rank->comm, buffer->first, buffer->first, BYTES / 4, COLLET_F32, COLLET_SUM,
		NULL), "a call on it");
}

static void register_it(struct rank *rank)
{
	struct program program;
	struct buffer buffer;
	if (!rank_check(rank, program_start(&program, 0) && buffer_make(&buffer, &program, true, BYTES), "no GPU"))
		return;
	reduce(rank, &buffer);  /* from here on the library's own memory is registered */
	const unsigned before = known(rank);
	rank_ok(rank, collet_mem_register(rank->comm, buffer.first, BYTES), "registering");
	rank_check(rank, known(rank) == before + 1, "the transport has not been told");
	reduce(rank, &buffer);
	rank_ok(rank, collet_mem_deregister(rank->comm, buffer.first), "deregistering");
	rank_check(rank, known(rank) == before, "the transport knows it still");
	setenv("FAKE_CUDA_WITHOUT", "dma-bufs", 1);
	rank_ok(rank, collet_mem_register(rank->comm, buffer.first, BYTES), "registering without a dma-buf");
	unsetenv("FAKE_CUDA_WITHOUT");
	rank_check(rank, known(rank) == before, "it knows what it cannot reach");
	reduce(rank, &buffer);
	rank_ok(rank, collet_mem_deregister(rank->comm, buffer.first), "deregistering");
	rank_status(rank, collet_mem_deregister(rank->comm, buffer.first), COLLET_ERR_ARGUMENT, "again");
	rank_status(rank, collet_mem_register(rank->comm, buffer.first, 2 * BYTES), COLLET_ERR_ARGUMENT, "too much");
	rank_destroy(rank);
	buffer_free(&buffer);
	rank_check(rank, program_end(&program), "another context is current than before");
}

static void transports_are_told_of_it(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm,memory" };
	ranks_must_pass(&options, register_it);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dmabuf_is_the_memory),
		cmocka_unit_test(mapped_memory_has_one_too),
		cmocka_unit_test(transports_are_told_of_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
