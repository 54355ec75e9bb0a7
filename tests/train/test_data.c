/* Images come from files that are believed in nothing, or from the program itself, the same on every machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "data/dataset.h"
#include "data/digits.h"
#include "data/idx.h"
#include "skip.h"

enum { PATH_BYTES = 256 };

static int make_folder(void **state)
{
	char *folder = strdup("/tmp/collet-data-XXXXXX");
	*state = folder;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[PATH_BYTES];
	snprintf(command, sizeof(command), "rm -r '%s'", (char *)*state);
	free(*state);
	return system(command);
}

static void write_plain(const char *path, const uint8_t *bytes, size_t count)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, count, file), count);
	assert_int_equal(fclose(file), 0);
}

static void write_gzip(const char *path, const uint8_t *bytes, size_t count)
{
	gzFile file = gzopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(gzwrite(file, bytes, (unsigned)count), count);
	assert_int_equal(gzclose(file), Z_OK);
}

/* An IDX file of 3 x 2 x 4 bytes: 10, 11, 12, ... */
enum { HEADER = 16, BODY = 24 };

static void fill_good(uint8_t *bytes)
{
	memcpy(bytes, (const uint8_t[]){ 0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 4 }, HEADER);
	for (int i = 0; i < BODY; i++)
		bytes[HEADER + i] = (uint8_t)(10 + i);
}

static void a_good_file_is_read_plain_or_gzip(void **state)
{
	uint8_t bytes[HEADER + BODY];
	char path[PATH_BYTES];
	fill_good(bytes);
	for (int gzip = 0; gzip <= 1; gzip++) {
		snprintf(path, sizeof(path), "%s/good", (char *)*state);
		(gzip ? write_gzip : write_plain)(path, bytes, sizeof(bytes));
		struct idx idx;
		assert_true(idx_read(&idx, path, 3));
		assert_memory_equal(idx.shape, ((uint32_t[]){ 3, 2, 4 }), sizeof(idx.shape));
		assert_memory_equal(idx.bytes, bytes + HEADER, BODY);
		free(idx.bytes);
	}
}

static void a_bad_file_is_refused(void **state)
{
	static const struct {
		const char *name;
		size_t at;         /* this byte becomes value; past the end: none does */
		uint8_t value;
		size_t count;      /* bytes written */
	} rows[] = {
		{ "wrong magic", 0, 1, HEADER + BODY },        { "not bytes", 2, 13, HEADER + BODY },
		{ "other dimensions", 3, 1, HEADER + BODY },   { "a larger body promised", 7, 4, HEADER + BODY },
		{ "a smaller body promised", 7, 2, HEADER + BODY }, { "no images", 7, 0, HEADER + BODY },
		{ "2^31 images", 4, 128, HEADER + BODY },      { "product beyond 2^32", 8, 255, HEADER + BODY },
		{ "body cut", 99, 0, HEADER + BODY - 1 },      { "header cut", 99, 0, HEADER - 1 },
		{ "header alone", 99, 0, HEADER },             { "empty", 99, 0, 0 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int gzip = 0; gzip <= 1; gzip++) {
			uint8_t bytes[HEADER + BODY];
			char path[PATH_BYTES];
			fill_good(bytes);
			if (rows[i].at < sizeof(bytes))
				bytes[rows[i].at] = rows[i].value;
			snprintf(path, sizeof(path), "%s/%s", (char *)*state, rows[i].name);
			(gzip ? write_gzip : write_plain)(path, bytes, rows[i].count);
			struct idx idx = { { 7 }, NULL };
			assert_false(idx_read(&idx, path, 3));
			assert_int_equal(idx.shape[0], 7);
		}
	}
	struct idx idx;
	assert_false(idx_read(&idx, "/nowhere/at/all", 3));
}

/* Any one byte of the compressed file changed, or any tail of it missing: never a crash, never another picture. */
static void a_damaged_gzip_is_refused(void **state)
{
	uint8_t bytes[HEADER + BODY], packed[256], damaged[256];
	char path[PATH_BYTES];
	fill_good(bytes);
	snprintf(path, sizeof(path), "%s/damaged.gz", (char *)*state);
	write_gzip(path, bytes, sizeof(bytes));
	FILE *file = fopen(path, "rb");
	const size_t count = fread(packed, 1, sizeof(packed), file);
	fclose(file);
	assert_in_range(count, 20, sizeof(packed) - 1);
	for (size_t at = 0; at < count; at++) {
		struct idx idx = { { 0 }, NULL };
		memcpy(damaged, packed, count);
		damaged[at] ^= 0x55;
		write_plain(path, damaged, count);
		/* Bytes 4 to 9 of a gzip header (time, flags, system) change nothing. */
		if (idx_read(&idx, path, 3))
			assert_true(at >= 4 && at <= 9 && memcmp(idx.bytes, bytes + HEADER, BODY) == 0);
		free(idx.bytes);
		write_plain(path, packed, at);
		assert_false(idx_read(&idx, path, 3));
	}
}

