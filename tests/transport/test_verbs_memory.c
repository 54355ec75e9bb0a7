/* Tests the internals of verbs: which memory is registered and for how long, bounce buffers, and GPU memory. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "verbs_ends.h"

/* ---- Registration --------------------------------------------------------------------------------------------- */

static void *announce(const struct end *end, void *first, size_t bytes)
{
	const struct collet_memory memory = {
		.base = first, .bytes = bytes, .kind = COLLET_MEMORY_HOST, .gpu = -1, .dmabuf = -1 };
	void *registration = NULL;
	assert_int_equal(
		end->instance->transport->memory_register(end->instance->device, &memory, &registration), COLLET_OK);
	return registration;
}

static void only_announced_memory_stays_registered(void **state)
{
	enum { BYTES = 300000 };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	const struct collet_device *device = pair.ends[0].instance->device;
	uint8_t *from = malloc(2 * BYTES), *into = malloc(BYTES);
	exchange(&pair, 1, from, into, BYTES);
	assert_int_equal(device->pinned_bytes, 0);

	struct verbs_region *whole = announce(&pair.ends[0], from, 2 * BYTES);
	struct verbs_region *part = announce(&pair.ends[0], from + BYTES / 2, BYTES);
	assert_int_equal(device->pinned_bytes, 0);  /* not before it is used */
	exchange(&pair, 2, from, into, BYTES);
	assert_null(part->mrs[0]);
	const struct ibv_mr *kept = whole->mrs[0];
	assert_non_null(kept);
	exchange(&pair, 3, from + BYTES, into, BYTES);
	assert_ptr_equal(whole->mrs[0], kept);
	exchange(&pair, 4, from + BYTES / 2, into, BYTES);
	const bool either = device->pinned_bytes == 2 * BYTES || device->pinned_bytes == 3 * BYTES;
	assert_true(either);
	assert_int_equal(whole->refcount + part->refcount, 0);

	pair.ends[0].instance->transport->memory_deregister(pair.ends[0].instance->device, whole);
	exchange(&pair, 5, from, into, BYTES);
	exchange(&pair, 6, from + BYTES / 2, into, BYTES);
	assert_int_equal(device->pinned_bytes, BYTES);
	pair.ends[0].instance->transport->memory_deregister(pair.ends[0].instance->device, part);
	assert_int_equal(device->pinned_bytes, 0);
	assert_int_equal(device->region_count, 0);
	free(from);
	free(into);
	pair_close(&pair);
}

static void read_only_memory_can_be_sent(void **state)
{
	enum { BYTES = 300000 };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	uint8_t *into = malloc(BYTES);
	uint8_t *from = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(from, MAP_FAILED);
	pattern_fill(from, BYTES, 1);
	assert_int_equal(mprotect(from, BYTES, PROT_READ), 0);
	struct collet_transfer send = transfer_of(1, from, BYTES), receive = transfer_of(1, into, BYTES);
	post_recv(&pair.ends[1], &receive);
	post_send(&pair.ends[0], &send);
	assert_true(pair_complete(&pair, &receive) && pair_complete(&pair, &send));
	assert_true(pattern_is(into, BYTES, 1));
	assert_false(pair.ends[0].instance->device->has_warned);
	munmap(from, BYTES);
	free(into);
	pair_close(&pair);
}

static void cached_registrations_are_bounded(void **state)
{
	enum { BYTES = 100000, COUNT = 8, MOST = 3 * BYTES };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	struct collet_device *device = pair.ends[0].instance->device;
	device->options.max_pinned_bytes = MOST;
	uint8_t *from[COUNT], *into = malloc(BYTES);
	void *registrations[COUNT];
	for (unsigned i = 0; i < COUNT; i++) {
		from[i] = malloc(BYTES);
		registrations[i] = announce(&pair.ends[0], from[i], BYTES);
	}
	for (unsigned i = 0; i < 3 * COUNT; i++) {
		exchange(&pair, i, from[i * 5 % COUNT], into, BYTES);
		assert_true(device->pinned_bytes <= MOST);
		assert_non_null(((struct verbs_region *)registrations[i * 5 % COUNT])->mrs[0]);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		pair.ends[0].instance->transport->memory_deregister(device, registrations[i]);
		free(from[i]);
	}
	assert_int_equal(device->pinned_bytes, 0);
	free(into);
	pair_close(&pair);
}

