/* Copies memory between ranks, with a say in what that does to the caches. memcpy() decides by size and alignment, and
 * knows nothing of another core that has read these lines or will write them. */
#ifndef COLLET_CORE_COPY_H
#define COLLET_CORE_COPY_H

#include <stddef.h>

enum {
	/* Store past the caches: for a destination that this core does not read soon. */
	COLLET_COPY_NONTEMPORAL = 1 << 0,
	/* Overwrite a word of each source line. For source lines that another core writes next: it then finds no copy
	 * of them in this core's caches that is only read. The source must start a line. */
	COLLET_COPY_TOUCH = 1 << 1
};

/* Copies bytes forward. The buffers must not overlap. flags: COLLET_COPY_*. */
void collet_copy(void *to, const void *from, size_t bytes, unsigned flags);

/* Overwrites a word of each line: what COLLET_COPY_TOUCH does. */
void collet_touch(void *lines, size_t bytes);

#endif
