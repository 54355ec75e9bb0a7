/* Tests messages that the receiver reads in the sender's memory. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/status.h"
#include "shm_pair.h"
#include "skip.h"

/* Sends a message from end 0 to end 1, and checks that it comes. Returns how often the receiver asked the kernel. */
static uint64_t deliver(struct pair *pair, void *data, void *into, size_t bytes, uint32_t flags, bool view)
{
	struct collet_transfer send = transfer_of(1, data, bytes);
	struct collet_transfer receive = transfer_of(1, into, bytes);
	receive.flags = view ? COLLET_TRANSFER_VIEW : 0;
	send.flags = flags;
	const uint64_t before = pair->ends[1].endpoint->stats.system_calls;
	shm->post_send(pair->ends[0].endpoint, &send);
	shm->post_recv(pair->ends[1].endpoint, &receive);
	assert_true(pair_complete(pair, &receive));
	assert_int_equal(receive.status, COLLET_OK);
	const uint64_t calls = pair->ends[1].endpoint->stats.system_calls - before;
	assert_true(pattern_is(view ? receive.view : into, bytes, bytes));
	if (view)
		shm->release_view(pair->ends[1].endpoint, &receive);
	assert_true(pair_complete(pair, &send) && send.status == COLLET_OK);
	return calls;
}

static void long_messages_are_read_in_place(void **state)
{
	static const struct {
		const char *what, *option;
		bool processes, in_arena, oversubscribed;
		size_t bytes;
		uint32_t flags;
		unsigned reads;      /* system calls of the receiver */
	} rows[] = {
		{ "the least", "1", true, false, false, SHM_CMA_MIN, 0, 1 },
		{ "less", "1", true, false, false, SHM_CMA_MIN - 1, 0, 0 },
		{ "a slice", "1", true, false, false, SHM_SLICE_BYTES, 0, 1 },
		{ "a byte more", "1", true, false, false, SHM_SLICE_BYTES + 1, 0, 2 },
		{ "to be reduced", "1", true, false, false, 4 * SHM_CMA_MIN, COLLET_TRANSFER_CONTIGUOUS, 0 },
		{ "eager", "1", true, false, false, SHM_CMA_MIN, COLLET_TRANSFER_EAGER, 0 },
		{ "in the arena", "1", true, true, false, 4 * SHM_CMA_MIN, 0, 0 },
		{ "between threads", "1", false, false, false, 4 * SHM_CMA_MIN, 0, 0 },
		{ "where ranks share cores", "1", true, false, true, 4 * SHM_CMA_MIN, 0, 0 },
		{ "switched off", "0", true, false, false, 4 * SHM_CMA_MIN, 0, 0 },
	};
	for (unsigned at = 0; at < 2 * sizeof(rows) / sizeof(rows[0]); at++) {
		const unsigned row = at / 2;
		struct pair pair;
		struct collet_arena arenas[2];
		void *memory, *own = malloc(rows[row].bytes), *into = malloc(rows[row].bytes);
		setenv("COLLET_SHM_CMA", rows[row].option, 1);
		shm_pair_open(&pair, rows[row].processes, arenas);
		if (rows[row].oversubscribed)
			shm_pair_oversubscribe(&pair);
		assert_int_equal(collet_arena_alloc(&arenas[0], &memory, rows[row].bytes), COLLET_OK);
		void *data = rows[row].in_arena ? memory : own;
		pattern_fill(data, rows[row].bytes, rows[row].bytes);
		const uint64_t reads = deliver(&pair, data, into, rows[row].bytes, rows[row].flags, at % 2);
		if (reads != rows[row].reads)
			fail_msg("%s: %llu reads", rows[row].what, (unsigned long long)reads);
		free(own);
		free(into);
		pair_close(&pair);
		collet_arena_deinit(&arenas[0]);
		collet_arena_deinit(&arenas[1]);
	}
}

