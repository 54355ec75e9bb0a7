/* Reads options and environment into struct collet_launch.
 *
 * An option overrides the environment, and COLLET_* overrides the launcher's variables. The store is chosen so:
 *   1. store_callbacks, store or COLLET_STORE, unchanged.
 *   2. If the launcher says that all ranks are on this host: a Unix socket named by user and job.
 *   3. MASTER_ADDR (or OpenPAI's address, or Slurm's first node) with COLLET_PORT, else with MASTER_PORT. If the
 *      launcher's own store uses that port (TORCHELASTIC_USE_AGENT_STORE=True): 16 ports of the 128 above it, chosen by
 *      the job's name.
 *   4. Without any address: a Unix socket.
 * A loopback address without a secret becomes a Unix socket too. It reaches the same processes, and the kernel tells
 * which user they belong to. */
#include <stdio.h>
#include <string.h>

#include "bootstrap/address.h"
#include "bootstrap/environment/launch.h"
#include "bootstrap/environment/launchers.h"
#include "bootstrap/interface.h"
#include "bootstrap/meet/handshake.h"
#include "bootstrap/secret.h"
#include "core/config.h"
#include "core/status.h"

_Static_assert(sizeof(((struct collet_launch *)0)->job) == COLLET_JOB_BYTES, "the handshake carries it whole");

#define MINUTE_NS ((int64_t)60000000000)

static const char *option_or_env(const char *option, const char *name)
{
	return option && *option ? option : collet_env(name);
}

static collet_status read_rank(
	struct collet_launch *launch, const collet_options *options, struct collet_launcher_info *info)
{
	if (options && options->explicit_rank) {
		memset(info, 0, sizeof(*info));
		if (options->world_size == 0 || options->rank >= options->world_size)
			return collet_fail(COLLET_ERR_ARGUMENT, "options: rank %u of a world of %u", options->rank,
				options->world_size);
		info->launcher = "options";
		info->rank = options->rank;
		info->size = options->world_size;
		info->local_rank = options->local_rank;
	} else {
		collet_status status = collet_launcher_read(info);
		if (status)
			return status;
	}
	launch->rank = info->rank;
	launch->size = info->size;
	launch->local_rank = info->local_rank;
	launch->launcher = info->launcher ? info->launcher : "none";
	return COLLET_OK;
}

static collet_status read_job(struct collet_launch *launch, const collet_options *options,
	const struct collet_launcher_info *info)
{
	const char *job = option_or_env(options ? options->job : NULL, "COLLET_JOB");
	if (!job)
		job = info->job[0] ? info->job : "default";
	if (strlen(job) >= sizeof(launch->job))
		return collet_fail(COLLET_ERR_CONFIG, "the job name %.80s is longer than %zu bytes (COLLET_JOB)", job,
			sizeof(launch->job) - 1);
	for (const char *c = job; *c; c++)
		if (*c <= ' ' || *c > '~')
			return collet_fail(
				COLLET_ERR_CONFIG, "a job name has printable ASCII characters only (COLLET_JOB)");
	snprintf(launch->job, sizeof(launch->job), "%s", job);
	return COLLET_OK;
}

static collet_status read_ports(struct collet_launch *launch, const collet_options *options)
{
	const char *text = option_or_env(options ? options->port_range : NULL, "COLLET_PORT_RANGE");
	unsigned first, last;
	int length = 0;
	if (!text)
		return COLLET_OK;
	if (sscanf(text, "%5u-%5u%n", &first, &last, &length) != 2 || text[length] || first == 0 || first > last ||
	    last > UINT16_MAX)
		return collet_fail(
			COLLET_ERR_CONFIG, "the port range '%s' is not FIRST-LAST (COLLET_PORT_RANGE)", text);
	launch->port_first = (uint16_t)first;
	launch->port_last = (uint16_t)last;
	return COLLET_OK;
}

static collet_status read_timeout(int64_t option, const char *name, int64_t default_ns, int64_t *timeout)
{
	*timeout = default_ns;
	if (option == 0)
		return collet_env_timeout(name, timeout);
	if (option < COLLET_NO_TIMEOUT)
		return collet_fail(COLLET_ERR_ARGUMENT, "options: a timeout of %lld ns", (long long)option);
	*timeout = option;
	return COLLET_OK;
}

static collet_status read_interface(struct collet_launch *launch, const collet_options *options)
{
	const char *text = option_or_env(options ? options->interface : NULL, "COLLET_INTERFACE");
	collet_status status = collet_interface_check(text);
	if (status || !text)
		return status;
	if (strlen(text) >= sizeof(launch->interface))
		return collet_fail(COLLET_ERR_CONFIG, "the interface list is longer than %zu bytes (COLLET_INTERFACE)",
			sizeof(launch->interface) - 1);
	snprintf(launch->interface, sizeof(launch->interface), "%s", text);
	return COLLET_OK;
}

/* ---- The store ---- */

