/* Addresses of freed GPU memory. They stay reserved, so that no host memory is placed there, and accesses to freed
 * memory are recognised. The next allocation of that size reuses them. */
#include "fake.h"

#include <stdlib.h>
#include <sys/mman.h>

struct vacant {
	struct vacant *next;
	cu_pointer first;
	size_t bytes;
};

static struct vacant *vacants; /* the last one first; under fake_lock */

void fake_vacate(cu_pointer first, size_t bytes)
{
	struct vacant *vacant = malloc(sizeof(*vacant));
	if (!vacant || mmap((void *)(uintptr_t)first, bytes, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();
	pthread_mutex_lock(&fake_lock);
	*vacant = (struct vacant){ vacants, first, bytes };
	vacants = vacant;
	pthread_mutex_unlock(&fake_lock);
}

cu_pointer fake_occupy(size_t bytes)
{
	pthread_mutex_lock(&fake_lock);
	struct vacant **at = &vacants;
	while (*at && (*at)->bytes != bytes)
		at = &(*at)->next;
	struct vacant *found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&fake_lock);
	const cu_pointer first = found ? found->first : 0;
	free(found);
	return first;
}

bool fake_is_vacant(cu_pointer pointer)
{
	for (const struct vacant *vacant = vacants; vacant; vacant = vacant->next)
		if (pointer >= vacant->first && pointer < vacant->first + vacant->bytes)
			return true;
	return fake_is_reserved(pointer);
}

/* Nobody else frees them after a test has closed the driver. Locks for ThreadSanitizer: another thread may have freed
 * the memory than the one that closes the driver. */
__attribute__((destructor)) static void forget(void)
{
	pthread_mutex_lock(&fake_lock);
	for (struct vacant *vacant = vacants, *next; vacant; vacant = next) {
		next = vacant->next;
		free(vacant);
	}
	pthread_mutex_unlock(&fake_lock);
}
