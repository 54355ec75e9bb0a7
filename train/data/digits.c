#include "data/digits.h"

#include <math.h>
#include <string.h>

#include "data/random.h"

/* A quadratic Bezier curve: from, bent towards, to. Hundredths of the digit's box, y downwards. */
struct stroke {
	int8_t points[3][2];
};

enum { STROKES = 8, PIECES = 6 };

static const struct {
	uint8_t count;
	struct stroke strokes[STROKES];
} shapes[10] = {
	[0] = { 4, { { { { 50, 0 }, { 90, 0 }, { 90, 50 } } }, { { { 90, 50 }, { 90, 100 }, { 50, 100 } } },
		{ { { 50, 100 }, { 10, 100 }, { 10, 50 } } }, { { { 10, 50 }, { 10, 0 }, { 50, 0 } } } } },
	[1] = { 2, { { { { 55, 0 }, { 55, 50 }, { 55, 100 } } }, { { { 55, 0 }, { 46, 16 }, { 30, 22 } } } } },
	[2] = { 4, { { { { 12, 25 }, { 15, 0 }, { 50, 0 } } }, { { { 50, 0 }, { 88, 0 }, { 85, 30 } } },
		{ { { 85, 30 }, { 80, 55 }, { 10, 100 } } }, { { { 10, 100 }, { 50, 98 }, { 90, 100 } } } } },
	[3] = { 5, { { { { 12, 14 }, { 35, -8 }, { 65, 4 } } }, { { { 65, 4 }, { 95, 30 }, { 42, 47 } } },
		{ { { 42, 47 }, { 85, 45 }, { 86, 73 } } }, { { { 86, 73 }, { 84, 100 }, { 48, 100 } } },
		{ { { 48, 100 }, { 25, 100 }, { 10, 86 } } } } },
	[4] = { 3, { { { { 60, 0 }, { 30, 35 }, { 8, 65 } } }, { { { 8, 65 }, { 50, 65 }, { 95, 65 } } },
		{ { { 68, 28 }, { 68, 60 }, { 68, 100 } } } } },
	[5] = { 5, { { { { 85, 0 }, { 55, 0 }, { 25, 0 } } }, { { { 25, 0 }, { 22, 20 }, { 20, 42 } } },
		{ { { 20, 42 }, { 50, 28 }, { 74, 44 } } }, { { { 74, 44 }, { 95, 64 }, { 78, 88 } } },
		{ { { 78, 88 }, { 52, 110 }, { 12, 90 } } } } },
	[6] = { 5, { { { { 70, 2 }, { 24, 20 }, { 15, 68 } } }, { { { 15, 68 }, { 15, 100 }, { 50, 100 } } },
		{ { { 50, 100 }, { 86, 100 }, { 86, 72 } } }, { { { 86, 72 }, { 86, 46 }, { 50, 46 } } },
		{ { { 50, 46 }, { 22, 46 }, { 15, 68 } } } } },
	[7] = { 2, { { { { 10, 2 }, { 50, 0 }, { 90, 2 } } }, { { { 90, 2 }, { 54, 46 }, { 44, 100 } } } } },
	[8] = { 8, { { { { 50, 48 }, { 18, 44 }, { 18, 24 } } }, { { { 18, 24 }, { 18, 0 }, { 50, 0 } } },
		{ { { 50, 0 }, { 82, 0 }, { 82, 24 } } }, { { { 82, 24 }, { 82, 44 }, { 50, 48 } } },
		{ { { 50, 48 }, { 88, 52 }, { 88, 75 } } }, { { { 88, 75 }, { 88, 100 }, { 50, 100 } } },
		{ { { 50, 100 }, { 12, 100 }, { 12, 75 } } }, { { { 12, 75 }, { 12, 52 }, { 50, 48 } } } } },
	[9] = { 5, { { { { 85, 28 }, { 85, 55 }, { 50, 55 } } }, { { { 50, 55 }, { 15, 55 }, { 15, 28 } } },
		{ { { 15, 28 }, { 15, 0 }, { 50, 0 } } }, { { { 50, 0 }, { 85, 0 }, { 85, 28 } } },
		{ { { 85, 28 }, { 88, 70 }, { 58, 100 } } } } },
};

struct point {
	float x, y;
};

/* Maps the digit's box, with its middle at 0, to pixels. */
struct map {
	float xx, xy, yx, yy, x, y;
};

/* Every draw is a statement of its own: C leaves open which argument or initialiser is drawn first. */
static struct map random_map(struct random *random)
{
	/* A rotation by 2 atan(t) out of ratios alone: no library's sine, so the same bits everywhere. */
	const float t = random_between(random, -0.24F, 0.24F), one = 1 + t * t;
	const float cosine = (1 - t * t) / one, sine = 2 * t / one;
	const float width = random_between(random, 9, 15), height = random_between(random, 14, 21);
	const float shear = random_between(random, -0.3F, 0.3F);
	const float x = random_between(random, -3, 3), y = random_between(random, -3, 3);
	const float middle = (float)(DIGITS_SIDE - 1) / 2;
	return (struct map){
		.xx = cosine * width, .xy = (cosine * shear - sine) * height,
		.yx = sine * width, .yy = (sine * shear + cosine) * height,
		.x = middle + x, .y = middle + y,
	};
}

