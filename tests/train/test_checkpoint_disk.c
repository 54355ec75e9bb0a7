/* Where checkpoints go: a folder keeps the newest and touches nothing else; a disk that takes its time does not hold
 * training up, and one that fails is told of. */
#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "checkpoints.h"
#include "listen.h"

static void a_folder_keeps_the_newest(void **state)
{
	char newest[128];
	snprintf(newest, sizeof(newest), "%s/step-0000000012.safetensors", run_path);
	char as_folder[80];
	snprintf(as_folder, sizeof(as_folder), "%s/", run_path);
	const struct run through = run_words(2, TELL(SHORT), NULL);
	assert_true(run_words(2, TELL(SHORT, "--steps", "12", "--checkpoint", as_folder, "--checkpoint-every", "4"),
		NULL).fine[0]);
	/* After steps 4 and 8, the epoch's 10, and 12. */
	assert_int_equal(count_checkpoints(), 4);
	/* The newest is not there; the one before it is as good. */
	assert_int_equal(unlink(newest), 0);
	const struct run resumed = run_words(2, TELL(SHORT, "--checkpoint", run_path, "--resume"), NULL);
	assert_int_equal(resumed.epochs, 2);
	expect_alike("from a folder", &through, &resumed, 2);
	assert_int_equal(count_checkpoints(), 5);
	remove_checkpoints();
}

static void put_file(const char *name)
{
	char file[200];
	snprintf(file, sizeof(file), "%s/%s", run_path, name);
	FILE *out = fopen(file, "w");
	assert_non_null(out);
	fclose(out);
}

static bool has_file(const char *name)
{
	char file[200];
	snprintf(file, sizeof(file), "%s/%s", run_path, name);
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
		assert_int_equal(mkdir(run_path, 0777), 0);
		put_file("step-0000000900.safetensors");
		put_file("step-1.safetensors");
		put_file("step-0000000001.safetensors.partial");
		assert_true(run_words(1, TELL("--model", "linear", SHORT, "--steps", "14", "--checkpoint", run_path,
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

/* The disk lets go in the second step after the checkpoint, and only when the checkpoint has got to it. */
static void release_in_step_five(struct run *run, const struct trainer_progress *progress)
{
	if (progress->steps_done != 5)
		return;
	run->went_on = await(&disk.reached) && atomic_load(&disk.inside) == 1;
	sem_post(&disk.released);
}

static void training_goes_on_while_the_disk_is_busy(void **state)
{
	const char *const words[] = { "--model", "linear", "--checkpoint", run_path, "--checkpoint-every", "3", NULL };
	assert_true(sem_init(&disk.reached, 0, 0) == 0 && sem_init(&disk.released, 0, 0) == 0);
	atomic_store(&disk.most_inside, 0);
	atomic_store(&disk.holds, true);
	const struct run run = run_words_watched(2, TELL(SHORT, "--steps", "8"), words, release_in_step_five);
	assert_true(run.fine[0] && run.fine[1] && run.went_on);
	assert_int_equal(atomic_load(&disk.most_inside), 1);
	struct tensor_file file;
	assert_true(safetensors_read(&file, run_path));
	assert_string_equal(safetensors_note(&file, "steps"), "8");
	safetensors_deinit(&file);
	remove_checkpoints();
}

static void a_disk_that_fails_is_told_of(void **state)
{
	const char *const words[] = { "--model", "linear", "--checkpoint", run_path, "--checkpoint-every", "3", NULL };
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
		assert_int_equal(access(run_path, F_OK) == 0, !always);
		remove_checkpoints();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_folder_keeps_the_newest),
		cmocka_unit_test(older_ones_go_and_no_others),
		cmocka_unit_test(training_goes_on_while_the_disk_is_busy),
		cmocka_unit_test(a_disk_that_fails_is_told_of),
	};
	return cmocka_run_group_tests(tests, checkpoints_enter, checkpoints_leave);
}
