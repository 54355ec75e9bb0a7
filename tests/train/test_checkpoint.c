/* A run that was stopped goes on bit for bit as if it had not been; on another number of ranks, to within rounding; and
 * from a file that is damaged, or of another training, not at all. Ranks are threads here. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "listen.h"
#include "options.h"
#include "ranks.h"
#include "sample.h"
#include "trainer.h"

enum { RANKS = 4, WORDS_MOST = 40 };

static char folder[] = "/tmp/collet-checkpoint-XXXXXX", path[64], dumps[2][64];

/* What every rank saw; only the main thread asserts. */
struct run {
	struct options options;
	bool fine[RANKS];
	uint32_t epochs;                  /* that were reported */
	bool disk_is_busy, went_on;       /* meanwhile */
	struct trainer_epoch last[RANKS];
};

/* Of a disk that takes its time, or has no room: the linker hands the trainer's fsync() to this file first. */
static struct {
	_Atomic bool holds, fails_once, fails;
	_Atomic int inside, most_inside;
	sem_t reached, released;
} disk;

static bool await(sem_t *event)
{
	struct timespec deadline;
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += 60;
	return sem_timedwait(event, &deadline) == 0;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	const int inside = atomic_fetch_add(&disk.inside, 1) + 1;
	if (inside > atomic_load(&disk.most_inside))
		atomic_store(&disk.most_inside, inside);
	if (atomic_exchange(&disk.holds, false)) {
		sem_post(&disk.reached);
		(void)await(&disk.released);
	}
	atomic_fetch_sub(&disk.inside, 1);
	if (atomic_exchange(&disk.fails_once, false) || atomic_load(&disk.fails)) {
		errno = ENOSPC;
		return -1;
	}
	return __real_fsync(fd);
}

struct member {
	struct run *run;
	uint32_t rank;
};

static bool note_epoch(void *context, const struct trainer_epoch *epoch)
{
	struct member *member = context;
	member->run->last[member->rank] = *epoch;
	if (member->rank == 0)
		member->run->epochs++;
	return true;
}

/* The disk lets go in the second step after the checkpoint, and only when the checkpoint has got to it. */
static void release_in_step_five(void *context, const struct trainer_progress *progress)
{
	const struct member *member = context;
	if (!member->run->disk_is_busy || member->rank != 0 || progress->steps_done != 5)
		return;
	member->run->went_on = await(&disk.reached) && atomic_load(&disk.inside) == 1;
	sem_post(&disk.released);
}

static void train(collet_comm *comm, void *context)
{
	struct run *run = context;
	struct member member = { run, collet_comm_rank(comm) };
	const struct trainer_watch watch = {
		.step = release_in_step_five, .epoch = note_epoch, .context = &member };
	const struct options options = run->options;
	run->fine[member.rank] = trainer_run(comm, &options, &watch);
	if (!run->fine[member.rank])
		collet_comm_abort(comm);
}

/* Tells ranks the words of both lists. */
static struct run run_words(uint32_t ranks, const char *const *words, const char *const *more)
{
	char *arguments[WORDS_MOST] = { strdup("collet-train") };
	int count = 1;
	for (int list = 0; list < 2; list++)
		for (const char *const *word = list ? more : words; word && *word; word++)
			arguments[count++] = strdup(*word);
	struct run run = { .disk_is_busy = atomic_load(&disk.holds) };
	assert_int_equal(options_parse(&run.options, count, arguments), OPTIONS_RUN);
	ranks_run(ranks, train, &run);
	while (count-- > 0)
		free(arguments[count]);
	return run;
}

#define TELL(...) ((const char *const[]){ __VA_ARGS__, NULL })
/* 610 images on two ranks: ten steps of 32 an epoch, the last one short. */
#define PLAIN \
	"--dataset", "digits", "--train-samples", "610", "--test-samples", "41", "--batch-size", "32", "--epochs", "3"
#define SHORT PLAIN, "--algorithm", "direct"