static void write_set(
	const char *folder, const char *part, uint32_t images, uint32_t labels, uint8_t side, uint8_t label)
{
	char path[2 * PATH_BYTES];
	uint8_t bytes[HEADER + 28 * 28 * 2] = { 0, 0, 8, 3, 0, 0, 0, (uint8_t)images, 0, 0, 0, side, 0, 0, 0, 28 };
	bytes[HEADER] = 255;
	snprintf(path, sizeof(path), "%s/%s-images-idx3-ubyte.gz", folder, part);
	write_gzip(path, bytes, HEADER + (size_t)images * side * 28);
	memcpy(bytes, (uint8_t[]){ 0, 0, 8, 1, 0, 0, 0, (uint8_t)labels, 3, label }, 10);
	snprintf(path, sizeof(path), "%s/%s-labels-idx1-ubyte", folder, part);
	write_plain(path, bytes, 8 + labels);
}

static void mnist_is_found_in_its_folder_or_the_parent(void **state)
{
	char folder[PATH_BYTES];
	struct dataset set = { 0 };
	snprintf(folder, sizeof(folder), "%s/mnist", (char *)*state);
	assert_false(dataset_load(&set, "mnist", *state, DATASET_TRAIN, 0));
	char command[2 * PATH_BYTES];
	snprintf(command, sizeof(command), "mkdir '%s'", folder);
	assert_int_equal(system(command), 0);
	write_set(folder, "train", 2, 2, 28, 9);
	const char *const places[] = { folder, *state };
	for (size_t i = 0; i < 2; i++) {
		assert_true(dataset_load(&set, "mnist", places[i], DATASET_TRAIN, 0));
		assert_int_equal(set.count, 2);
		float images[2 * 784];
		uint8_t labels[2];
		dataset_batch(&set, NULL, (const uint64_t[]){ 1, 0 }, 2, images, labels);
		assert_int_equal(labels[0], 9);
		assert_int_equal(labels[1], 3);
		/* As torchvision's Normalize((0.1307,), (0.3081,)): background -0.4242, ink 2.8215. */
		assert_float_equal(images[0], -0.42421F, 1e-4);
		assert_float_equal(images[784], 2.82148F, 1e-4);
		dataset_deinit(&set);
		assert_true(dataset_load(&set, "mnist", places[i], DATASET_TRAIN, 1));
		assert_int_equal(set.count, 1);
		dataset_deinit(&set);
	}
	assert_false(dataset_load(&set, "mnist", folder, DATASET_TEST, 0));
	assert_false(dataset_load(&set, "mnist", NULL, DATASET_TRAIN, 0));
	assert_false(dataset_load(&set, "fashion", folder, DATASET_TRAIN, 0));
	write_set(folder, "train", 2, 2, 28, 10);
	assert_false(dataset_load(&set, "mnist", folder, DATASET_TRAIN, 0));
	write_set(folder, "train", 2, 1, 28, 9);
	assert_false(dataset_load(&set, "mnist", folder, DATASET_TRAIN, 0));
	write_set(folder, "train", 2, 2, 27, 9);
	assert_false(dataset_load(&set, "mnist", folder, DATASET_TRAIN, 0));
}

/* Record i of a file has label i % 10 and planes of the bytes i, 2 i and 3 i; byte `at` of the file is changed. */
static void write_cifar(const char *path, bool gzip, size_t count, size_t at, uint8_t value)
{
	enum { RECORD = 3073, RECORDS = 10000 };
	uint8_t *bytes = calloc(RECORDS + 1, RECORD);
	for (size_t i = 0; i < RECORDS; i++) {
		bytes[i * RECORD] = (uint8_t)(i % 10);
		for (size_t c = 0; c < 3; c++)
			memset(bytes + i * RECORD + 1 + c * 1024, (int)(uint8_t)(i * (c + 1)), 1024);
	}
	if (at < count)
		bytes[at] = value;
	(gzip ? write_gzip : write_plain)(path, bytes, count);
	free(bytes);
}

