#include "core/number.h"

#include <assert.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Gives the calling thread the C locale; other threads keep theirs. glibc and musl have that locale built in, so this
 * allocates nothing and does not fail. */
static locale_t enter_c_locale(locale_t *before)
{
	const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	*before = c ? uselocale(c) : (locale_t)0;
	return c;
}

static void leave_c_locale(locale_t c, locale_t before)
{
	if (!c)
		return;
	uselocale(before);
	freelocale(c);
}

bool collet_number_read(const char *text, double *value)
{
	locale_t before;
	const locale_t c = enter_c_locale(&before);
	char *end;
	errno = 0;
	const double number = strtod(text, &end);
	const bool good = end != text && !*end && errno == 0 && isfinite(number);
	leave_c_locale(c, before);
	if (good)
		*value = number;
	return good;
}

const char *collet_number_write(char text[COLLET_NUMBER_BYTES], int digits, double value)
{
	assert(digits >= 1 && digits <= 17);
	locale_t before;
	const locale_t c = enter_c_locale(&before);
	snprintf(text, COLLET_NUMBER_BYTES, "%.*g", digits, value);
	leave_c_locale(c, before);
	return text;
}
