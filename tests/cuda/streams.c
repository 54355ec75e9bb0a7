#include "streams.h"

#include <dlfcn.h>
#include <string.h>

bool streams_find(struct streams *streams, const struct program *program)
{
	bool all = true;
#define STREAM_FIND(name)                                                                                              \
	do {                                                                                                           \
		void *address = dlsym(program->driver, #name);                                                         \
		memcpy(&streams->name, &address, sizeof(address));                                                     \
		all = all && address;                                                                                  \
	} while (0);
	STREAM_FUNCTIONS(STREAM_FIND)
#undef STREAM_FIND
	return all;
}
