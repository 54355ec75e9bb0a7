/* A machine whose GPU accesses wrong addresses in other processes' memory, or other GPUs', without any error. It is
 * detected when the communicator is created, logged, and avoided by staging through the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/gpu_context.h"
#include "cuda/peer_gpus/device_collective_internal.h"
#include "cuda/peer_gpus/internal.h"
#include "program.h"
#include "ranks.h"

enum { COUNT = 3000 };

struct row {
	const char *astray;          /* FAKE_CUDA_ASTRAY of the leader, which opens the others' memory; NULL: none */
	uint32_t wrong_own, wrong;   /* wrong words found by the leader, and by each of the others */
};

/* Reads what the library has logged; a process of its own may lose its stderr. */
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
				     "GPU: a rank has reported an error";
	rank_check(rank, !strstr(text, leader) == !(row->astray && rank->rank == 0), "it has logged: %s", text);
}

static void add_up(struct rank *rank, const struct program *program)
{
	struct buffer buffer;
	uint32_t values[COUNT];
	for (int i = 0; i < COUNT; i++)
		values[i] = 7;
	if (!rank_check(rank, buffer_make(&buffer, program, true, sizeof(values)) && buffer_write(&buffer, values),
		    "a buffer"))
		return;
	rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM, NULL),
		"a sum");
	rank_check(rank, buffer_read(&buffer, values), "reading a buffer");
	for (int i = 0; i < COUNT; i++)
		rank_check(rank, values[i] == 7 * rank->size, "element %d is %u", i, values[i]);
	buffer_free(&buffer);
}

static void create(struct rank *rank)
{
	const struct row *row = rank->options->context;
	struct program program;
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
	rank_check(rank, !rank->comm->gpu->shared_gpu == !!row->astray, "the ranks rely on it, or not");
	add_up(rank, &program);
	rank_destroy(rank);
	rank_check(rank, program_end(&program), "another context is current than before");
	close(log);
}