static void expect_alike(const char *what, const struct run *through, const struct run *resumed, uint32_t ranks)
{
	for (uint32_t rank = 0; rank < ranks; rank++) {
		if (!through->fine[rank] || !resumed->fine[rank])
			fail_msg("%s: rank %u failed", what, rank);
		const struct trainer_epoch *a = &through->last[rank], *b = &resumed->last[rank];
		if (a->checksum != b->checksum || a->epoch != b->epoch || a->loss != b->loss ||
			a->test_accuracy != b->test_accuracy)
			fail_msg("%s: rank %u ends elsewhere: loss %.9g and %.9g", what, rank, a->loss, b->loss);
	}
}

static void remove_checkpoints(void)
{
	char each[400];
	DIR *entries = opendir(path);
	for (const struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
		snprintf(each, sizeof(each), "%s/%s", path, entry->d_name);
		if (entry->d_name[0] != '.')
			unlink(each);
	}
	if (entries)
		closedir(entries);
	remove(path);
}

static uint32_t count_checkpoints(void)
{
	uint32_t count = 0;
	DIR *entries = opendir(path);
	for (const struct dirent *entry; entries && (entry = readdir(entries)) != NULL;)
		count += entry->d_name[0] != '.';
	if (entries)
		closedir(entries);
	return count;
}

/* Every second row, which ones the seed says; COLLET_TEST_FULL=1: all. */
static bool is_its_turn(size_t row)
{
	const char *full = getenv("COLLET_TEST_FULL"), *seed = getenv("COLLET_TEST_SEED");
	return ((full && *full) || (row + (seed ? strtoul(seed, NULL, 10) : 0)) % 2 == 0) && sample_has(row);
}

static void stop_and_go_on(size_t row, uint32_t ranks, const char *const *common, const char *const *words)
{
	/* In the middle of the first epoch, of the second, and where one ends. With --accumulate an epoch has 5. */
	static const char *const stops[] = { "3", "12", "10" };
	const char *const stop = stops[row % 3], *all[WORDS_MOST] = { NULL };
	char what[40];
	int count = 0;
	for (int list = 0; list < 2; list++)
		for (const char *const *word = list ? words : common; *word; word++)
			all[count++] = *word;
	const struct run through = run_words(ranks, TELL(PLAIN, "--steps", "14"), all);
	const struct run stopped = run_words(ranks, TELL(PLAIN, "--steps", stop, "--checkpoint", path), all);
	const struct run resumed =
		run_words(ranks, TELL(PLAIN, "--steps", "14", "--checkpoint", path, "--resume"), all);
	snprintf(what, sizeof(what), "row %zu (%s), stopped after %s", row, common[0], stop);
	expect_alike(what, &through, &resumed, ranks);
	assert_true(stopped.last[0].checksum != through.last[0].checksum);
	remove_checkpoints();
}

