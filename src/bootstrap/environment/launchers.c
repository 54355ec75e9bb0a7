/* Reads the variables of each launcher: one function per launcher, and a table of them at the end. */
#include "bootstrap/environment/launchers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "bootstrap/crypto.h"
#include "core/config.h"
#include "core/status.h"

/* ---- Helpers ---- */

static collet_status read_u32(const char *name, uint32_t max, uint32_t *value)
{
	uint64_t wide = *value;
	collet_status status = collet_env_u64(name, max, &wide);
	if (!status)
		*value = (uint32_t)wide;
	return status;
}

/* Reads rank and size: both variables must be set, or none. */
static collet_status read_world(
	struct collet_launcher_info *info, const char *launcher, const char *rank, const char *size)
{
	const char *rank_text = collet_env(rank), *size_text = collet_env(size);
	if (!rank_text && !size_text)
		return COLLET_OK;
	if (!rank_text || !size_text)
		return collet_fail(COLLET_ERR_CONFIG, "%s=%s is set and %s is not: %s sets both",
			rank_text ? rank : size, rank_text ? rank_text : size_text, rank_text ? size : rank, launcher);
	collet_status status = read_u32(rank, UINT32_MAX, &info->rank);
	if (!status)
		status = read_u32(size, 1u << 24, &info->size);
	if (status)
		return status;
	if (info->rank >= info->size)
		return collet_fail(COLLET_ERR_CONFIG, "%s=%u is not below %s=%u", rank, info->rank, size, info->size);
	info->launcher = launcher;
	return COLLET_OK;
}

/* Reads local rank and size. They are optional, but must be consistent. */
static collet_status read_local(struct collet_launcher_info *info, const char *rank, const char *size)
{
	const bool has_rank = collet_env(rank) != NULL, has_size = collet_env(size) != NULL;
	collet_status status = read_u32(rank, UINT32_MAX, &info->local_rank);
	if (!status)
		status = read_u32(size, 1u << 24, &info->local_size);
	if (status)
		return status;
	if (has_size && (info->local_size == 0 || info->local_size > info->size ||
				(has_rank && info->local_rank >= info->local_size)))
		return collet_fail(COLLET_ERR_CONFIG, "%s=%u contradicts %s=%u in a world of %u", rank,
			info->local_rank, size, info->local_size, info->size);
	info->has_local = has_rank && has_size;
	info->local_size_name = size;
	return COLLET_OK;
}

/* Makes a job name that fits, by hashing texts of any length and with any characters. */
static collet_status name_job(struct collet_launcher_info *info, const char *prefix, const char *a, const char *b)
{
	char text[2048], hex[33];
	uint8_t mac[COLLET_MAC_BYTES];
	snprintf(text, sizeof(text), "%s|%s", a ? a : "", b ? b : "");
	collet_status status = collet_mac(mac, "job", 3, text, strlen(text));
	if (status)
		return status;
	collet_hex(hex, mac, 16);
	snprintf(info->job, sizeof(info->job), "%s-%s", prefix, hex);
	return COLLET_OK;
}

static collet_status read_address(struct collet_launcher_info *info, const char *host_name, const char *port_name)
{
	const char *host = collet_env(host_name), *port = collet_env(port_name);
	uint32_t number = 0;
	if (!host && !port)
		return COLLET_OK;
	if (!host || (!port && !collet_env("COLLET_PORT")))
		return collet_fail(COLLET_ERR_CONFIG,
			"%s is set and %s is not: set both, or COLLET_STORE=tcp://HOST:PORT",
			host ? host_name : port_name, host ? port_name : host_name);
	if (strlen(host) >= sizeof(info->host))
		return collet_fail(COLLET_ERR_CONFIG, "%s is too long for a host name", host_name);
	collet_status status = read_u32(port_name, UINT16_MAX, &number);
	if (status)
		return status;
	if (port && number == 0)
		return collet_fail(COLLET_ERR_CONFIG, "%s=0 is no port", port_name);
	snprintf(info->host, sizeof(info->host), "%s", host);
	info->port = (uint16_t)number;
	return COLLET_OK;
}

/* ---- torchrun, Kubernetes' PyTorchJob, collet-run ---- */