static struct point mapped(const struct map *map, struct point p)
{
	return (struct point){ map->xx * p.x + map->xy * p.y + map->x, map->yx * p.x + map->yy * p.y + map->y };
}

static int pixel_between(float at, int low, int high)
{
	return at <= (float)low ? low : at >= (float)high ? high : (int)at;
}

/* Adds a straight piece of ink: full within half the pen's width, fading over one pixel. */
static void draw_segment(float *ink, struct point a, struct point b, float half_width, float strength)
{
	const float reach = half_width + 1, dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
	const int left = pixel_between((a.x < b.x ? a.x : b.x) - reach, 0, DIGITS_SIDE - 1);
	const int right = pixel_between((a.x > b.x ? a.x : b.x) + reach + 1, 0, DIGITS_SIDE - 1);
	const int top = pixel_between((a.y < b.y ? a.y : b.y) - reach, 0, DIGITS_SIDE - 1);
	const int bottom = pixel_between((a.y > b.y ? a.y : b.y) + reach + 1, 0, DIGITS_SIDE - 1);
	for (int y = top; y <= bottom; y++) {
		for (int x = left; x <= right; x++) {
			float along = square > 0 ? (((float)x - a.x) * dx + ((float)y - a.y) * dy) / square : 0;
			along = along < 0 ? 0 : along > 1 ? 1 : along;
			const float off_x = (float)x - a.x - along * dx, off_y = (float)y - a.y - along * dy;
			float value = (half_width + 1 - sqrtf(off_x * off_x + off_y * off_y)) * strength;
			value = value < 0 ? 0 : value > strength ? strength : value;
			float *pixel = &ink[y * DIGITS_SIDE + x];
			*pixel = value > *pixel ? value : *pixel;
		}
	}
}

static void draw_curve(float *ink, const struct point *points, float half_width, float strength)
{
	struct point from = points[0];
	for (int segment = 1; segment <= PIECES; segment++) {
		const float t = (float)segment / PIECES, u = 1 - t;
		const struct point to = { u * u * points[0].x + 2 * u * t * points[1].x + t * t * points[2].x,
			u * u * points[0].y + 2 * u * t * points[1].y + t * t * points[2].y };
		draw_segment(ink, from, to, half_width, strength);
		from = to;
	}
}

/* The whole box is bent, not each stroke: where strokes meet, they stay together. */
static struct point bent(float bend[2][2], const int8_t *point)
{
	const float x = (float)point[0] / 100 - 0.5F, y = (float)point[1] / 100 - 0.5F;
	return (struct point){
		x + bend[0][0] * y * y + bend[1][0] * x * y, y + bend[0][1] * x * x + bend[1][1] * x * y };
}

static void draw_digit(float *ink, uint8_t digit, struct random *random)
{
	const struct map map = random_map(random);
	const float half_width = random_between(random, 0.2F, 1.3F), strength = random_between(random, 0.6F, 1);
	float bend[2][2];
	for (int i = 0; i < 4; i++)
		bend[i / 2][i % 2] = random_between(random, -0.35F, 0.35F);
	for (uint8_t s = 0; s < shapes[digit].count; s++) {
		struct point points[3];
		for (int p = 0; p < 3; p++)
			points[p] = mapped(&map, bent(bend, shapes[digit].strokes[s].points[p]));
		draw_curve(ink, points, half_width, strength);
	}
}

/* A short stroke anywhere, so that a pixel's ink says less. */
static void draw_stray(float *ink, struct random *random)
{
	struct point points[3];
	points[0].x = random_between(random, 0, DIGITS_SIDE - 1);
	points[0].y = random_between(random, 0, DIGITS_SIDE - 1);
	for (int p = 1; p < 3; p++) {
		points[p].x = points[p - 1].x + random_between(random, -4, 4);
		points[p].y = points[p - 1].y + random_between(random, -4, 4);
	}
	const float half_width = random_between(random, 0, 0.7F), strength = random_between(random, 0.2F, 0.7F);
	draw_curve(ink, points, half_width, strength);
}

uint8_t digits_draw(uint64_t seed, uint64_t index, uint8_t *pixels)
{
	struct random random = random_stream(seed, index);
	const uint8_t digit = (uint8_t)(random_bits(&random) % 10);
	float ink[DIGITS_PIXELS] = { 0 };
	draw_digit(ink, digit, &random);
	draw_stray(ink, &random);
	const float noise = random_between(&random, 0.05F, 0.25F);
	uint64_t bits = 0;
	for (int i = 0; i < DIGITS_PIXELS; i++) {
		bits = i % 8 == 0 ? random_bits(&random) : bits >> 8;  /* a byte a pixel is noise enough */
		const float value = ink[i] + noise * ((float)(bits & 255) / 127.5F - 1);
		pixels[i] = (uint8_t)((value < 0 ? 0 : value > 1 ? 1 : value) * 255 + 0.5F);
	}
	return digit;
}
