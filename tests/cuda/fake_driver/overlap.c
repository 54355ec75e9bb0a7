/* FAKE_CUDA_IN_BEFORE_OUT: blocks programs that copy their whole input to the host before any result goes back. A
 * program that passes has overlapped the two, however fast or slow the machine is. */
#include "stream.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t brought; /* bytes since the last copy in the other direction */

size_t fake_copies_ahead(void)
{
	const char *allowed = getenv("FAKE_CUDA_IN_BEFORE_OUT");
	return allowed ? strtoul(allowed, NULL, 10) : 0;
}

static bool is_device(cu_pointer pointer)
{
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find(pointer);
	const bool device = block && block->kind != FAKE_PINNED;
	pthread_mutex_unlock(&fake_lock);
	return device;
}

void fake_copy_waits(cu_pointer to, cu_pointer from, size_t bytes, size_t ahead)
{
	const bool in = is_device(from) && !is_device(to), out = is_device(to) && !is_device(from);
	if (!ahead || in == out)
		return;
	pthread_mutex_lock(&lock);
	while (in && brought + bytes > ahead)
		pthread_cond_wait(&changed, &lock);
	brought = in ? brought + bytes : 0;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}
