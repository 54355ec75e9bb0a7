#include "core/fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool collet_fence_register(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void collet_fence_all(void)
{
	static const struct timespec drain_time = { .tv_nsec = 10 * 1000 * 1000 };
	/* The first call fails without memory, or if a system call filter now forbids it. The second one is slow. */
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0 ||
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0)
		return;
	/* Every processor makes its stores visible within this time. */
	nanosleep(&drain_time, NULL);
}
