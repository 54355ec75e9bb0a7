/* Counts what a process holds, by the entries of a folder of /proc/self: fd, task. */
#ifndef COLLET_TESTS_SUPPORT_ENTRIES_H
#define COLLET_TESTS_SUPPORT_ENTRIES_H

#include <stdint.h>

/* Returns the number of entries, also those that every folder has; 0 if the folder cannot be read. */
uint32_t count_entries(const char *folder);

#endif
