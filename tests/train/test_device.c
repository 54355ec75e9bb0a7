/* --device cuda on the stand-in for the driver: where gradients live and on which streams they travel changes no bit.
 * Every run on GPUs ends with the parameters, losses and accuracies of the same run on the CPU, on every rank. Ranks
 * are threads here; layers are the host's (layers_host.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runs.h"
#include "sample.h"

enum { EPOCHS = 2, WORDS_MOST = 40 };

/* Short: images that divide by nothing. */
static struct run *run_if_offered(uint32_t ranks, const char *device, const char *const *more)
{
	const char *const always[] = { "--dataset", "digits", "--train-samples", "203", "--test-samples", "51",
		"--batch-size", "32", "--epochs", "2", "--device", device, NULL };
	return run_words_if_offered(ranks, always, more);
}

static struct run *run_on(uint32_t ranks, const char *device, const char *const *more, bool fine)
{
	struct run *run = run_if_offered(ranks, device, more);
	assert_int_equal(run->fine[0], fine);
	return run;
}

static void assert_same(const struct run *cuda, const struct run *cpu, uint32_t ranks)
{
	for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
		for (uint32_t rank = 0; rank < ranks; rank++) {
			const struct trainer_epoch *got = &cuda->epochs[rank][epoch],
						   *expected = &cpu->epochs[0][epoch];
			assert_int_equal(got->epoch, epoch + 1);
			assert_int_equal(got->checksum, expected->checksum);
			assert_true(got->loss == expected->loss);
			assert_true(got->test_accuracy == expected->test_accuracy);
		}
	}
}

static void gpus_end_where_cpus_end(void **state)
{
	static const struct {
		const char *gpus;
		uint32_t ranks;
		const char *words[12];
	} rows[] = {
		{ "1", 1, { NULL } },
		{ "1", 2, { NULL } },
		{ "2", 3, { "--bucket-bytes", "40000", NULL } },
		{ "1", 2, { "--bucket-bytes", "20000", "--no-overlap", NULL } },
		{ "1", 2, { "--augment", "--workers", "2", "--optimizer", "adamw", "--lr", "0.001", NULL } },
		{ "1", 1, { "--precision", "f16", "--model", "linear", NULL } },
		{ "1", 2, { "--precision", "f16", "--model", "linear", NULL } },
		{ "1", 2, { "--precision", "bf16", "--model", "linear", NULL } },
		{ "2", 2, { "--precision", "bf16", NULL } },
		{ "2", 2, { "--compress", "bf16", "--model", "linear", NULL } },
		{ "1", 2, { "--accumulate", "3", "--clip", "0.5", NULL } },
		{ "1", 1, { "--shards", "3", "--batch-size", "16", NULL } },
		{ "1", 2, { "--compress", "topk:0.1", "--bucket-bytes", "20000", NULL } },
		{ "2", 3, { "--compress", "powersgd:2,momentum:0.9", "--momentum", "0", "--no-overlap", NULL } },
		{ "2", 3, { "--sync-batch-norm", NULL } },
		{ "1", 2, { "--strategy", "gather", "--clip", "0.5", "--precision", "f16", "--model", "linear",
			NULL } },
		{ "2", 3, { "--strategy", "data-parallel", "--clip", "1", "--augment", NULL } },
		{ "2", 3, { "--strategy", "parameter-server", "--accumulate", "2", "--model", "linear", NULL } },
		{ "1", 2, { "--strategy", "async", "--model", "linear", NULL } },  /* one worker: always the same */
		{ "1", 3, { "--strategy", "gossip", "--model", "linear", NULL } },
		{ "2", 2, { "--strategy", "local-sgd", "--local-steps", "2", "--optimizer", "adamw", "--lr", "0.001",
			NULL } },
		{ "1", 3, { "--strategy", "sharded", "--clip", "0.5", "--optimizer", "adamw", "--lr", "0.001", NULL } },
	};
	uint64_t last = 0;
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	for (size_t i = 0; i < count; i++) {
		if (!sample_of(count, i))
			continue;
		setenv("FAKE_CUDA_DEVICES", rows[i].gpus, 1);
		struct run *cpu = run_if_offered(rows[i].ranks, "cpu", rows[i].words);
		if (!cpu->fine[0]) {
			assert_int_equal(cpu->options.precision, PRECISION_BF16);  /* the one that a CPU may not have */
			printf("bf16: not offered by this CPU\n");
			free(cpu);
			continue;
		}
		struct run *cuda = run_on(rows[i].ranks, "cuda", rows[i].words, true);
		assert_same(cuda, cpu, rows[i].ranks);
		/* They knew of each other's GPUs when they met: none goes by way of the host's memory. */
		for (uint32_t rank = 0; rank < rows[i].ranks && rows[i].ranks > 1; rank++)
			assert_string_equal(cuda->ways[rank], rows[i].gpus[0] == '1' ? "shared_gpu" : "peer_gpus");
		/* And the comparison can fail. */
		assert_true(cuda->epochs[0][0].checksum != cuda->epochs[0][1].checksum);
		assert_true(cuda->epochs[0][1].checksum != last);
		last = cuda->epochs[0][1].checksum;
		free(cuda);
		free(cpu);
	}
	unsetenv("FAKE_CUDA_DEVICES");
}

