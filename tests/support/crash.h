/* Where a process of a test has crashed. cmocka says that of its own thread alone: on any other, its handler ends the
 * process with nothing but the signal's name. */
#ifndef TESTS_SUPPORT_CRASH_H
#define TESTS_SUPPORT_CRASH_H

/* From here on, and until cmocka begins its next test, a fault on any thread writes what this process is (name, static
 * storage or as long as the process; NULL: the one before), the signal, the address and the stack to stderr, and the
 * process dies of it. */
void crash_tell(const char *name);

#endif
