#include "bootstrap/identity.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bootstrap/crypto.h"
#include "core/config.h"
#include "core/cpu.h"
#include "core/status.h"
#include "topology/cores.h"
#include "topology/locality.h"

/* Reads a file of /proc as a string, "" if that fails. */
static void read_text(const char *path, char *text, size_t bytes)
{
	text[0] = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t got = read(fd, text, bytes - 1);
	close(fd);
	text[got > 0 ? got : 0] = 0;
}

static unsigned long long inode_of(const char *path)
{
	struct stat info;
	return stat(path, &info) == 0 ? (unsigned long long)info.st_ino : 0;
}

/* Hashes a text to 64 bits. */
static collet_status digest(const char *text, uint64_t *id)
{
	uint8_t mac[COLLET_MAC_BYTES];
	collet_status status = collet_mac(mac, "id", 2, text, strlen(text));
	if (!status)
		memcpy(id, mac, sizeof(*id));
	return status;
}

collet_status collet_host_id(uint64_t *id)
{
	char text[512], boot[64];
	const char *given = collet_env("COLLET_HOST_ID");
	if (given) {
		snprintf(text, sizeof(text), "given:%s", given);
		return digest(text, id);
	}
	read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	if (!boot[0])
		gethostname(boot, sizeof(boot) - 1);
	boot[sizeof(boot) - 1] = 0;
	snprintf(text, sizeof(text), "%s:%llu", boot, inode_of("/proc/self/ns/net"));
	return digest(text, id);
}

/* Returns field 22 of /proc/PID/stat, or 0 if there is no such process. Parses from the last ')', because the program's
 * name in field 2 may contain anything. */
static unsigned long long start_time(const char *pid)
{
	char text[1024], path[64];
	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	read_text(path, text, sizeof(text));
	const char *at = strrchr(text, ')');
	unsigned long long ticks = 0;
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (at)
		sscanf(at, "%llu", &ticks);
	return ticks;
}

static collet_status hash_process(uint64_t host_id, const char *name, long pid, uint64_t *id)
{
	char text[160];
	snprintf(text, sizeof(text), "%llx:%llu:%llu:%ld", (unsigned long long)host_id, inode_of("/proc/self/ns/pid"),
		start_time(name), pid);
	return digest(text, id);
}

collet_status collet_process_id(uint64_t host_id, uint64_t *id)
{
	return hash_process(host_id, "self", (long)getpid(), id);
}

bool collet_process_matches(uint64_t host_id, uint32_t pid, uint64_t id)
{
	char name[16];
	uint64_t found;
	snprintf(name, sizeof(name), "%u", pid);
	return hash_process(host_id, name, (long)pid, &found) == COLLET_OK && found == id;
}

collet_status collet_peer_info_fill_host(struct collet_peer_info *info)
{
	info->pid = (uint32_t)getpid();
	info->uid = (uint32_t)geteuid();
	info->usable_cores = collet_usable_cores();
	info->quota_cores = (uint16_t)collet_quota_cores();
	info->host_cores = (uint16_t)info->usable_cores;
	info->locality = collet_locality_any();
	const int cpu = sched_getcpu();
	info->cpu = cpu >= 0 && cpu < UINT16_MAX ? (uint16_t)(cpu + 1) : 0;
	memset(info->host, 0, sizeof(info->host));
	if (gethostname(info->host, sizeof(info->host) - 1) < 0)
		snprintf(info->host, sizeof(info->host), "?");
	bool allows_cma = collet_cpu_is_intel();
	collet_status status = collet_env_bool("COLLET_SHM_CMA", &allows_cma);
	info->allows_cma = status == COLLET_OK && allows_cma;
	if (status == COLLET_OK)
		status = collet_host_id(&info->host_id);
	return status ? status : collet_process_id(info->host_id, &info->process_id);
}