static void cifar10_is_found_in_its_folder_or_the_parent(void **state)
{
	enum { BYTES = 10000 * 3073 };
	char folder[PATH_BYTES], path[2 * PATH_BYTES];
	struct dataset set = { 0 };
	snprintf(folder, sizeof(folder), "%s/cifar-10", (char *)*state);
	snprintf(path, sizeof(path), "mkdir '%s'", folder);
	assert_int_equal(system(path), 0);
	assert_false(dataset_load(&set, "cifar10", *state, DATASET_TEST, 0));
	for (int gzip = 0; gzip < 2; gzip++) {
		snprintf(path, sizeof(path), "%s/test_batch.bin%s", folder, gzip ? ".gz" : "");
		write_cifar(path, gzip, BYTES, SIZE_MAX, 0);
		assert_true(dataset_load(&set, "cifar10", gzip ? *state : folder, DATASET_TEST, 0));
		assert_int_equal(set.count, 10000);
		assert_int_equal(set.shape.channels, 3);
		static float images[2 * 3072];
		uint8_t labels[2];
		dataset_batch(&set, NULL, (const uint64_t[]){ 9999, 50 }, 2, images, labels);
		assert_int_equal(labels[0], 9);
		assert_int_equal(labels[1], 0);
		/* Channel by channel, as torchvision's Normalize does with these means and deviations. */
		assert_float_equal(images[3072 + 1023], (50 / 255.0F - 0.4914F) / 0.2023F, 1e-5);
		assert_float_equal(images[3072 + 1024], (100 / 255.0F - 0.4822F) / 0.1994F, 1e-5);
		assert_float_equal(images[3072 + 2048], (150 / 255.0F - 0.4465F) / 0.2010F, 1e-5);
		dataset_deinit(&set);
		/* A label that is none, a byte too few, a byte too many. */
		write_cifar(path, gzip, BYTES, 77 * 3073, 10);
		assert_false(dataset_load(&set, "cifar10", folder, DATASET_TEST, 0));
		write_cifar(path, gzip, BYTES - 1, SIZE_MAX, 0);
		assert_false(dataset_load(&set, "cifar10", folder, DATASET_TEST, 0));
		write_cifar(path, gzip, BYTES + 1, SIZE_MAX, 0);
		assert_false(dataset_load(&set, "cifar10", folder, DATASET_TEST, 0));
		unlink(path);
	}
	/* Of the training files only those that the limit wants are read. */
	snprintf(path, sizeof(path), "%s/data_batch_1.bin", folder);
	write_cifar(path, false, BYTES, SIZE_MAX, 0);
	assert_true(dataset_load(&set, "cifar10", folder, DATASET_TRAIN, 123));
	assert_int_equal(set.count, 123);
	dataset_deinit(&set);
	assert_false(dataset_load(&set, "cifar10", folder, DATASET_TRAIN, 10001));
	assert_false(dataset_load(&set, "cifar10", NULL, DATASET_TRAIN, 1));
}

/* The real set, where there is one. */
static void the_real_cifar10_is_whole(void **state)
{
	const char *data = getenv("COLLET_DATA");
	struct dataset set = { 0 };
	char path[4096];
	snprintf(path, sizeof(path), "%s/cifar-10", data ? data : "");
	if (!data || access(path, R_OK) != 0)
		skip_because("COLLET_DATA names no folder with cifar-10 in it");
	for (int part = 0; part < 2; part++) {
		uint32_t labels[10] = { 0 };
		assert_true(dataset_load(&set, "cifar10", data, (enum dataset_part)part, 0));
		assert_int_equal(set.count, part == DATASET_TRAIN ? 50000 : 10000);
		for (uint32_t i = 0; i < set.count; i++)
			labels[set.labels[i]]++;
		for (int label = 0; label < 10; label++)
			assert_int_equal(labels[label], set.count / 10);
		dataset_deinit(&set);
	}
}

static void digits_are_the_same_everywhere(void **state)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	uint32_t labels[10] = { 0 };
	uint8_t pixels[DIGITS_PIXELS], again[DIGITS_PIXELS];
	for (uint64_t i = 0; i < 1000; i++) {
		const uint8_t label = digits_draw(1, i, pixels);
		labels[label]++;
		for (size_t p = 0; p < sizeof(pixels); p++)
			hash = (hash ^ pixels[p]) * UINT64_C(0x100000001b3);
		hash = (hash ^ label) * UINT64_C(0x100000001b3);
	}
	for (int label = 0; label < 10; label++)
		assert_in_range(labels[label], 70, 130);
	assert_int_equal(hash, UINT64_C(0xc25bba3063e79899));
	/* An image depends on its seed and number alone. */
	digits_draw(1, 999, again);
	assert_memory_equal(pixels, again, sizeof(pixels));
	digits_draw(2, 999, again);
	assert_memory_not_equal(pixels, again, sizeof(pixels));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_good_file_is_read_plain_or_gzip, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(a_bad_file_is_refused, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(a_damaged_gzip_is_refused, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(mnist_is_found_in_its_folder_or_the_parent, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(
			cifar10_is_found_in_its_folder_or_the_parent, make_folder, remove_folder),
		cmocka_unit_test(the_real_cifar10_is_whole),
		cmocka_unit_test(digits_are_the_same_everywhere),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
