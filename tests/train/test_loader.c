/* A loader gives the batches that were asked for, whoever makes them; and an augmented image is a cut of the padded
 * one, the same for the same seed, epoch and image. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/loader.h"
#include "data/random.h"

enum { IMAGES = 40, CHANNELS = 2, HEIGHT = 6, WIDTH = 9, PIXELS = CHANNELS * HEIGHT * WIDTH, LARGEST = 7 };

static const struct backend *const backend = &backend_onednn;

static void set_init(struct dataset *set, bool mirrors)
{
	struct random random = random_stream(11, 0);
	*set = (struct dataset){ .shape = { CHANNELS, HEIGHT, WIDTH }, .classes = 10, .count = IMAGES,
		.mean = { 0.25F, 0.5F }, .deviation = { 0.5F, 0.125F }, .mirrors = mirrors };
	set->pixels = calloc(IMAGES, PIXELS);
	set->labels = calloc(IMAGES, 1);
	for (uint32_t i = 0; i < IMAGES * PIXELS; i++)
		set->pixels[i] = (uint8_t)(random_bits(&random) >> 56);
	for (uint32_t i = 0; i < IMAGES; i++)
		set->labels[i] = (uint8_t)(i % 10);
}

/* ---- Cuts --------------------------------------------------------------------------------------------------- */

/* What a network sees at (x, y) of a channel, from the definition: mirror, cut, pad, normalise. */
static float expected_pixel(
	const struct dataset *set, uint64_t image, const struct placement *place, uint32_t c, int32_t y, int32_t x)
{
	const int32_t row = y + place->down, column = (place->mirrored ? WIDTH - 1 - x : x) + place->right;
	float pixel = 0;
	if (row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH)
		pixel = set->pixels[((image * CHANNELS + c) * HEIGHT + (uint64_t)row) * WIDTH + (uint64_t)column];
	return (pixel / 255 - set->mean[c]) / set->deviation[c];
}

static void augmented_images_are_cuts_of_the_padded_ones(void **state)
{
	for (int mirrors = 0; mirrors <= 1; mirrors++) {
		struct dataset set;
		set_init(&set, mirrors);
		uint32_t mirrored = 0, offsets[2][2 * AUGMENT_PADDING + 1] = { 0 };
		for (uint32_t epoch = 0; epoch < 8; epoch++) {
			const struct augment augment = { .seed = 3, .epoch = epoch, .mirrors = mirrors };
			for (uint64_t i = 0; i < IMAGES; i++) {
				const struct placement place = augment_draw(&augment, i);
				float seen[PIXELS];
				uint8_t label;
				dataset_batch(&set, &augment, &i, 1, seen, &label);
				assert_int_equal(label, set.labels[i]);
				for (int32_t p = 0; p < PIXELS; p++)
					assert_float_equal(seen[p],
						expected_pixel(&set, i, &place, (uint32_t)p / (HEIGHT * WIDTH),
							p / WIDTH % HEIGHT, p % WIDTH),
						1e-5);
				mirrored += place.mirrored;
				offsets[0][place.down + AUGMENT_PADDING]++;
				offsets[1][place.right + AUGMENT_PADDING]++;
			}
		}
		if (mirrors)
			assert_in_range(mirrored, 120, 200);  /* of 320 */
		else
			assert_int_equal(mirrored, 0);
		for (int way = 0; way < 2; way++)
			for (int offset = 0; offset <= 2 * AUGMENT_PADDING; offset++)
				assert_in_range(offsets[way][offset], 15, 60);  /* 36 each */
		dataset_deinit(&set);
	}
}

/* ---- Feeds -------------------------------------------------------------------------------------------------- */

static const uint32_t counts[] = { 7, 7, 3, 7, 1, 7, 7 };
enum { BATCHES = 7 };

static void note_images(const struct dataset *set, const struct batch *batch, float *images)
{
	struct normal normals[IMAGE_CHANNELS];
	dataset_normals(set, normals);
	if (batch->images)
		memcpy(images, batch->images, batch->count * PIXELS * sizeof(float));
	else
		for (uint32_t i = 0; i < batch->count; i++)
			pixels_to_image(images + i * PIXELS, batch->pixels + i * PIXELS, &set->shape, &batch->places[i],
				normals);
}

