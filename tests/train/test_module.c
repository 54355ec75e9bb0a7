/* --device cuda where a library that layers need is no library: the error names it, on the stand-in for the driver, and
 * nothing else happens. TEST_CUDA_LIBRARY is the first that is opened; empty: this build has no such layers. */
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

static void what_cannot_be_opened_is_named(void **state)
{
	const char *library = getenv("TEST_CUDA_LIBRARY"), *before = getenv("LD_LIBRARY_PATH");
	char folder[64], path[128], paths[4096], sentence[160];
	assert_non_null(library);
	assert_non_null(before);
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/%s", folder, *library ? library : "nothing");
	const int file = open(path, O_CREAT | O_WRONLY, 0700);
	assert_true(file >= 0);
	close(file);
	snprintf(paths, sizeof(paths), "%s:%s", folder, before);
	setenv("LD_LIBRARY_PATH", paths, 1);
	struct tool tool;
	const struct tool_setup setup = { .program = getenv("COLLET_TRAIN") };
	tool_start(&tool, &setup, WORDS("--device", "cuda", "--dataset", "digits", "--train-samples", "100"));
	const int status = tool_finish(&tool);
	remove_folder(folder);
	snprintf(sentence, sizeof(sentence), *library ? "--device cuda: %s cannot be opened: " :
		"--device cuda: this collet-train was built where cuDNN and cuBLAS were not%s", library);
	if (status != 1 || !strstr(tool.error.text, sentence))
		fail_msg("expected \"%s\", got status %d: %s", sentence, status, tool.error.text);
	tool_deinit(&tool);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_cannot_be_opened_is_named) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