/* Registration fails, as at the limit of locked memory: at the sender, at the receiver, at both. */
static void unregistered_memory_is_bounced(void **state)
{
	static const size_t sizes[] = { 4065, 4097, 8192, 8193, 100003 };  /* bounce buffers have 4096 bytes */
	enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LARGEST = 100003, COUNT = 6 };
	uint8_t *from = malloc(COUNT * LARGEST), *into = malloc(COUNT * LARGEST);
	for (unsigned who = 1; who < 4; who++) {
		struct pair pair = { 0 };
		pair_open(&pair, "verbs");
		for (unsigned end = 0; end < 2; end++)
			for (unsigned rail = 0; who >> end & 1 && rail < VERBS_RAILS_MAX; rail++)
				pair.ends[end].instance->device->adapters[rail].attributes.max_mr_size = 1024;
		for (uint64_t i = 0; i < SIZES; i++)
			exchange(&pair, i, from, into, sizes[i]);
		/* Several large messages in flight, with small ones between them. */
		struct collet_transfer sends[COUNT], receives[COUNT];
		for (uint64_t i = 0; i < COUNT; i++) {
			const size_t bytes = i % 3 ? sizes[i % SIZES] : 50;
			pattern_fill(from + i * LARGEST, bytes, i);
			sends[i] = transfer_of(i, from + i * LARGEST, bytes);
			receives[i] = transfer_of(i, into + i * LARGEST, bytes);
			post_send(&pair.ends[0], &sends[i]);
		}
		for (uint64_t i = 0; i < COUNT; i++)
			post_recv(&pair.ends[1], &receives[i]);
		for (uint64_t i = 0; i < COUNT; i++) {
			assert_true(pair_complete(&pair, &receives[i]) && pair_complete(&pair, &sends[i]));
			assert_int_equal(receives[i].status, COLLET_OK);
			assert_true(pattern_is(into + i * LARGEST, receives[i].message.bytes, i));
		}
		assert_true(pair.ends[who & 1 ? 0 : 1].instance->device->has_warned);
		pair_close(&pair);
	}
	free(from);
	free(into);
}

/* ---- GPU memory, without a GPU ----------------------------------------------------------------------------------- */

/* Replaces the function of libibverbs, because rxe does not support dma-bufs: registers the pages of a memfd. */
static bool supports_dmabufs;

__attribute__((visibility("default"))) struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t address, int fd, int access)
{
	struct ibv_mr *(*real)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) = NULL;
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_reg_dmabuf_mr");
	if (!supports_dmabufs)
		return real(pd, offset, bytes, address, fd, access);
	void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	struct ibv_mr *registered =
		pages != MAP_FAILED ? ibv_reg_mr_iova(pd, pages, bytes, address, (unsigned)access) : NULL;
	if (pages != MAP_FAILED)
		munmap(pages, bytes);  /* registered pages stay */
	return registered;
}

struct gpu {
	int fd;
	uint8_t *pages;                  /* a mapping that this process can access */
	struct collet_memory memory;     /* the "device" addresses, which it cannot access */
	void *registration;
};

static struct gpu make_gpu(size_t bytes, size_t offset)
{
	struct gpu gpu = { .fd = memfd_create("gpu", MFD_CLOEXEC) };
	assert_true(gpu.fd >= 0 && ftruncate(gpu.fd, (off_t)(offset + bytes)) == 0);
	gpu.pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, gpu.fd, (off_t)offset);
	gpu.memory = (struct collet_memory){ .base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		.bytes = bytes, .kind = COLLET_MEMORY_GPU, .dmabuf = gpu.fd, .dmabuf_offset = offset };
	assert_ptr_not_equal(gpu.pages, MAP_FAILED);
	assert_ptr_not_equal(gpu.memory.base, MAP_FAILED);
	return gpu;
}

static void free_gpu(struct gpu *gpu)
{
	munmap(gpu->pages, gpu->memory.bytes);
	munmap(gpu->memory.base, gpu->memory.bytes);
	close(gpu->fd);
}

static void an_adapter_without_dmabufs_refuses_gpu_memory(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	struct collet_device *device = pair.ends[0].instance->device;
	struct gpu gpu = make_gpu(8192, 0);
	for (int with = 0; with < 2; with++) {
		gpu.memory.dmabuf = with ? gpu.fd : -1;
		assert_int_equal(
			pair.ends[0].instance->transport->memory_register(device, &gpu.memory, &gpu.registration),
			COLLET_ERR_UNSUPPORTED);
		assert_non_null(strstr(collet_last_error(), "rxe"));
		assert_non_null(strstr(collet_last_error(), "8192 bytes of GPU memory by a dma-buf"));
	}
	assert_null(gpu.registration);
	assert_int_equal(device->region_count, 0);
	assert_int_equal(device->pinned_bytes, 0);
	free_gpu(&gpu);
	pair_close(&pair);
}

static bool accepts(struct pair *pair, int end, const void *data, uint64_t bytes)
{
	return pair->ends[end].instance->transport->accepts_gpu(pair->ends[end].endpoint, data, bytes);
}