static void memory_that_is_not_what_it_seems_is_found_out(void **state)
{
	/* One bit of one word is wrong for each of two ranks. In the leader's sum over three ranks these are the same
	 * bit twice, so the other ranks get one wrong word each, if they get any. */
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

/* ---- GPUs that write to each other ---- */

enum place { ALL, WORDS, LL_SLOTS, SLOTS };

struct write_row {
	const char *name;
	uint32_t size;
	uint32_t astray;             /* ranks whose GPU's writes are lost, a bit each: the last ones */
	enum place place;            /* the part of others' windows that it cannot write */
	bool hurry;                  /* a kernel waits for data that never comes, until its time is up */
	const char *words;           /* what is logged if one rank's writes are lost */
	const char *two;             /* and if two ranks' are */
};

/* Describes it in the format of FAKE_CUDA_ASTRAY. */
static bool describe(const struct write_row *row, const struct collet_window *window, char text[64])
{
	enum { PAGE = 4096, CHANNEL = 1 };
	const bool words = row->place == WORDS, is_ll = row->place == LL_SLOTS;
	const uint32_t channel = is_ll ? 0 : CHANNEL;
	const uint64_t first = words ? 0 : collet_window_slot_at(window, is_ll, channel, 0, 0);
	const uint64_t end =
		words ? collet_window_words(window) : collet_window_slot_at(window, is_ll, channel + 1, 0, 0);
	snprintf(text, 64, "writes:%llu:%llu", (unsigned long long)first, (unsigned long long)(end - first));
	if (row->place == ALL)
		text[strlen("writes")] = '\0';
	return window->channels > CHANNEL && first % PAGE == 0 && end % PAGE == 0;
}

/* The fake driver's UUIDs repeat one byte. */
static const char *gpu_name(uint32_t rank, char name[64])
{
	int used = 0;
	for (uint32_t i = 0; i < 16; i++)
		used += snprintf(name + used, 64 - (size_t)used, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", 0xf0 + rank);
	return name;
}

/* The ranks whose writes to this one are lost, a bit each. */
static uint32_t astray_peers(const struct write_row *row, uint32_t rank)
{
	return row->astray & ~(UINT32_C(1) << rank);
}

static void check_complaint(struct rank *rank, const struct write_row *row, const char *text)
{
	static const char hint[] = "an IOMMU or PCIe ACS may misdirect writes: try iommu=pt on the kernel's command "
				   "line, or ACS off";
	const uint32_t others = astray_peers(row, rank->rank);
	const uint32_t from = (uint32_t)ffs((int)others) - 1;
	char whose[128], complaint[512], own[64], name[64];
	if (!others) {
		rank_check(rank, !*text, "%s: it has logged: %s", row->name, text);
		return;
	}
	const bool two = others & (others - 1);
	if (two)
		snprintf(whose, sizeof(whose), "of 16384 words that GPUs write");
	else
		snprintf(whose, sizeof(whose), "what rank %u's GPU (GPU-%s) writes", from, gpu_name(from, name));
	snprintf(complaint, sizeof(complaint),
		"collectives of ranks with GPUs go by way of the host: cuda: %s to rank %u's (GPU-%s) %s; %s\n", whose,
		rank->rank, gpu_name(rank->rank, own), two ? row->two : row->words, hint);
	rank_check(rank, strstr(text, complaint) != NULL, "%s: it has logged: %s and not: %s", row->name, text,
		complaint);
}

/* A communicator that uses windows logs their state; this one must not use them. */
static void write_astray(struct rank *rank)
{
	const struct write_row *row = rank->options->context;
	struct program program;
	collet_options options;
	collet_comm *before = NULL;
	char store[64], text[4096], astray[64];
	const int log = memfd_create("log", MFD_CLOEXEC);
	rank_fill_options(rank, 1, &options, store);
	if (!rank_check(rank, log >= 0 && dup2(log, STDERR_FILENO) >= 0 && program_start(&program, (int)rank->rank),
		    "no GPU") ||
		!rank_ok(rank, collet_comm_create(&before, &options), "a communicator") ||
		!rank_check(rank,
			before->gpu->device_collectives &&
				describe(row, &before->gpu->device_collectives->device_comm->window, astray),
			"its windows"))
		return;
	rank_ok(rank, collet_comm_destroy(&before), "destroying it");
	setenv("COLLET_LOG", "warn", 1);
	if (row->astray >> rank->rank & 1)
		setenv("FAKE_CUDA_ASTRAY", astray, 1);
	/* On other ranks it would find a peer late that is only slow. */
	if (row->hurry && astray_peers(row, rank->rank))
		setenv("FAKE_CUDA_CLOCK", "20", 1);
	if (!rank_create(rank))
		return;
	read_log(log, text, sizeof(text));
	check_complaint(rank, row, text);
	rank_check(rank, !rank->comm->gpu->device_collectives && !rank->comm->gpu->shared_gpu,
		"%s: the ranks rely on it", row->name);
	add_up(rank, &program);
	rank_check(rank, rank_sent(rank).messages > 0, "%s: no messages", row->name);
	rank_destroy(rank);
	rank_check(rank, program_end(&program), "another context is current than before");
	close(log);
}

static void writes_to_other_gpus_that_do_not_arrive_are_found_out(void **state)
{
	static const char lost[] = "is missing from 4096 of 16384 words";
	static const struct write_row rows[] = {
		{ "nothing arrives", 2, 2, ALL, false, "is not there", NULL },
		{ "no numbers do", 2, 2, WORDS, true, "has not come in 10 s", NULL },
		{ "nothing short does", 2, 2, LL_SLOTS, true, "has not come in 10 s", NULL },
		{ "one channel does not", 2, 2, SLOTS, false, "is missing from 4096 of 32768 words", NULL },
		{ "of one rank of four", 4, 8, SLOTS, false, lost, NULL },
		{ "of two ranks", 4, 12, SLOTS, false, lost, "4096 are wrong" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ranks_options options = {
			.size = rows[i].size, .transport = "shm", .bare = true, .context = &rows[i] };
		print_message("%s\n", rows[i].name);
		ranks_must_pass(&options, write_astray);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_is_not_what_it_seems_is_found_out),
		cmocka_unit_test(one_wrong_bit_is_found_out),
		cmocka_unit_test(writes_to_other_gpus_that_do_not_arrive_are_found_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
