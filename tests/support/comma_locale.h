/* A locale with a decimal comma, for tests of what programs exchange as text. */
#ifndef TESTS_SUPPORT_COMMA_LOCALE_H
#define TESTS_SUPPORT_COMMA_LOCALE_H

#include <stdbool.h>

/* Sets the locale of the process to one with a decimal comma, which localedef compiles into a temporary folder. False:
 * this machine has no localedef, or it failed; the locale is as before. */
bool comma_locale_set(void);

/* Sets it if the program was called with the argument "comma". Where that is impossible, ends the program with status
 * 77, which meson counts as skipped. */
void comma_locale_from(int argc, char **argv);

#endif
