/* Reports errors: one line on standard error where the mistake is found, then `false` all the way up. */
#ifndef TRAIN_ERROR_H
#define TRAIN_ERROR_H

#include <stdbool.h>

#include <collet/collet.h>

/* Prints "collet-train: sentence" and returns false, so that a failure reads `return train_fail("...", ...)`. */
bool train_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns true if the name is one of names, which end with NULL. Else prints which there are, and which was meant.
 * what: "model", say. */
bool train_check_name(const char *what, const char *name, const char *const *names);

/* Returns true if a call of collet succeeded; else prints what it was for, and its sentence. */
bool train_check(collet_status status, const char *what);

#endif