static void set_unix_store(struct collet_launch *launch, const char *name)
{
	snprintf(launch->store, sizeof(launch->store), "unix:%.240s", name);
	launch->needs_port_scan = false;
}

static collet_status store_from_launcher(struct collet_launch *launch, const struct collet_launcher_info *info)
{
	const bool one_host = info->has_local && info->local_size == info->size;
	uint64_t port = info->port;
	collet_status status = collet_env_u64("COLLET_PORT", UINT16_MAX, &port);
	if (status)
		return status;
	if (one_host || (!info->host[0] && !info->has_local)) {
		set_unix_store(launch, launch->job);
		return COLLET_OK;
	}
	if (!info->host[0])
		return collet_fail(COLLET_ERR_CONFIG,
			"%s has started %u ranks, %u of them here, and does not say where rank 0 is: set "
			"COLLET_STORE=tcp://HOST_OF_RANK_0:PORT (or MASTER_ADDR and MASTER_PORT), or "
			"COLLET_STORE=file:///SHARED/FOLDER, on "
			"all ranks, and COLLET_JOB if several jobs share it",
			launch->launcher, info->size, info->local_size);
	if (port == 0)
		return collet_fail(COLLET_ERR_CONFIG,
			"the host of rank 0 is known (%s) and its port is not: set COLLET_PORT", info->host);
	launch->needs_port_scan = info->needs_port_scan && !collet_env("COLLET_PORT");
	snprintf(launch->store, sizeof(launch->store),
		strchr(info->host, ':') ? "tcp://[%.240s]:%u" : "tcp://%.240s:%u", info->host, (unsigned)port);
	return COLLET_OK;
}

static collet_status check_store(struct collet_launch *launch, const struct collet_launcher_info *info)
{
	char host[256], name[320];
	uint16_t port;
	if (strncmp(launch->store, "unix:", 5) == 0) {
		if (!launch->store[5])
			return collet_fail(COLLET_ERR_CONFIG, "the store unix: needs a name (COLLET_STORE=unix:NAME)");
		if (info->has_local && info->local_size != info->size)
			return collet_fail(COLLET_ERR_CONFIG,
				"the store %s is for one host, but %s=%u of a world of %u", launch->store,
				info->local_size_name, info->local_size, info->size);
		return COLLET_OK;
	}
	if (strncmp(launch->store, "file:///", 8) == 0)
		return COLLET_OK;
	if (strncmp(launch->store, "tcp://", 6) != 0 ||
	    !collet_host_port_parse(launch->store + 6, host, sizeof(host), &port))
		return collet_fail(COLLET_ERR_CONFIG,
			"the store '%s' is none of tcp://HOST:PORT, tcp://[IPv6]:PORT, file:///FOLDER, "
			"unix:NAME (COLLET_STORE)",
			launch->store);
	if (launch->secret_bytes)
		return COLLET_OK;
	if (!collet_host_is_loopback(host)) {
		snprintf(name, sizeof(name), "the ranks meet over the network, at %.256s", launch->store);
		return collet_fail_no_secret(name);
	}
	snprintf(name, sizeof(name), "port-%u-%.64s", port, launch->job);
	set_unix_store(launch, name);
	return COLLET_OK;
}

static collet_status read_store(struct collet_launch *launch, const collet_options *options,
	const struct collet_launcher_info *info)
{
	if (launch->size == 1)
		return COLLET_OK;  /* needs no store */
	launch->store_callbacks = options ? options->store_callbacks : NULL;
	if (launch->store_callbacks)
		return COLLET_OK;
	const char *text = option_or_env(options ? options->store : NULL, "COLLET_STORE");
	if (text && strlen(text) >= sizeof(launch->store))
		return collet_fail(COLLET_ERR_CONFIG, "the store's name is longer than %zu bytes (COLLET_STORE)",
			sizeof(launch->store) - 1);
	if (text)
		snprintf(launch->store, sizeof(launch->store), "%s", text);
	collet_status status = text ? COLLET_OK : store_from_launcher(launch, info);
	return status ? status : check_store(launch, info);
}

collet_status collet_launch_read(struct collet_launch *out, const collet_options *options)
{
	struct collet_launch launch = { 0 };
	struct collet_launcher_info info;
	collet_status status = read_rank(&launch, options, &info);
	if (!status)
		status = read_job(&launch, options, &info);
	if (!status)
		status = collet_secret_read(&launch, options);
	if (!status)
		status = read_interface(&launch, options);
	if (!status)
		status = read_ports(&launch, options);
	if (!status)
		status = read_timeout(
			options ? options->timeout_ns : 0, "COLLET_TIMEOUT", 30 * MINUTE_NS, &launch.timeout_ns);
	if (!status)
		status = read_timeout(options ? options->rendezvous_timeout_ns : 0, "COLLET_RENDEZVOUS_TIMEOUT",
			5 * MINUTE_NS, &launch.rendezvous_timeout_ns);
	if (!status)
		status = read_store(&launch, options, &info);
	if (!status)
		*out = launch;
	else
		out->rank = launch.rank;
	return status;
}
