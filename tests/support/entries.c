#include "entries.h"

#include <dirent.h>

uint32_t count_entries(const char *folder)
{
	DIR *directory = opendir(folder);
	uint32_t entries = 0;
	while (directory && readdir(directory))
		entries++;
	if (directory)
		closedir(directory);
	return entries;
}
