/* The kernel that makes images of pixels, in its host form: what it gives has the bits of the host's images, for every
 * place that augmentation can draw, and for sizes that divide by nothing or are smaller than what it shifts by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/cudnn/kernels.h"
#include "data/augment.h"
#include "data/random.h"
#include "model/model.h"

/* Scales that round; an offset of -0, which 0 x scale + offset would not leave so. */
static const struct normal normals[IMAGE_CHANNELS] = {
	{ 1 / (255 * 0.3081F), -0.1307F / 0.3081F }, { 1 / (255 * 0.2023F), -0.4914F / 0.2023F },
	{ 1 / 255.0F, -0.0F }, { -3, 0.1F } };

struct body {
	struct shape shape;
	uint32_t count;
	uint64_t pixel_count;      /* of an image */
	uint8_t *pixels;
	struct placement *places;
	float *made, *expected;
};

static void body_init(struct body *body, struct shape shape, uint32_t count)
{
	struct random random = random_stream(17, shape.width);
	*body = (struct body){ .shape = shape, .count = count,
		.pixel_count = (uint64_t)shape.channels * shape.height * shape.width };
	const uint64_t all = count * body->pixel_count;
	body->pixels = malloc(all);
	body->places = calloc(count, sizeof(*body->places));
	body->made = malloc(all * sizeof(float));
	body->expected = malloc(all * sizeof(float));
	assert_true(body->pixels && body->places && body->made && body->expected);
	for (uint64_t i = 0; i < all; i++)
		body->pixels[i] = (uint8_t)(random_bits(&random) >> 56);
	memset(body->made, 0xff, all * sizeof(float));
}

static void body_deinit(struct body *body)
{
	free(body->pixels);
	free(body->places);
	free(body->made);
	free(body->expected);
}

static void assert_same_bits(struct body *body)
{
	struct kernels_images how = { body->count, body->shape.channels, body->shape.height, body->shape.width,
		{ { 0 } } };
	memcpy(how.normals, normals, sizeof(normals));
	assert_int_equal(kernels_images(body->made, body->pixels, body->places, how, NULL), 0);
	for (uint32_t i = 0; i < body->count; i++)
		pixels_to_image(body->expected + i * body->pixel_count, body->pixels + i * body->pixel_count,
			&body->shape, &body->places[i], normals);
	assert_memory_equal(body->made, body->expected, body->count * body->pixel_count * sizeof(float));
}

/* Images are more than an epoch has places, so that all that can be drawn is. */
static void drawn_places_give_the_bits_of_the_host(void **state)
{
	static const struct {
		struct shape shape;
		uint32_t count;
	} rows[] = { { { 1, 28, 28 }, 3 }, { { 3, 32, 32 }, 2 }, { { 3, 5, 7 }, 60 }, { { 4, 9, 6 }, 31 },
		{ { 2, 3, 2 }, 200 }, { { 1, 1, 1 }, 97 }, { { 2, 1, 13 }, 50 }, { { 2, 11, 1 }, 50 } };
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		for (uint32_t epoch = 0; epoch < 3; epoch++) {
			const struct augment augment = { .seed = 3, .epoch = epoch, .mirrors = epoch > 0 };
			struct body body;
			body_init(&body, rows[r].shape, rows[r].count);
			for (uint32_t i = 0; i < body.count; i++)
				body.places[i] = augment_draw(&augment, i * 7919);
			assert_same_bits(&body);
			body_deinit(&body);
		}
	}
}

static void every_place_gives_the_bits_of_the_host(void **state)
{
	enum { WAYS = 2 * AUGMENT_PADDING + 1, PLACES = WAYS * WAYS * 2 };
	struct body body;
	body_init(&body, (struct shape){ 3, 5, 6 }, PLACES);
	for (int32_t i = 0; i < PLACES; i++)
		body.places[i] = (struct placement){ i / 2 % WAYS - AUGMENT_PADDING,
			i / 2 / WAYS - AUGMENT_PADDING, i % 2 };
	assert_same_bits(&body);
	body_deinit(&body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drawn_places_give_the_bits_of_the_host),
		cmocka_unit_test(every_place_gives_the_bits_of_the_host),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