/* Large messages go from a dma-buf into a dma-buf, on all rails, and the CPU never touches the addresses. */
static void gpu_memory_is_sent_and_received_in_place(void **state)
{
	enum { BYTES = 75 * 4096, OFFSET = 3 * 4096 };
	struct pair pair = { 0 };
	struct gpu gpus[2];
	pair_open(&pair, "verbs");
	supports_dmabufs = true;
	for (int end = 0; end < 2; end++) {
		struct collet_device *device = pair.ends[end].instance->device;
		gpus[end] = make_gpu(BYTES, end ? OFFSET : 0);
		assert_int_equal(pair.ends[end].instance->transport->memory_register(
					 device, &gpus[end].memory, &gpus[end].registration),
			COLLET_OK);
		assert_int_equal(device->pinned_bytes, BYTES);
	}
	for (uint64_t i = 0; i < 3; i++) {
		const size_t at = i * 100, bytes = BYTES - 2 * at;
		uint8_t *from = gpus[0].memory.base, *into = gpus[1].memory.base;
		struct collet_transfer send = transfer_of(i, from + at, bytes);
		struct collet_transfer receive = transfer_of(i, into + 2 * at, bytes);
		send.flags = receive.flags = COLLET_TRANSFER_GPU;
		assert_true(accepts(&pair, 0, from + at, bytes) && accepts(&pair, 1, into + 2 * at, bytes));
		pattern_fill(gpus[0].pages + at, bytes, i);
		post_recv(&pair.ends[1], &receive);
		post_send(&pair.ends[0], &send);
		assert_true(pair_complete(&pair, &receive) && pair_complete(&pair, &send));
		assert_int_equal(receive.status, COLLET_OK);
		assert_true(pattern_is(gpus[1].pages + 2 * at, bytes, i));
	}
	for (int end = 0; end < 2; end++) {
		struct collet_device *device = pair.ends[end].instance->device;
		pair.ends[end].instance->transport->memory_deregister(device, gpus[end].registration);
		assert_int_equal(device->pinned_bytes, 0);
		free_gpu(&gpus[end]);
	}
	supports_dmabufs = false;
	pair_close(&pair);
}

/* Short messages, and memory that is not registered, are refused: the engine moves them through host memory. */
static void gpu_memory_is_accepted_by_message(void **state)
{
	enum { BYTES = 75 * 4096 + 5 };  /* the last write is short enough to be inline */
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	struct collet_device *device = pair.ends[0].instance->device;
	struct gpu gpu = make_gpu(BYTES, 0);
	uint8_t *first = gpu.memory.base, *host = malloc(BYTES);
	assert_false(accepts(&pair, 0, first, BYTES));
	supports_dmabufs = true;
	assert_int_equal(pair.ends[0].instance->transport->memory_register(device, &gpu.memory, &gpu.registration),
		COLLET_OK);
	assert_true(accepts(&pair, 0, first, BYTES));
	assert_true(accepts(&pair, 0, first + 1, BYTES - 1));
	assert_false(accepts(&pair, 0, first + 1, BYTES));
	assert_false(accepts(&pair, 0, first, 100));
	assert_false(accepts(&pair, 0, host, BYTES));
	/* From a GPU to a receiver that cannot register memory: through its bounce buffers, written by the adapter. */
	pair.ends[1].instance->device->options.max_pinned_bytes = 0;
	struct collet_transfer send = transfer_of(1, first, BYTES), receive = transfer_of(1, host, BYTES);
	send.flags = COLLET_TRANSFER_GPU;
	pattern_fill(gpu.pages, BYTES, 1);
	post_recv(&pair.ends[1], &receive);
	post_send(&pair.ends[0], &send);
	assert_true(pair_complete(&pair, &receive) && pair_complete(&pair, &send));
	assert_true(pattern_is(host, BYTES, 1));
	/* Deregistered before the send completes: an error, and no access by the CPU. */
	pair.ends[0].instance->transport->memory_deregister(device, gpu.registration);
	send = transfer_of(2, first, BYTES);
	send.flags = COLLET_TRANSFER_GPU;
	post_send(&pair.ends[0], &send);
	assert_true(pair_complete(&pair, &send));
	assert_int_equal(send.status, COLLET_ERR_ARGUMENT);
	assert_non_null(strstr(collet_last_error(), "deregistered before a message there had completed"));
	supports_dmabufs = false;
	free_gpu(&gpu);
	free(host);
	pair_close(&pair);
}

static void no_write_is_longer_than_an_adapter_allows(void **state)
{
	enum { BYTES = (1 << 20) + 17, MOST = 8192 };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	struct verbs_endpoint *sender = verbs_of(&pair, 0);
	assert_true(sender->max_write_bytes <= sender->rails[0].adapter->max_write_bytes);
	sender->max_write_bytes = MOST;
	uint8_t *from = malloc(BYTES), *into = malloc(BYTES);
	uint32_t before = 0, after = 0;
	for (uint32_t p = 1; p < sender->qp_count; p++)
		before += sender->qps[p].posted;
	exchange(&pair, 1, from, into, BYTES);
	for (uint32_t p = 1; p < sender->qp_count; p++)
		after += sender->qps[p].posted;
	assert_true(after - before >= BYTES / MOST);
	free(from);
	free(into);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_announced_memory_stays_registered),
		cmocka_unit_test(read_only_memory_can_be_sent),
		cmocka_unit_test(cached_registrations_are_bounded),
		cmocka_unit_test(unregistered_memory_is_bounced),
		cmocka_unit_test(an_adapter_without_dmabufs_refuses_gpu_memory),
		cmocka_unit_test(gpu_memory_is_sent_and_received_in_place),
		cmocka_unit_test(gpu_memory_is_accepted_by_message),
		cmocka_unit_test(no_write_is_longer_than_an_adapter_allows),
	};
	return cmocka_run_group_tests_name("verbs, memory", tests, NULL, NULL);
}
