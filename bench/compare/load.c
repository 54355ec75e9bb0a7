/* Reads /proc: stat for the machine, net/dev for lo, schedstat of every thread of the ranks. The time of a process
 * that has ended looks like other load, but its library is out of the comparison anyway. */
#include "load.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"

static double tick_ns(void)
{
	return 1e9 / (double)sysconf(_SC_CLK_TCK);
}

/* Idle time of all processors. The kernel knows it to the nanosecond and tells ticks; the time that is not idle it only
 * samples. */
static double idle_ns(void)
{
	unsigned long long idle = 0, iowait = 0;
	FILE *file = fopen("/proc/stat", "re");
	if (file == NULL)
		return 0;
	const bool read = fscanf(file, "cpu %*u %*u %*u %llu %llu", &idle, &iowait) == 2;
	fclose(file);
	return read ? (double)(idle + iowait) * tick_ns() : 0;
}

static uint64_t loopback_bytes(void)
{
	char line[512];
	uint64_t bytes = 0;
	FILE *file = fopen("/proc/net/dev", "re");
	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL) {
		const char *name = line + strspn(line, " ");
		if (strncmp(name, "lo:", 3) == 0)
			bytes = strtoull(name + 3, NULL, 10);
	}
	fclose(file);
	return bytes;
}

/* Reads one thread: its running time, its ready time, and how often it was put on a core. */
static void read_thread(struct bench_load_mark *mark, pid_t pid, const char *thread)
{
	unsigned long long ran, waited, starts;
	char path[96];
	snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", (int)pid, thread);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return;
	if (fscanf(file, "%llu %llu %llu", &ran, &waited, &starts) == 3) {
		mark->own_ns += (double)ran;
		if (strtol(thread, NULL, 10) == pid) {
			mark->waited_ns += (double)waited;
			mark->starts += starts;
		} else {
			mark->helpers_ns += (double)ran;
		}
	}
	fclose(file);
}

static void read_rank(struct bench_load_mark *mark, pid_t pid)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	if (threads == NULL)
		return;
	for (struct dirent *entry; (entry = readdir(threads)) != NULL;)
		if (entry->d_name[0] != '.')
			read_thread(mark, pid, entry->d_name);
	closedir(threads);
}

static double cpu_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

void bench_load_read(struct bench_load_mark *mark, const pid_t *ranks, uint32_t count)
{
	*mark = (struct bench_load_mark){ .own_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID),
		.loopback_bytes = loopback_bytes() };
	for (uint32_t r = 0; r < count; r++)
		read_rank(mark, ranks[r]);
	mark->idle_ns = idle_ns();
	mark->clock_ns = (double)bench_clock_ns();
}

void bench_load_read_self(struct bench_load_mark *mark)
{
	unsigned long long ran, waited, starts;
	*mark = (struct bench_load_mark){ .own_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) };
	mark->helpers_ns = mark->own_ns - cpu_ns(CLOCK_THREAD_CPUTIME_ID);
	FILE *file = fopen("/proc/thread-self/schedstat", "re");
	if (file != NULL && fscanf(file, "%llu %llu %llu", &ran, &waited, &starts) == 3) {
		mark->waited_ns = (double)waited;
		mark->starts = starts;
	}
	if (file != NULL)
		fclose(file);
	mark->idle_ns = idle_ns();
	mark->clock_ns = (double)bench_clock_ns();
}

struct bench_load bench_load_between(
	const struct bench_load_mark *before, const struct bench_load_mark *after, bool pinned)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	return (struct bench_load){
		.window_ns = after->clock_ns - before->clock_ns,
		.cpus = cpus > 0 ? (uint32_t)cpus : 1,
		.idle_ns = after->idle_ns - before->idle_ns,
		.tick_ns = tick_ns(),
		.own_ns = after->own_ns - before->own_ns,
		.pinned = pinned,
		.waited_ns = after->waited_ns - before->waited_ns,
		.helpers_ns = after->helpers_ns - before->helpers_ns,
		.starts = after->starts - before->starts,
	};
}