static collet_status read_torchrun(struct collet_launcher_info *info)
{
	if (!collet_env("RANK") && collet_env("PAI_TASK_INDEX"))
		return COLLET_OK;  /* OpenPAI's users often set WORLD_SIZE too */
	collet_status status = read_world(info, "torchrun", "RANK", "WORLD_SIZE");
	if (status || !info->launcher)
		return status;
	status = read_local(info, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
	if (!status)
		status = read_address(info, "MASTER_ADDR", "MASTER_PORT");
	if (status)
		return status;
	const char *agent = collet_env("TORCHELASTIC_USE_AGENT_STORE"), *run = collet_env("TORCHELASTIC_RUN_ID");
	info->needs_port_scan = agent && (strcasecmp(agent, "true") == 0 || strcmp(agent, "1") == 0);
	/* Two runs on one host have different ports, since they could not run otherwise. A restart has a new count. */
	char restart[300];
	snprintf(restart, sizeof(restart), "%.255s:%u", collet_env("TORCHELASTIC_RESTART_COUNT") ?
		collet_env("TORCHELASTIC_RESTART_COUNT") : "0", info->port);
	return run || info->port ? name_job(info, "torch", run, restart) : COLLET_OK;
}

/* ---- Open MPI (orted, and PRRTE from version 5 on) ---- */

static collet_status read_open_mpi(struct collet_launcher_info *info)
{
	collet_status status = read_world(info, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
	if (status || !info->launcher)
		return status;
	status = read_local(info, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
	if (!status)
		status = read_address(info, "MASTER_ADDR", "MASTER_PORT");
	/* These contain mpirun's address and number, which are the same on all hosts. */
	const char *space = collet_env("PMIX_NAMESPACE"), *uri = collet_env("OMPI_MCA_orte_hnp_uri");
	if (!status && (space || uri))
		status = name_job(info, "ompi", space, uri);
	return status;
}

/* ---- Slurm ---- */

/* Takes the first host of a list: "node[07-09,12],x" gives "node07", and "a,b" gives "a". Returns false if the list has
 * another form. */
static bool first_host(const char *list, char *host, size_t bytes)
{
	size_t length = strcspn(list, ",[");
	size_t digits = 0;
	const char *from = list + length;
	if (*from == '[') {
		from++;
		digits = strspn(from, "0123456789");
		if (digits == 0)
			return false;
	}
	if (length + digits == 0 || length + digits >= bytes)
		return false;
	memcpy(host, list, length);
	memcpy(host + length, from, digits);
	host[length + digits] = 0;
	return true;
}

static collet_status read_slurm(struct collet_launcher_info *info)
{
	const char *size = collet_env("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
	if (!collet_env("SLURM_PROCID"))
		return COLLET_OK;  /* SLURM_NTASKS alone: inside an allocation, but not started by srun */
	collet_status status = read_world(info, "Slurm", "SLURM_PROCID", size);
	if (!status)
		status = read_u32("SLURM_LOCALID", UINT32_MAX, &info->local_rank);
	if (!status)
		status = read_address(info, "MASTER_ADDR", "MASTER_PORT");
	if (status)
		return status;
	const char *nodes =
		collet_env("SLURM_STEP_NUM_NODES") ? collet_env("SLURM_STEP_NUM_NODES") : collet_env("SLURM_NNODES");
	if (nodes && strcmp(nodes, "1") == 0) {
		info->has_local = true;
		info->local_size = info->size;
		info->local_size_name = "SLURM_NNODES";
	}
	const char *job = collet_env("SLURM_JOB_ID"), *step = collet_env("SLURM_STEP_ID");
	if (job)
		status = name_job(info, "slurm", job, step);
	const char *list =
		collet_env("SLURM_STEP_NODELIST") ? collet_env("SLURM_STEP_NODELIST") : collet_env("SLURM_NODELIST");
	if (!status && !info->host[0] && !info->has_local && job && list &&
		first_host(list, info->host, sizeof(info->host))) {
		/* Rank 0 runs on the first node. Slurm reserves no port: take one from the job's number, and scan above
		 * it. */
		info->port = (uint16_t)(20000 + strtoul(job, NULL, 10) % 10000);
		info->needs_port_scan = true;
	}
	return status;
}

/* ---- MPICH's hydra and its relatives (Intel MPI, MVAPICH), and other PMI-1 launchers ---- */

/* Writes pid and start time of hydra's proxy, the common ancestor of all ranks on one host. hydra itself gives its jobs
 * no name. */
static bool proxy_of_hydra(char *text, size_t bytes)
{
	long pid = getppid();
	for (int depth = 0; depth < 16 && pid > 1; depth++) {
		char path[64], stat[1024];
		snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
		FILE *file = fopen(path, "re");
		if (!file)
			return false;
		size_t got = fread(stat, 1, sizeof(stat) - 1, file);
		fclose(file);
		stat[got] = 0;
		char *open = strchr(stat, '('), *close = strrchr(stat, ')');
		long parent = 0;
		if (!open || !close || sscanf(close + 1, " %*c %ld", &parent) != 1)
			return false;
		*close = 0;
		if (strncmp(open + 1, "hydra", 5) == 0) {
			const char *start = close + 1;
			for (int field = 2; start && field < 22; field++)
				start = strchr(start + 1, ' ');
			snprintf(text, bytes, "%ld:%.32s", pid, start ? start : "");
			char *space = strchr(text + strcspn(text, ":") + 2, ' ');
			if (space)
				*space = 0;  /* the fields after the start time change */
			return true;
		}
		pid = parent;
	}
	return false;
}

static collet_status read_mpich(struct collet_launcher_info *info)
{
	collet_status status = read_world(info, "MPICH", "PMI_RANK", "PMI_SIZE");
	if (status || !info->launcher)
		return status;
	status = read_local(info, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
	if (!status)
		status = read_address(info, "MASTER_ADDR", "MASTER_PORT");
	if (status)
		return status;
	char proxy[64];
	if (collet_env("PMI_JOBID"))
		return name_job(info, "pmi", collet_env("PMI_JOBID"), NULL);
	if (info->has_local && info->local_size == info->size && proxy_of_hydra(proxy, sizeof(proxy)))
		return name_job(info, "hydra", proxy, NULL);
	return COLLET_OK;
}

/* ---- OpenPAI ---- */

/* Reads the number of workers from a variable, or counts those that have an address. */
static collet_status count_workers(struct collet_launcher_info *info)
{
	static const char *const names[] = { "PAI_TASK_ROLE_TASK_COUNT_worker", "WORLD_SIZE" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (collet_env(names[i]))
			return read_world(info, "OpenPAI", "PAI_TASK_INDEX", names[i]);
	char name[64];
	uint32_t count = 0;
	for (;; count++) {
		snprintf(name, sizeof(name), "PAI_HOST_IP_worker_%u", count);
		if (!collet_env(name))
			break;
	}
	collet_status status = read_u32("PAI_TASK_INDEX", UINT32_MAX, &info->rank);
	if (status)
		return status;
	if (info->rank >= count)
		return collet_fail(COLLET_ERR_CONFIG,
			"PAI_TASK_INDEX=%u is set, and neither PAI_TASK_ROLE_TASK_COUNT_worker nor "
			"PAI_HOST_IP_worker_%u",
			info->rank, info->rank);
	info->size = count;
	info->launcher = "OpenPAI";
	return COLLET_OK;
}

static collet_status read_openpai(struct collet_launcher_info *info)
{
	if (!collet_env("PAI_TASK_INDEX"))
		return COLLET_OK;
	collet_status status = count_workers(info);
	if (!status)
		status = read_address(info, "PAI_HOST_IP_worker_0", "PAI_worker_0_SynPort_PORT");
	if (!status && collet_env("PAI_JOB_NAME"))
		status = name_job(info, "pai", collet_env("PAI_JOB_NAME"), collet_env("PAI_USER_NAME"));
	return status;
}

collet_status collet_launcher_read(struct collet_launcher_info *info)
{
	static collet_status (*const readers[])(struct collet_launcher_info *) = {
		read_torchrun, read_open_mpi, read_slurm, read_mpich, read_openpai,
	};
	for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
		memset(info, 0, sizeof(*info));
		collet_status status = readers[i](info);
		if (status || info->launcher)
			return status;
	}
	info->size = 1;
	return COLLET_OK;
}