static void a_stopped_run_goes_on_bit_for_bit(void **state)
{
	static const struct {
		uint32_t ranks;
		const char *words[9];
	} rows[] = {
		{ 2, { NULL } },
		{ 1, { "--shards", "2" } },
		{ 3, { "--nesterov", "--weight-decay", "0.01", "--warmup", "12" } },
		{ 2, { "--augment", "--workers", "2", "--sync-batch-norm" } },
		{ 2, { "--optimizer", "adamw", "--schedule", "step", "--decay-every", "1" } },
		{ 2, { "--accumulate", "2", "--clip", "0.5", "--no-batch-norm" } },
		{ 2, { "--model", "linear", "--compress", "topk:0.05" } },
		{ 2, { "--model", "linear", "--compress", "randomk:0.1", "--lr", "0.002" } },
		{ 2, { "--model", "linear", "--compress", "qsgd:4", "--optimizer", "adamw" } },
		{ 2, { "--model", "linear", "--compress", "sign", "--lr", "0.002" } },
		{ 3, { "--model", "linear", "--compress", "powersgd:2" } },
		{ 2, { "--precision", "f16", "--lr", "0.02" } },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (is_its_turn(i))
			stop_and_go_on(i, rows[i].ranks, TELL("--algorithm", "direct"), rows[i].words);
}

/* Whether all ranks have everything, each a part, or each something of its own. */
static void so_it_does_with_every_strategy(void **state)
{
	static const struct {
		uint32_t ranks;
		const char *words[9];
	} rows[] = {
		{ 3, { "--model", "linear", "--strategy", "gossip", "--precision", "f16", "--lr", "0.02" } },
		{ 2, { "--model", "linear", "--strategy", "local-sgd", "--optimizer", "adamw" } },
		{ 2, { "--model", "linear", "--strategy", "gossip", "--optimizer", "adamw" } },
		{ 3, { "--model", "linear", "--strategy", "local-sgd", "--local-steps", "5" } },
		{ 3, { "--model", "linear", "--strategy", "sharded", "--optimizer", "adamw" } },
		{ 3, { "--model", "linear", "--strategy", "parameter-server" } },
		{ 4, { "--strategy", "parameter-server", "--servers", "2", "--optimizer", "adamw" } },
		{ 2, { "--model", "linear", "--strategy", "data-parallel", "--augment" } },
		{ 2, { "--model", "linear", "--strategy", "gather" } },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (is_its_turn(i))
			stop_and_go_on(i, rows[i].ranks, TELL("--momentum", "0.8"), rows[i].words);
}

/* What comes then is another run every time; but what was learnt is there. */
static void an_asynchronous_run_goes_on_too(void **state)
{
	const char *const words[] = { "--strategy", "async", "--model", "linear", NULL };
	const struct run stopped = run_words(3, TELL(PLAIN, "--steps", "13", "--checkpoint", path), words);
	const struct run resumed =
		run_words(3, TELL(PLAIN, "--steps", "14", "--checkpoint", path, "--resume"), words);
	assert_true(stopped.fine[0] && stopped.fine[1] && stopped.fine[2]);
	assert_true(resumed.fine[0] && resumed.fine[1] && resumed.fine[2]);
	assert_true(resumed.last[0].checksum != stopped.last[0].checksum);
	/* 3 steps of the second epoch, and one more. */
	assert_true(fabs(resumed.last[0].loss - stopped.last[0].loss) < 0.2 * stopped.last[0].loss);
	remove_checkpoints();
}

static void what_ranks_keep_for_themselves_is_theirs(void **state)
{
	const char *const compressed[] = { "--compress", "topk:0.05", NULL };
	/* Of another number of ranks, or of another hook, it means nothing: that is said, and training goes on. */
	static const struct {
		uint32_t ranks;
		const char *words[3];
		bool left_out;
	} rows[] = {
		{ 2, { "--compress", "topk:0.05" }, false },
		{ 3, { "--compress", "topk:0.05" }, true },
		{ 2, { NULL }, true },
		{ 2, { "--compress", "topk:0.1" }, true },
	};
	struct tensor_file file;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[8000];
		assert_true(
			run_words(2, TELL("--model", "linear", SHORT, "--steps", "3", "--checkpoint", path), compressed)
				.fine[0]);
		assert_true(safetensors_read(&file, path));
		assert_non_null(safetensors_tensor(&file, "ranks.own"));
		safetensors_deinit(&file);
		listen_begin();
		const struct run run = run_words(rows[i].ranks,
			TELL("--model", "linear", SHORT, "--steps", "4", "--checkpoint", path, "--resume"),
			rows[i].words);
		listen_end(text, sizeof(text));
		if (!run.fine[0] || !strstr(text, "goes on from ") || !strstr(text, "left out") == rows[i].left_out)
			fail_msg("row %zu: %s", i, text);
	}
	/* Where there is nothing of the kind, nothing is said. */
	assert_true(run_words(2, TELL("--model", "linear", SHORT, "--steps", "3", "--checkpoint", path), NULL).fine[0]);
	assert_true(safetensors_read(&file, path));
	assert_null(safetensors_tensor(&file, "ranks.own"));
	safetensors_deinit(&file);
	remove_checkpoints();
}

static void a_folder_keeps_the_newest(void **state)
{
	char newest[128];
	snprintf(newest, sizeof(newest), "%s/step-0000000012.safetensors", path);
	char as_folder[80];
	snprintf(as_folder, sizeof(as_folder), "%s/", path);
	const struct run through = run_words(2, TELL(SHORT), NULL);
	assert_true(run_words(2, TELL(SHORT, "--steps", "12", "--checkpoint", as_folder, "--checkpoint-every", "4"),
		NULL).fine[0]);
	/* After steps 4 and 8, the epoch's 10, and 12. */
	assert_int_equal(count_checkpoints(), 4);
	/* The newest is not there; the one before it is as good. */
	assert_int_equal(unlink(newest), 0);
	const struct run resumed = run_words(2, TELL(SHORT, "--checkpoint", path, "--resume"), NULL);
	assert_int_equal(resumed.epochs, 2);
	expect_alike("from a folder", &through, &resumed, 2);
	assert_int_equal(count_checkpoints(), 5);
	remove_checkpoints();
}

static void put_file(const char *name)
{
	char file[200];
	snprintf(file, sizeof(file), "%s/%s", path, name);
	FILE *out = fopen(file, "w");
	assert_non_null(out);
	fclose(out);
}

static bool has_file(const char *name)
{
	char file[200];
	snprintf(file, sizeof(file), "%s/%s", path, name);
	return access(file, F_OK) == 0;
}

/* Neither what is not ours, nor what another run has left that was further; but what a killed one had not finished. */
static void older_ones_go_and_no_others(void **state)
{
	static const struct {
		const char *words[3];
		uint32_t kept;
	} rows[] = { { { NULL }, 5 }, { { "--keep", "1" }, 1 }, { { "--keep", "3" }, 3 }, { { "--keep", "0" }, 7 } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(mkdir(path, 0777), 0);
		put_file("step-0000000900.safetensors");
		put_file("step-1.safetensors");
		put_file("step-0000000001.safetensors.partial");
		assert_true(run_words(1, TELL("--model", "linear", SHORT, "--steps", "14", "--checkpoint", path,
			"--checkpoint-every", "2"), rows[i].words).fine[0]);
		assert_int_equal(count_checkpoints(), 2 + rows[i].kept);
		assert_true(has_file("step-0000000900.safetensors") && has_file("step-1.safetensors"));
		assert_true(has_file("step-0000000014.safetensors"));
		for (uint32_t step = 2; step < 14; step += 2) {
			char name[40];
			snprintf(name, sizeof(name), "step-%010u.safetensors", step);
			assert_int_equal(has_file(name), step > 14 - 2 * rows[i].kept);
		}
		remove_checkpoints();
	}
}

static void training_goes_on_while_the_disk_is_busy(void **state)
{
	const char *const words[] = { "--model", "linear", "--checkpoint", path, "--checkpoint-every", "3", NULL };
	assert_true(sem_init(&disk.reached, 0, 0) == 0 && sem_init(&disk.released, 0, 0) == 0);
	atomic_store(&disk.most_inside, 0);
	atomic_store(&disk.holds, true);
	const struct run run = run_words(2, TELL(SHORT, "--steps", "8"), words);
	assert_true(run.fine[0] && run.fine[1] && run.went_on);
	assert_int_equal(atomic_load(&disk.most_inside), 1);
	struct tensor_file file;
	assert_true(safetensors_read(&file, path));
	assert_string_equal(safetensors_note(&file, "steps"), "8");
	safetensors_deinit(&file);
	remove_checkpoints();
}

static void a_disk_that_fails_is_told_of(void **state)
{
	const char *const words[] = { "--model", "linear", "--checkpoint", path, "--checkpoint-every", "3", NULL };
	char text[8000];
	for (int always = 0; always < 2; always++) {
		atomic_store(always ? &disk.fails : &disk.fails_once, true);
		listen_begin();
		const struct run run = run_words(2, TELL(SHORT, "--steps", "8"), words);
		listen_end(text, sizeof(text));
		atomic_store(&disk.fails, false);
		/* Training is worth more than one of several checkpoints. */
		assert_int_equal(run.fine[0], !always);
		assert_non_null(strstr(text, "run.partial: No space left on device"));
		assert_int_equal(strstr(text, "the last one could not be written") != NULL, always);
		assert_int_equal(access(path, F_OK) == 0, !always);
		remove_checkpoints();
	}
}

/* One that is not there yet is no mistake: a job can be told the same words every time. */
static void without_a_checkpoint_a_run_begins(void **state)
{
	const struct run through = run_words(2, TELL(SHORT, "--steps", "4"), NULL);
	const struct run begun = run_words(2, TELL(SHORT, "--steps", "4", "--checkpoint", path, "--resume"), NULL);
	expect_alike("from nothing", &through, &begun, 2);
	/* Nor is one with which there is nothing left to do. */
	const struct run done = run_words(2, TELL(SHORT, "--steps", "4", "--checkpoint", path, "--resume"), NULL);
	assert_true(done.fine[0] && done.fine[1] && done.epochs == 0);
	remove_checkpoints();
}

/* ---- Other ranks ------------------------------------------------------------------------------------------------ */

/* One rank that does two ranks' shares in turn computes the same bits: it may take up their run. */
static void shards_go_on_with_what_ranks_began(void **state)
{
	const struct run through = run_words(2, TELL(SHORT, "--steps", "16"), NULL);
	assert_true(run_words(2, TELL(SHORT, "--steps", "13", "--checkpoint", path), NULL).fine[0]);
	const struct run resumed = run_words(
		1, TELL(SHORT, "--steps", "16", "--shards", "2", "--checkpoint", path, "--resume"), NULL);
	expect_alike("by shards", &through, &resumed, 1);
	remove_checkpoints();
}

static void read_floats(const char *from, float *values, size_t count)
{
	FILE *file = fopen(from, "rb");
	assert_non_null(file);
	assert_int_equal(fread(values, sizeof(float), count, file), count);
	fclose(file);
	unlink(from);
}

/* The same images make each step, in another order of adding. 600 images divide by all there are. */
#define EVEN \
	"--dataset", "digits", "--train-samples", "600", "--test-samples", "100", "--no-batch-norm", "--lr", "0.002", \
		"--epochs", "2"

static void another_number_of_ranks_goes_on_to_within_rounding(void **state)
{
	enum { PARAMETERS = 16 * 25 + 16 + 32 * 16 * 25 + 32 + 10 * 1568 + 10 };
	static const struct {
		uint32_t before, after;
		const char *batches[2], *words[3];
	} rows[] = {
		{ 2, 1, { "30", "60" }, { NULL } },
		{ 1, 3, { "60", "20" }, { NULL } },
		{ 3, 2, { "20", "30" }, { NULL } },
		/* What the optimiser remembers lies in other parts then. */
		{ 2, 3, { "30", "20" }, { "--strategy", "sharded" } },
		{ 3, 4, { "30", "20" }, { "--strategy", "parameter-server" } },
	};
	float *values[2] = { calloc(PARAMETERS, sizeof(float)), calloc(PARAMETERS, sizeof(float)) };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!is_its_turn(i))
			continue;
		const struct run through = run_words(rows[i].before,
			TELL(EVEN, "--batch-size", rows[i].batches[0], "--dump-parameters", dumps[0]), rows[i].words);
		const struct run stopped = run_words(rows[i].before,
			TELL(EVEN, "--batch-size", rows[i].batches[0], "--steps", "14", "--checkpoint", path),
			rows[i].words);
		const struct run resumed = run_words(rows[i].after,
			TELL(EVEN, "--batch-size", rows[i].batches[1], "--checkpoint", path, "--resume",
				"--dump-parameters", dumps[1]),
			rows[i].words);
		assert_true(through.fine[0] && stopped.fine[0] && resumed.fine[0]);
		assert_int_equal(resumed.epochs, 1);
		/* All of the epoch's images count, those before the stop too. */
		assert_float_equal(through.last[0].loss, resumed.last[0].loss, 1e-4);
		for (int d = 0; d < 2; d++)
			read_floats(dumps[d], values[d], PARAMETERS);
		for (size_t v = 0; v < PARAMETERS; v++)
			assert_float_equal(values[0][v], values[1][v], 1e-4);
		remove_checkpoints();
	}
	free(values[0]);
	free(values[1]);
}

