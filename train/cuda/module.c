/* Finds and opens the module: beside this program in the build, or where it is installed. The libraries it needs are
 * opened first, by the names it was built against. So an error names the missing library. */
#include "cuda/layers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef TRAIN_CUDA_LIBRARIES

static bool open_libraries(char why[LAYERS_WHY_BYTES])
{
	static const char *const names[] = { TRAIN_CUDA_LIBRARIES };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		/* Global: the module's calls are resolved by what has been opened. */
		if (dlopen(names[i], RTLD_LAZY | RTLD_GLOBAL))
			continue;
		const char *words = dlerror();
		snprintf(why, LAYERS_WHY_BYTES, "%s cannot be opened: %s", names[i], words ? words : "no reason given");
		return false;
	}
	return true;
}

static void *open_module(char why[LAYERS_WHY_BYTES])
{
	char own[3072], file[3200];
	const ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
	own[length > 0 ? length : 0] = '\0';
	char *slash = strrchr(own, '/');
	if (slash)
		slash[1] = '\0';
	snprintf(file, sizeof(file), "%s%s", own, LAYERS_MODULE);
	if (access(file, R_OK) != 0)
		snprintf(file, sizeof(file), "%s/%s", TRAIN_CUDA_INSTALLED, LAYERS_MODULE);
	void *module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!module) {
		const char *words = dlerror();
		snprintf(why, LAYERS_WHY_BYTES, "%.400s", words ? words : file);
	}
	return module;
}

const struct layers_table *layers_open(char why[LAYERS_WHY_BYTES])
{
	void *module = open_libraries(why) ? open_module(why) : NULL;
	const struct layers_table *table = module ? dlsym(module, LAYERS_SYMBOL) : NULL;
	if (module && !table)
		snprintf(why, LAYERS_WHY_BYTES, "%s has no %s", LAYERS_MODULE, LAYERS_SYMBOL);
	return table;
}

#else

const struct layers_table *layers_open(char why[LAYERS_WHY_BYTES])
{
	snprintf(why, LAYERS_WHY_BYTES, "this collet-train was built where cuDNN and cuBLAS were not");
	return NULL;
}

#endif
