/* Reads and writes numbers that programs exchange: settings and tuning files. strtod() and printf() follow the locale
 * of the process, which may have a decimal comma. These functions always use the C locale. Any thread. */
#ifndef COLLET_CORE_NUMBER_H
#define COLLET_CORE_NUMBER_H

#include <stdbool.h>

enum { COLLET_NUMBER_BYTES = 32 };

/* Reads all of text as strtod() does in the C locale. Returns false and leaves *value unchanged if text is not a
 * number, not finite or out of range. */
bool collet_number_read(const char *text, double *value);

/* Writes value as "%.*g" does in the C locale, with 1 to 17 digits. Returns text. */
const char *collet_number_write(char text[COLLET_NUMBER_BYTES], int digits, double value);

#endif
