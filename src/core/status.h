/* Errors: one status, and one sentence a thread for people. */
#ifndef COLLET_CORE_STATUS_H
#define COLLET_CORE_STATUS_H

#include <collet/collet.h>

/* Sets this thread's sentence and returns status, so that a failure reads `return collet_fail(STATUS, "...", ...)`.
 * The sentence says what failed, where, with whom, and what to try; without a final full stop or newline. */
collet_status collet_fail(collet_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "who: " before this thread's sentence, e.g. the rank and host that only an outer layer knows. */
void collet_error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sets the sentence to a copy of one kept elsewhere (a communicator's sticky error). */
collet_status collet_fail_copy(collet_status status, const char *sentence);

/* Longest sentence, with its NUL. */
enum { COLLET_ERROR_BYTES = 1024 };

#endif
