/* collet-run -n gpu: as many ranks as the CUDA driver shows GPUs. On the stand-in for the driver, so that the machine's
 * own GPUs do not matter. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tool.h"

static void one_rank_a_gpu(void **state)
{
	const struct {
		const char *devices, *visible;
		size_t ranks;
	} rows[] = { { "1", NULL, 1 }, { "3", NULL, 3 }, { "3", "1", 1 }, { "3", "2,0", 2 }, { "3", "0,7,1", 1 } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		setenv("FAKE_CUDA_DEVICES", rows[i].devices, 1);
		if (rows[i].visible)
			setenv("CUDA_VISIBLE_DEVICES", rows[i].visible, 1);
		assert_int_equal(tool_run(&tool, WORDS("-n", "gpu", "sh", "-c",
			"echo $LOCAL_RANK of $WORLD_SIZE.")), 0);
		for (size_t rank = 0; rank < rows[i].ranks; rank++) {
			char line[64];
			snprintf(line, sizeof(line), "[%zu] %zu of %zu.\n", rank, rank, rows[i].ranks);
			assert_int_equal(occurrences(tool.out.text, line), 1);
		}
		assert_int_equal(occurrences(tool.out.text, " of "), rows[i].ranks);
		unsetenv("CUDA_VISIBLE_DEVICES");
		tool_deinit(&tool);
	}
}

static void assert_refused(const char *sentence)
{
	struct tool tool;
	const int status = tool_run(&tool, WORDS("-n", "gpu", "true"));
	if (status != 1 || !strstr(tool.error.text, sentence) || !strstr(tool.error.text, "collet-run: -n gpu: "))
		fail_msg("expected \"%s\", got status %d: %s", sentence, status, tool.error.text);
	tool_deinit(&tool);
}

static void none_is_an_error_that_says_why(void **state)
{
	const struct {
		const char *variable, *value, *sentence;
	} rows[] = {
		{ "FAKE_CUDA_DEVICES", "0", "the CUDA driver finds no GPU; give a number of ranks, or 'cores'" },
		{ "CUDA_VISIBLE_DEVICES", "", "shows no GPU with CUDA_VISIBLE_DEVICES=;" },
		{ "CUDA_VISIBLE_DEVICES", "9", "shows no GPU with CUDA_VISIBLE_DEVICES=9" },
		{ "FAKE_CUDA_WITHOUT", "cuDeviceGetCount", "is too old: it has no cuDeviceGetCount" },
		{ "FAKE_CUDA_FAIL", "cuDeviceGetCount:1:2", "CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unsetenv("FAKE_CUDA_DEVICES");
		setenv(rows[i].variable, rows[i].value, 1);
		assert_refused(rows[i].sentence);
		unsetenv(rows[i].variable);
	}
}

/* A file of that name which is none takes the place of the machine's own driver, if it has one. */
static void no_driver_is_an_error_that_says_so(void **state)
{
	char folder[64], path[96];
	const char *before = getenv("LD_LIBRARY_PATH");
	char *kept = before ? strdup(before) : NULL;
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
	const int file = open(path, O_CREAT | O_WRONLY, 0700);
	assert_true(file >= 0);
	close(file);
	setenv("LD_LIBRARY_PATH", folder, 1);
	assert_refused("there is no CUDA driver: ");
	remove_folder(folder);
	if (kept)
		setenv("LD_LIBRARY_PATH", kept, 1);
	else
		unsetenv("LD_LIBRARY_PATH");
	free(kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_rank_a_gpu),
		cmocka_unit_test(none_is_an_error_that_says_why),
		cmocka_unit_test(no_driver_is_an_error_that_says_so),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