/* What has begun to be read comes without the sender: a rank must not fall asleep before all of it is there. */
static void a_reader_does_not_sleep(void **state)
{
	enum { BYTES = 2 * SHM_SLICE_BYTES + 1 };
	setenv("COLLET_SHM_CMA", "1", 1);
	for (unsigned in_arena = 0; in_arena < 2; in_arena++) {
		struct pair pair;
		struct collet_arena arenas[2];
		void *memory, *own = calloc(1, BYTES), *into = malloc(BYTES);
		shm_pair_open(&pair, true, arenas);
		assert_int_equal(collet_arena_alloc(&arenas[0], &memory, BYTES), COLLET_OK);
		struct collet_transfer send = transfer_of(1, in_arena ? memory : own, BYTES);
		struct collet_transfer receive = transfer_of(1, into, BYTES);
		struct collet_endpoint *reader = pair.ends[1].endpoint;
		shm->post_send(pair.ends[0].endpoint, &send);
		shm->post_recv(reader, &receive);
		for (unsigned slice = 0; slice < 3; slice++) {
			assert_int_equal(receive.status, COLLET_PENDING);
			assert_false(shm->arm(reader));
			shm->progress(reader);
		}
		assert_int_equal(receive.status, COLLET_OK);
		assert_true(pair_complete(&pair, &send) && send.status == COLLET_OK);
		free(own);
		free(into);
		pair_close(&pair);
		collet_arena_deinit(&arenas[0]);
		collet_arena_deinit(&arenas[1]);
	}
}

/* Makes process_vm_readv() fail with EPERM in this process, as containers do. */
static bool forbid_reads(void)
{
	struct sock_filter instructions[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(instructions) / sizeof(instructions[0]), instructions };
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void a_kernel_that_refuses_is_not_asked(void **state)
{
	enum { BYTES = 4 * SHM_CMA_MIN, NO_FILTER = 77, CHILD_DEADLINE_S = 60 };
	setenv("COLLET_SHM_CMA", "1", 1);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		alarm(CHILD_DEADLINE_S);
		if (!forbid_reads())
			_exit(NO_FILTER);
		struct pair pair;
		shm_pair_open(&pair, true, NULL);
		void *data = malloc(BYTES), *into = malloc(BYTES);
		pattern_fill(data, BYTES, BYTES);
		const uint64_t reads = deliver(&pair, data, into, BYTES, 0, false);
		_exit(reads == 0 ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_FILTER)
		skip_because("this kernel filters no system calls");
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Maps memory that this process can read and the kernel cannot for another one, like that which a GPU's driver has
 * page-locked. MAP_FAILED if the kernel has none. */
static void *map_secret(size_t bytes)
{
	const int descriptor = (int)syscall(SYS_memfd_secret, 0);
	if (descriptor < 0)
		return MAP_FAILED;
	void *memory = ftruncate(descriptor, (off_t)bytes) == 0 ?
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) : MAP_FAILED;
	close(descriptor);
	return memory;
}

static void what_the_kernel_does_not_read_is_copied(void **state)
{
	enum { BYTES = 4 * SHM_CMA_MIN };
	unsigned char *secret = map_secret(BYTES), *into = malloc(BYTES), *own = malloc(2 * BYTES);
	if (secret == MAP_FAILED)
		skip_because("this kernel has no memfd_secret()");
	static const struct {
		bool is_secret;
		size_t from, bytes;
		unsigned probes, reads;   /* system calls of the sender and of the receiver */
	} rows[] = {
		{ true, 0, BYTES, 1, 0 },
		{ true, 0, SHM_CMA_MIN, 0, 0 },
		{ false, 0, BYTES, 1, 1 },
		{ false, BYTES, BYTES, 1, 1 },
		{ false, BYTES / 2, BYTES, 0, 1 },   /* of both before */
		{ true, BYTES / 2, BYTES / 2, 1, 0 },
		{ false, 0, SHM_CMA_MIN - 1, 0, 0 },
	};
	struct pair pair;
	setenv("COLLET_SHM_CMA", "1", 1);
	shm_pair_open(&pair, true, NULL);
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		unsigned char *data = (rows[row].is_secret ? secret : own) + rows[row].from;
		pattern_fill(data, rows[row].bytes, rows[row].bytes);
		const uint64_t before = pair.ends[0].endpoint->stats.system_calls;
		const uint64_t reads = deliver(&pair, data, into, rows[row].bytes, 0, false);
		const uint64_t probes = pair.ends[0].endpoint->stats.system_calls - before;
		if (probes != rows[row].probes || reads != rows[row].reads)
			fail_msg("row %u: %llu probes, %llu reads", row, (unsigned long long)probes,
				(unsigned long long)reads);
	}
	pair_close(&pair);
	munmap(secret, BYTES);
	free(own);
	free(into);
}

