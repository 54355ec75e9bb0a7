#include "core/fence.h"

#include <assert.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool collet_fence_join(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void collet_fence_all(void)
{
	/* It cannot fail once this process has registered. */
	const long failed = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
	assert(failed == 0);
	(void)failed;
}