/* 150 images are two steps of 64, and a rest that is seen again: the epoch's loss is the mean over all that were seen.
 * Without a step every image has one loss, whenever it is seen. */
static void a_step_that_does_not_divide_begins_before(void **state)
{
	const char *const still[] = { "--lr", "0", "--model", "linear", "--dataset", "digits", "--train-samples",
		"610", "--test-samples", "41", "--checkpoint", path, NULL };
	struct tensor_file file;
	const struct run through = run_words(1, TELL("--batch-size", "50"), still);
	assert_true(run_words(1, TELL("--batch-size", "50", "--steps", "3"), still).fine[0]);
	const struct run resumed = run_words(2, TELL("--batch-size", "32", "--resume"), still);
	assert_true(through.fine[0] && resumed.fine[0] && resumed.fine[1]);
	assert_int_equal(resumed.last[0].epoch, 1);
	assert_true(fabs(resumed.last[0].loss / through.last[0].loss - 1) < 0.01);
	/* An epoch has 305 images a rank: 2 + 8 steps. */
	assert_true(safetensors_read(&file, path));
	assert_string_equal(safetensors_note(&file, "steps"), "11");
	assert_string_equal(safetensors_note(&file, "epochs"), "1");
	safetensors_deinit(&file);
	remove_checkpoints();
}

