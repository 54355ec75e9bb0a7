/* Reports where a process of a test has crashed. cmocka does that for its own thread only. On any other thread its
 * handler ends the process with nothing but the signal's name. */
#ifndef TESTS_SUPPORT_CRASH_H
#define TESTS_SUPPORT_CRASH_H

/* Reports faults on any thread until cmocka begins its next test. A fault writes the process's name, the signal, the
 * address and the stack to stderr, and ends the process. name must live as long as the process; NULL keeps the one
 * before. */
void crash_tell(const char *name);

#endif
