#include "host_form.h"

#include "cuda/kernels/entry_points.h"

static const struct host_kernel kernels[] = {
#define ROW(name) { "collet_" #name, run_##name, argument_bytes_##name },
	COLLET_GPU_KERNELS(ROW)
#undef ROW
};

const struct host_kernel *host_kernel_find(const char *name)
{
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (strcmp(kernels[i].name, name) == 0)
			return &kernels[i];
	return NULL;
}