/* ---- Refusals --------------------------------------------------------------------------------------------------- */

static void what_is_of_another_training_is_refused(void **state)
{
	static const struct {
		const char *words[5];
		bool goes_on;
		const char *sentence;
	} rows[] = {
		{ { "--model", "lenet" }, false, "--model was linear and is lenet" },
		{ { "--seed", "1" }, false, "--seed was 0 and is 1" },
		{ { "--optimizer", "adamw" }, false, "--optimizer was sgd and is adamw" },
		{ { "--no-batch-norm" }, false, "--no-batch-norm was not given and is given" },
		{ { "--train-samples", "600" }, false, "--train-samples was 610 and is 600" },
		{ { "--lr", "0.02" }, true, "goes on with --lr 0.02, which was 0.01" },
		{ { "--compress", "bf16" }, true, "goes on with --compress bf16, which was not given" },
		{ { "--nesterov" }, true, "goes on with --nesterov given, which was not given" },
		{ { NULL }, true, "goes on from " },
	};
	assert_true(run_words(2, TELL("--model", "linear", SHORT, "--steps", "3", "--checkpoint", path), NULL).fine[0]);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[8000];
		listen_begin();
		const struct run run =
			run_words(2, TELL("--model", "linear", SHORT, "--checkpoint", path, "--steps", "3", "--resume"),
				rows[i].words);
		listen_end(text, sizeof(text));
		if (run.fine[0] != rows[i].goes_on || run.fine[1] != rows[i].goes_on ||
			!strstr(text, rows[i].sentence) || !strstr(text, path))
			fail_msg("row %zu: %s", i, text);
	}
	remove_checkpoints();
}

