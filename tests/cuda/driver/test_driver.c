/* Opening the CUDA driver: present, missing, too old, incomplete, or not wanted. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <cmocka.h>

#include "cuda/driver/pointer_attributes.h"
#include "program.h"

static const struct collet_log no_log;

/* On any machine there is a driver, or a reason. */
static void a_machine_has_a_driver_or_a_reason(void **state)
{
	struct collet_cuda cuda;
	assert_int_equal(collet_cuda_open(&cuda, &no_log), COLLET_OK);
	assert_true((cuda.module != NULL) != (cuda.unavailable_reason[0] != '\0'));
	collet_cuda_close(&cuda);
}

struct row {
	const char *variable, *value, *absent;
};

static void what_the_environment_says(void **state)
{
	static const struct row rows[] = {
		{ "FAKE_CUDA_VERSION", "12000", NULL },
		{ "FAKE_CUDA_VERSION", "13010", NULL },
		{ "FAKE_CUDA_VERSION", "11080", "for CUDA 11.8, collet needs 12.0" },
		{ "FAKE_CUDA_WITHOUT", "cuPointerGetAttributes", "it has no cuPointerGetAttributes" },
		{ "FAKE_CUDA_WITHOUT", "cuStreamQuery", "it has no cuStreamQuery" },
		{ "COLLET_CUDA", "1", NULL },
		{ "COLLET_CUDA", "0", "COLLET_CUDA says" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct collet_cuda cuda;
		setenv(rows[i].variable, rows[i].value, 1);
		assert_int_equal(collet_cuda_open(&cuda, &no_log), COLLET_OK);
		unsetenv(rows[i].variable);
		if (rows[i].absent)
			assert_non_null(strstr(cuda.unavailable_reason, rows[i].absent));
		else
			assert_string_equal(cuda.unavailable_reason, "");
		assert_int_equal(cuda.module == NULL, rows[i].absent != NULL);
		collet_cuda_close(&cuda);
	}
	struct collet_cuda cuda;
	setenv("COLLET_CUDA", "perhaps", 1);
	assert_int_equal(collet_cuda_open(&cuda, &no_log), COLLET_ERR_CONFIG);
	unsetenv("COLLET_CUDA");
}

static void an_error_has_the_drivers_words(void **state)
{
	struct collet_cuda cuda;
	assert_int_equal(collet_cuda_open(&cuda, &no_log), COLLET_OK);
	assert_int_equal(collet_cuda_fail(&cuda, CU_OUT_OF_MEMORY, "making something"), COLLET_ERR_MEMORY);
	assert_string_equal(
		collet_last_error(), "cuda: making something: CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)");
	assert_int_equal(collet_cuda_fail(&cuda, 9999, "making something"), COLLET_ERR_SYSTEM);
	assert_non_null(strstr(collet_last_error(), "unnamed error (9999"));
	collet_cuda_close(&cuda);
}

static void where_memory_is(void **state)
{
	struct collet_cuda cuda;
	struct collet_pointer_attributes attributes;
	struct program program;
	struct buffer gpu;
	char host[64];
	assert_int_equal(collet_cuda_open(&cuda, &no_log), COLLET_OK);
	/* Before the program has initialised the driver it has no GPU memory. */
	assert_int_equal(collet_pointer_attributes_get(&cuda, "send", host, sizeof(host), &attributes), COLLET_OK);
	assert_false(attributes.is_device);
	assert_true(program_start(&program, 0));
	assert_true(buffer_make(&gpu, &program, true, 4096));
	assert_int_equal(collet_pointer_attributes_get(&cuda, "send", host, sizeof(host), &attributes), COLLET_OK);
	assert_false(attributes.is_device);
	assert_int_equal(collet_pointer_attributes_get(&cuda, "send", gpu.first, 4096, &attributes), COLLET_OK);
	assert_true(attributes.is_device);
	assert_int_equal(attributes.ordinal, 0);
	assert_ptr_equal(attributes.context, program.context);
	/* There are 4097 bytes. */
	assert_int_equal(collet_pointer_attributes_get(&cuda, "send", gpu.first + 100, 3997, &attributes), COLLET_OK);
	assert_true(attributes.is_device);
	assert_int_equal(
		collet_pointer_attributes_get(&cuda, "send", gpu.first + 100, 3998, &attributes), COLLET_ERR_ARGUMENT);
	assert_non_null(strstr(collet_last_error(), "3997 bytes further on"));
	buffer_free(&gpu);
	assert_true(program_end(&program));
	collet_cuda_close(&cuda);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest anywhere[] = { cmocka_unit_test(a_machine_has_a_driver_or_a_reason) };
	const struct CMUnitTest fake[] = {
		cmocka_unit_test(what_the_environment_says),
		cmocka_unit_test(an_error_has_the_drivers_words),
		cmocka_unit_test(where_memory_is),
	};
	if (argc > 1 && strcmp(argv[1], "fake") == 0)
		return cmocka_run_group_tests(fake, NULL, NULL);
	return cmocka_run_group_tests(anywhere, NULL, NULL);
}
