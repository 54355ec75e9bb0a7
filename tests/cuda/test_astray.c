/* A machine whose GPU reads or writes beside other processes' memory, without any error: found out when the
 * communicator is made, said, and gone round by way of the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "program.h"
#include "ranks.h"

enum { COUNT = 3000 };

struct row {
	const char *astray;          /* FAKE_CUDA_ASTRAY of the leader, who opens the others' memory; NULL: none */
	uint32_t wrong_own, wrong;   /* words that the leader finds, and each of the others */
};

/* What the library has logged: a process of its own may lose its stderr. */
static void read_log(int file, char *text, size_t capacity)
{
	const ssize_t got = pread(file, text, capacity - 1, 0);
	text[got > 0 ? got : 0] = '\0';
}

static void check_log(struct rank *rank, const struct row *row, const char *text)
{
	char words[128];
	const uint32_t wrong = rank->rank ? row->wrong : row->wrong_own;
	snprintf(words, sizeof(words), "words that the leader wrote to this rank's memory %u are wrong; is an IOMMU",
		wrong);
	rank_check(rank, !wrong == !strstr(text, words), "%u words are wrong; it has logged: %s", wrong, text);
	static const char leader[] = "collectives of ranks that share a GPU go by way of the host, and not on the "
				     "GPU in one go: a rank has a complaint";
	rank_check(rank, !strstr(text, leader) == !(row->astray && rank->rank == 0), "it has logged: %s", text);
}

static void create(struct rank *rank)
{
	const struct row *row = rank->options->context;
	struct program program;
	struct buffer buffer;
	uint32_t values[COUNT];
	char text[4096];
	const int log = memfd_create("log", MFD_CLOEXEC);
	if (!rank_check(rank, log >= 0 && dup2(log, STDERR_FILENO) >= 0 && program_start(&program, 0), "no GPU"))
		return;
	setenv("COLLET_LOG", "warn", 1);
	if (row->astray && rank->rank == 0)
		setenv("FAKE_CUDA_ASTRAY", row->astray, 1);
	if (!rank_create(rank))
		return;
	read_log(log, text, sizeof(text));
	check_log(rank, row, text);
	rank_check(rank, !rank->comm->direct == !!row->astray, "the ranks rely on it, or not");
	for (int i = 0; i < COUNT; i++)
		values[i] = 7;
	if (rank_check(rank, buffer_make(&buffer, &program, true, sizeof(values)) && buffer_write(&buffer, values),
			    "a buffer")) {
		rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM,
				      NULL), "a sum");
		rank_check(rank, buffer_read(&buffer, values), "reading a buffer");
		for (int i = 0; i < COUNT; i++)
			rank_check(rank, values[i] == 7 * rank->size, "element %d is %u", i, values[i]);
		buffer_free(&buffer);
	}
	rank_destroy(rank);
	rank_check(rank, program_end(&program), "another context is current than before");
	close(log);
}

static void memory_that_is_not_what_it_seems_is_found_out(void **state)
{
	/* One bit of one word of each of two ranks: two bits that are the same in the leader's sum over three, of which
	 * all get one wrong word, if they get any. */
	static const struct row rows[] = { { NULL, 0, 0 }, { "writes", 0, 1024 }, { "reads", 0, 1024 } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ranks_options options = {
			.size = 3, .transport = "shm", .bare = true, .context = &rows[i] };
		ranks_must_pass(&options, create);
	}
}

static void one_wrong_bit_is_found_out(void **state)
{
	static const struct row row = { "reads", 1, 1024 };
	const struct ranks_options options = { .size = 2, .transport = "shm", .bare = true, .context = &row };
	ranks_must_pass(&options, create);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_is_not_what_it_seems_is_found_out),
		cmocka_unit_test(one_wrong_bit_is_found_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