static void what_is_damaged_is_refused(void **state)
{
	static const char *const sentences[] = { "truncated: ", "damaged: its checksum is", "no checksum",
		"has no tensor", "another shape" };
	assert_true(run_words(1, TELL(SHORT, "--steps", "3", "--checkpoint", path), NULL).fine[0]);
	struct tensor_file file;
	assert_true(safetensors_read(&file, path));
	const struct tensor *last = &file.tensors[file.tensor_count - 1];
	const size_t count = (size_t)((const uint8_t *)last->data - file.bytes) + tensor_bytes(last);
	for (int damage = 0; damage < 5; damage++) {
		char text[8000];
		FILE *out = fopen(path, "wb");
		assert_non_null(out);
		if (damage == 1)
			file.bytes[count / 2] ^= 1;
		if (damage == 2)
			file.bytes[SAFETENSORS_CHECKSUM_AT - 5] ^= 1;  /* the checksum's name */
		const size_t kept_bytes = damage == 0 ? count / 2 : count;
		assert_int_equal(fwrite(file.bytes, 1, kept_bytes, out), kept_bytes);
		fclose(out);
		if (damage == 1)
			file.bytes[count / 2] ^= 1;
		if (damage == 2)
			file.bytes[SAFETENSORS_CHECKSUM_AT - 5] ^= 1;
		if (damage >= 3) {
			/* Whole, but with something else in it. */
			static const char *const names[] = { "checkpoint", "epochs", "steps", "images", "ranks",
				"--dataset", "--train-samples", "--model", "--no-batch-norm", "--optimizer", "--seed" };
			enum { NOTES = sizeof(names) / sizeof(names[0]) };
			struct tensor_note notes[NOTES];
			struct tensor tensors[64];
			uint32_t kept = 0;
			for (size_t n = 0; n < NOTES; n++)
				notes[n] = (struct tensor_note){ names[n], safetensors_note(&file, names[n]) };
			for (uint32_t t = 0; t < file.tensor_count; t++) {
				const bool is_it = strcmp(file.tensors[t].name, "norm2.weight") == 0;
				if (is_it && damage == 3)
					continue;
				tensors[kept] = file.tensors[t];
				tensors[kept++].shape[0] -= is_it;
			}
			assert_true(safetensors_write(path, tensors, kept, notes, NOTES));
		}
		listen_begin();
		const struct run run = run_words(2, TELL(SHORT, "--checkpoint", path, "--resume"), NULL);
		listen_end(text, sizeof(text));
		if (run.fine[0] || run.fine[1] || !strstr(text, sentences[damage]))
			fail_msg("damage %d: %s", damage, text);
	}
	safetensors_deinit(&file);
	remove_checkpoints();
}

