/* Reports errors: a status for programs, and one sentence per thread for people. */
#ifndef COLLET_CORE_STATUS_H
#define COLLET_CORE_STATUS_H

#include <collet/collet.h>

/* Sets this thread's sentence and returns status: `return collet_fail(STATUS, "...", ...)`. The sentence says what
 * failed, where, with which peer, and what to try. It has no final full stop and no newline. */
collet_status collet_fail(collet_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts the formatted text and ": " before this thread's sentence. An outer layer adds a rank and host in this way. */
void collet_error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sets this thread's sentence to a copy of another one, such as a communicator's sticky error. */
collet_status collet_fail_copy(collet_status status, const char *error_text);

/* The longest sentence, with its NUL. */
enum { COLLET_ERROR_BYTES = 1024 };

#endif