static void join(const char *to[WORDS_MOST], const char *const *first, const char *const *then)
{
	while (*first)
		*to++ = *first++;
	while (*then)
		*to++ = *then++;
	*to = NULL;
}

/* What a checkpoint of GPUs holds is what one of CPUs would: half of the steps there, and the rest here. */
static void a_checkpoint_moves_between_them(void **state)
{
	char folder[] = "/tmp/collet-test-XXXXXX", file[64];
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/saved", folder);
	static const char *const rows[][6] = { { NULL }, { "--strategy", "gossip", "--model", "linear", NULL },
		{ "--strategy", "sharded", "--model", "linear", NULL },
		{ "--compress", "topk:0.1", "--model", "linear", NULL } };
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	for (size_t i = 0; i < count; i++) {
		if (!sample_of(count, i))
			continue;
		struct run *whole = run_on(2, "cpu", rows[i], true);
		for (int on_gpu_first = 0; on_gpu_first < 2; on_gpu_first++) {
			const char *const before[] = { "--checkpoint", file, "--steps", "6", NULL };
			const char *const after[] = { "--checkpoint", file, "--resume", NULL };
			const char *first[WORDS_MOST], *then[WORDS_MOST];
			join(first, rows[i], before);
			join(then, rows[i], after);
			free(run_on(2, on_gpu_first ? "cuda" : "cpu", first, true));
			struct run *rest = run_on(2, on_gpu_first ? "cpu" : "cuda", then, true);
			for (uint32_t rank = 0; rank < 2; rank++) {
				assert_int_equal(rest->epochs[rank][1].checksum, whole->epochs[rank][1].checksum);
				assert_true(
					rest->epochs[rank][1].test_accuracy == whole->epochs[rank][1].test_accuracy);
			}
			free(rest);
			unlink(file);
		}
		free(whole);
	}
	rmdir(folder);
}

/* From the start: the communicator knows of no GPU. (There are two, as it takes a single one for every rank's.) */
static void auto_is_the_cpu_where_something_is_missing(void **state)
{
	static const struct {
		const char *gpus, *absent;
	} rows[] = { { "0", NULL }, { "2", "1" } };
	const char *const nothing[] = { NULL };
	struct run *cpu = run_on(2, "cpu", nothing, true);
	struct run *found = run_on(2, "auto", nothing, true);
	assert_same(found, cpu, 2);
	assert_string_equal(found->ways[0], "shared_gpu");
	free(found);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		setenv("FAKE_CUDA_DEVICES", rows[i].gpus, 1);
		if (rows[i].absent)
			setenv("TEST_LAYERS_ABSENT", rows[i].absent, 1);
		found = run_on(2, "auto", nothing, true);
		assert_same(found, cpu, 2);
		for (uint32_t rank = 0; rank < 2; rank++)
			assert_string_equal(found->ways[rank], "pipelined");
		free(found);
		free(run_on(2, "cuda", nothing, false));
		unsetenv("TEST_LAYERS_ABSENT");
	}
	unsetenv("FAKE_CUDA_DEVICES");
	free(cpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpus_end_where_cpus_end),
		cmocka_unit_test(a_checkpoint_moves_between_them),
		cmocka_unit_test(auto_is_the_cpu_where_something_is_missing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