/* What the receiver cannot read all the same ends the endpoint with a sentence; it never crashes. */
static void what_cannot_be_read_is_an_error(void **state)
{
	enum { BYTES = 4 * SHM_CMA_MIN };
	enum damage { UNMAPPED, BEYOND_MEMORY, OTHER_PROCESS, NOT_AGREED };
	static const struct {
		enum damage damage;
		collet_status status;
		const char *says;
	} rows[] = {
		{ UNMAPPED, COLLET_ERR_TRANSPORT, "COLLET_SHM_CMA=0" },
		{ BEYOND_MEMORY, COLLET_ERR_TRANSPORT, "COLLET_SHM_CMA=0" },
		{ OTHER_PROCESS, COLLET_ERR_PEER_LOST, "has died" },
		{ NOT_AGREED, COLLET_ERR_TRANSPORT, "invalid data" },
	};
	unsigned char *into = malloc(BYTES), *readable = calloc(1, BYTES);
	unsigned char *unmapped = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(unmapped != MAP_FAILED);
	setenv("COLLET_SHM_CMA", "1", 1);
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct pair pair;
		shm_pair_open(&pair, true, NULL);
		void *data = rows[row].damage == UNMAPPED      ? unmapped
			     : rows[row].damage == BEYOND_MEMORY ? (void *)(UINTPTR_MAX - 8)
								 : readable;
		struct collet_transfer send = transfer_of(1, data, BYTES), receive = transfer_of(1, into, BYTES);
		if (rows[row].damage == BEYOND_MEMORY)
			inside(&pair, 0)->own_range = (struct shm_own_range){ 0, UINTPTR_MAX, true };
		if (rows[row].damage == OTHER_PROCESS)
			inside(&pair, 0)->nonce ^= 1;
		if (rows[row].damage == NOT_AGREED)
			inside(&pair, 1)->peer_pid = 0;
		shm->post_send(pair.ends[0].endpoint, &send);
		if (rows[row].damage == UNMAPPED)
			assert_int_equal(munmap(unmapped, BYTES), 0);
		shm->post_recv(pair.ends[1].endpoint, &receive);
		assert_true(end_complete(&pair.ends[1], &receive));
		assert_int_equal(receive.status, rows[row].status);
		assert_non_null(strstr(collet_last_error(), rows[row].says));
		assert_true(end_complete(&pair.ends[0], &send));
		assert_int_equal(send.status, COLLET_ERR_PEER_LOST);
		pair_close(&pair);
	}
	free(readable);
	free(into);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_messages_are_read_in_place),
		cmocka_unit_test(a_reader_does_not_sleep),
		cmocka_unit_test(a_kernel_that_refuses_is_not_asked),
		cmocka_unit_test(what_the_kernel_does_not_read_is_copied),
		cmocka_unit_test(what_cannot_be_read_is_an_error),
	};
	return cmocka_run_group_tests_name("shm cma", tests, NULL, NULL);
}