static int enter(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/run", folder);
	for (int d = 0; d < 2; d++)
		snprintf(dumps[d], sizeof(dumps[d]), "%s/dump%d", folder, d);
	return 0;
}

static int leave(void **state)
{
	remove_checkpoints();
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stopped_run_goes_on_bit_for_bit),
		cmocka_unit_test(so_it_does_with_every_strategy),
		cmocka_unit_test(an_asynchronous_run_goes_on_too),
		cmocka_unit_test(what_ranks_keep_for_themselves_is_theirs),
		cmocka_unit_test(a_folder_keeps_the_newest),
		cmocka_unit_test(older_ones_go_and_no_others),
		cmocka_unit_test(training_goes_on_while_the_disk_is_busy),
		cmocka_unit_test(a_disk_that_fails_is_told_of),
		cmocka_unit_test(without_a_checkpoint_a_run_begins),
		cmocka_unit_test(shards_go_on_with_what_ranks_began),
		cmocka_unit_test(another_number_of_ranks_goes_on_to_within_rounding),
		cmocka_unit_test(a_step_that_does_not_divide_begins_before),
		cmocka_unit_test(what_is_of_another_training_is_refused),
		cmocka_unit_test(what_is_damaged_is_refused),
	};
	return cmocka_run_group_tests(tests, enter, leave);
}
