/* From a checkpoint that is damaged, or of another training, no run goes on; what may differ is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "checkpoints.h"
#include "listen.h"

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
		{ { NULL }, true, "this run has finished: 3 steps" },
		{ { "--steps", "4" }, true, "goes on from " },
	};
	assert_true(run_words(2, TELL("--model", "linear", SHORT, "--steps", "3", "--checkpoint", run_path), NULL)
			    .fine[0]);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[8000];
		listen_begin();
		const struct run run =
			run_words(2, TELL("--model", "linear", SHORT, "--steps", "3", "--checkpoint", run_path,
				"--resume"), rows[i].words);
		listen_end(text, sizeof(text));
		if (run.fine[0] != rows[i].goes_on || run.fine[1] != rows[i].goes_on ||
			!strstr(text, rows[i].sentence) || !strstr(text, run_path))
			fail_msg("row %zu: %s", i, text);
	}
	remove_checkpoints();
}

static void what_is_damaged_is_refused(void **state)
{
	static const char *const sentences[] = { "truncated: ", "damaged: its checksum is", "no checksum",
		"has no tensor", "another shape" };
	assert_true(run_words(1, TELL(SHORT, "--steps", "3", "--checkpoint", run_path), NULL).fine[0]);
	struct tensor_file file;
	assert_true(safetensors_read(&file, run_path));
	const struct tensor *last = &file.tensors[file.tensor_count - 1];
	const size_t count = (size_t)((const uint8_t *)last->data - file.bytes) + tensor_bytes(last);
	for (int damage = 0; damage < 5; damage++) {
		char text[8000];
		FILE *out = fopen(run_path, "wb");
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
			assert_true(safetensors_write(run_path, tensors, kept, notes, NOTES));
		}
		listen_begin();
		const struct run run = run_words(2, TELL(SHORT, "--checkpoint", run_path, "--resume"), NULL);
		listen_end(text, sizeof(text));
		if (run.fine[0] || run.fine[1] || !strstr(text, sentences[damage]))
			fail_msg("damage %d: %s", damage, text);
	}
	safetensors_deinit(&file);
	remove_checkpoints();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_of_another_training_is_refused),
		cmocka_unit_test(what_is_damaged_is_refused),
	};
	return cmocka_run_group_tests(tests, checkpoints_enter, checkpoints_leave);
}
