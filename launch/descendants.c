/* Finds child processes. A kernel may lack /proc/PID/task/TID/children, so this reads the parent in every process's
 * stat. It runs only while a job that left processes behind is being ended. */
#include "descendants.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

bool descendants_adopt(void)
{
	return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

/* Returns the parent of a process; 0 if the process is gone. */
static pid_t parent_of(const char *process)
{
	char path[64], line[512];
	snprintf(path, sizeof(path), "/proc/%.20s/stat", process);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return 0;
	const size_t got = fread(line, 1, sizeof(line) - 1, file);
	fclose(file);
	line[got] = '\0';
	/* "PID (NAME) STATE PARENT ...", where the name may hold spaces and parentheses. */
	const char *after_name = strrchr(line, ')');
	int parent = 0;
	char state;
	if (after_name == NULL || sscanf(after_name + 1, " %c %d", &state, &parent) != 2)
		return 0;
	return parent;
}

unsigned descendants_signal(int signal_number)
{
	DIR *processes = opendir("/proc");
	if (processes == NULL)
		return 0;
	const pid_t self = getpid();
	unsigned count = 0;
	for (const struct dirent *entry = readdir(processes); entry != NULL; entry = readdir(processes)) {
		const char *name = entry->d_name;
		if (name[0] < '1' || name[0] > '9' || parent_of(name) != self)
			continue;
		(void)kill((pid_t)strtol(name, NULL, 10), signal_number);
		count++;
	}
	closedir(processes);
	return count;
}
