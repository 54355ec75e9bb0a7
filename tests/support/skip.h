/* Skips a test for want of something that this machine lacks. Include it after cmocka.h. */
#ifndef COLLET_TESTS_SUPPORT_SKIP_H
#define COLLET_TESTS_SUPPORT_SKIP_H

/* Prints the reason, which is a format like printf()'s, and skips the test. A macro, because cmocka's skip() prints the
 * file and line where it stands. */
#define skip_because(...) (print_message("skipped: "), print_message(__VA_ARGS__), print_message("\n"), skip())

#endif
