/* --device where a library that layers need is no library, on the stand-in for the driver: the error names it; ranks
 * know of each other's GPUs all the same. TEST_CUDA_LIBRARY is the first that is opened; empty: this build has no such
 * layers. */
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

static const char *library;

/* The library that is none. */
static int put_library(void **state)
{
	static char folder[64];
	const char *before = getenv("LD_LIBRARY_PATH");
	char path[128], paths[4096];
	assert_non_null(library);
	assert_non_null(before);
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/%s", folder, *library ? library : "nothing");
	const int file = open(path, O_CREAT | O_WRONLY, 0700);
	assert_true(file >= 0);
	close(file);
	snprintf(paths, sizeof(paths), "%s:%s", folder, before);
	setenv("LD_LIBRARY_PATH", paths, 1);
	*state = folder;
	return 0;
}

static int remove_library(void **state)
{
	remove_folder(*state);
	return 0;
}

static void what_cannot_be_opened_is_named(void **state)
{
	char sentence[160];
	struct tool tool;
	const struct tool_setup setup = { .program = getenv("COLLET_TRAIN") };
	tool_start(&tool, &setup, WORDS("--device", "cuda", "--dataset", "digits", "--train-samples", "100"));
	const int status = tool_finish(&tool);
	snprintf(sentence, sizeof(sentence), *library ? "--device cuda: %s cannot be opened: " :
		"--device cuda: this collet-train was built where cuDNN and cuBLAS were not%s", library);
	if (status != 1 || !strstr(tool.error.text, sentence))
		fail_msg("expected \"%s\", got status %d: %s", sentence, status, tool.error.text);
	tool_deinit(&tool);
}

/* Also where they then find that they cannot compute there, unless they may do so elsewhere. */
static void processes_know_whose_gpu_they_share_when_they_meet(void **state)
{
	static const struct {
		const char *script;  /* how a rank is started; $0: the program */
		const char *says;    /* the log; NULL: nothing of GPUs, and the CPU trains */
	} rows[] = {
		{ "exec \"$0\" \"$@\" --device cuda", "2 ranks share a GPU" },
		{ "unset LOCAL_RANK LOCAL_WORLD_SIZE; exec \"$0\" \"$@\" --device cuda", "2 ranks share a GPU" },
		{ "FAKE_CUDA_DEVICES=2 exec \"$0\" \"$@\" --device cuda", "2 ranks have GPUs that reach each other" },
		{ "unset LOCAL_RANK LOCAL_WORLD_SIZE; FAKE_CUDA_DEVICES=2 exec \"$0\" \"$@\" --device cuda",
			"2 ranks have GPUs that reach each other" },
		{ "exec \"$0\" \"$@\" --device auto", NULL },
		{ "unset LOCAL_RANK LOCAL_WORLD_SIZE; exec \"$0\" \"$@\" --device auto", NULL },
		{ "exec \"$0\" \"$@\" --device cpu", NULL },
	};
	setenv("COLLET_LOG", "info", 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		const int status = tool_run(&tool, WORDS("-n", "2", "sh", "-c", rows[i].script, getenv("COLLET_TRAIN"),
			"--dataset", "digits", "--train-samples", "64", "--test-samples", "32", "--model", "linear",
			"--epochs", "1"));
		const char *said = strstr(tool.error.text, rows[i].says ? rows[i].says : "cuda: 2 ranks");
		if (status != (rows[i].says ? 1 : 0) || !said != !rows[i].says)
			fail_msg("%s: status %d: %s", rows[i].script, status, tool.error.text);
		tool_deinit(&tool);
	}
	unsetenv("COLLET_LOG");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_cannot_be_opened_is_named),
		cmocka_unit_test(processes_know_whose_gpu_they_share_when_they_meet),
	};
	library = getenv("TEST_CUDA_LIBRARY");
	return cmocka_run_group_tests(tests, put_library, remove_library);
}