/* An epoch that is left after two batches, then two whole ones. */
static void note_batches_of(const struct backend *back_end, const struct dataset *set,
	const struct loader_options *options, float *pixels, uint8_t *labels)
{
	uint64_t indices[BATCHES * LARGEST];
	for (uint64_t i = 0; i < BATCHES * LARGEST; i++)
		indices[i] = i * 13 % IMAGES;
	struct loader *loader = loader_create(back_end, set, LARGEST, options);
	assert_non_null(loader);
	for (uint32_t epoch = 0; epoch < 3; epoch++) {
		assert_true(loader_epoch(loader, epoch, indices, counts, BATCHES));
		for (int b = 0; b < (epoch == 0 ? 2 : BATCHES); b++) {
			struct batch batch;
			assert_true(loader_next(loader, &batch));
			assert_int_equal(batch.count, counts[b]);
			assert_int_equal(batch.images == NULL, back_end->makes_images);
			note_images(set, &batch, pixels);
			memcpy(labels, batch.labels, batch.count);
			pixels += batch.count * PIXELS;
			labels += batch.count;
		}
	}
	loader_destroy(loader);
}

static void note_batches(
	const struct dataset *set, const struct loader_options *options, float *pixels, uint8_t *labels)
{
	note_batches_of(backend, set, options, pixels, labels);
}

static void batches_do_not_depend_on_workers(void **state)
{
	enum { ALL = 2 * 7 + 2 * 39 };
	static const uint32_t workers[] = { 0, 1, 2, 5 };
	struct dataset set;
	set_init(&set, true);
	float *pixels[4];
	uint8_t *labels[4];
	for (int i = 0; i < 4; i++) {
		pixels[i] = calloc(ALL, PIXELS * sizeof(float));
		labels[i] = calloc(ALL, 1);
		const struct loader_options options = { .workers = workers[i], .augment = true, .seed = 5 };
		note_batches(&set, &options, pixels[i], labels[i]);
		assert_memory_equal(pixels[i], pixels[0], ALL * PIXELS * sizeof(float));
		assert_memory_equal(labels[i], labels[0], ALL);
	}
	/* Epochs differ, and so do seeds; without augmentation, epochs do not. */
	assert_memory_not_equal(
		pixels[0] + 14 * PIXELS, pixels[0] + (14 + 39) * PIXELS, 39 * PIXELS * sizeof(float));
	note_batches(&set, &(struct loader_options){ .augment = true, .seed = 6 }, pixels[1], labels[1]);
	assert_memory_not_equal(pixels[1], pixels[0], 7 * PIXELS * sizeof(float));
	note_batches(&set, &(struct loader_options){ .workers = 2, .seed = 6 }, pixels[1], labels[1]);
	assert_memory_equal(pixels[1] + 14 * PIXELS, pixels[1] + (14 + 39) * PIXELS, 39 * PIXELS * sizeof(float));
	for (int i = 0; i < 4; i++) {
		free(pixels[i]);
		free(labels[i]);
	}
	dataset_deinit(&set);
}

static void what_images_are_made_of_makes_the_same(void **state)
{
	enum { ALL = 14 + 2 * 39 };
	static const struct loader_options rows[] = { { .workers = 0 }, { .workers = 2 },
		{ .workers = 0, .augment = true, .seed = 5 }, { .workers = 3, .augment = true, .seed = 5 } };
	struct backend making = *backend;
	making.makes_images = true;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct dataset set;
		float *images[2] = { calloc(ALL, PIXELS * sizeof(float)), calloc(ALL, PIXELS * sizeof(float)) };
		uint8_t labels[2][ALL];
		set_init(&set, true);
		note_batches(&set, &rows[i], images[0], labels[0]);
		note_batches_of(&making, &set, &rows[i], images[1], labels[1]);
		assert_memory_equal(images[1], images[0], ALL * PIXELS * sizeof(float));
		assert_memory_equal(labels[1], labels[0], ALL);
		free(images[0]);
		free(images[1]);
		dataset_deinit(&set);
	}
}

static void a_feed_can_be_left_at_any_time(void **state)
{
	struct dataset set;
	set_init(&set, true);
	const uint64_t indices[BATCHES * LARGEST] = { 0 };
	for (int taken = -1; taken <= 2; taken++) {
		struct backend making = *backend;
		making.makes_images = taken == 1;
		struct loader *loader = loader_create(&making, &set, LARGEST, &(struct loader_options){ .workers = 3 });
		assert_non_null(loader);
		struct batch batch;
		if (taken >= 0)
			assert_true(loader_epoch(loader, 0, indices, counts, BATCHES));
		for (int b = 0; b < taken; b++)
			assert_true(loader_next(loader, &batch));
		loader_destroy(loader);
	}
	loader_destroy(NULL);
	dataset_deinit(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(augmented_images_are_cuts_of_the_padded_ones),
		cmocka_unit_test(batches_do_not_depend_on_workers),
		cmocka_unit_test(what_images_are_made_of_makes_the_same),
		cmocka_unit_test(a_feed_can_be_left_at_any_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
