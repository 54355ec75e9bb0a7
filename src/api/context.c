/* Creates a context from options and environment, for a rank that can then reach all others; frees contexts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/agreement.h"
#include "api/context.h"
#include "api/offload.h"
#include "api/on_end.h"
#include "api/unknown_variables.h"
#include "bootstrap/identity.h"
#include "control/control.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/cpu.h"
#include "core/status.h"
#include "engine/connection_manager.h"
#include "engine/progress_thread.h"
#include "selection/choice.h"
#include "topology/host_topology.h"
#include "transport/registry.h"

/* Maps a page that a fork fills with zeros in the child, so that noticing a fork costs one load. */
static collet_status make_fork_mark(struct collet_context *context)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *mark = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mark == MAP_FAILED)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a context");
	if (madvise(mark, page, MADV_WIPEONFORK) != 0) {
		const int error = errno;
		munmap(mark, page);
		return collet_fail(COLLET_ERR_SYSTEM, "madvise(MADV_WIPEONFORK): %s; Linux 4.14 or newer is needed",
			strerror(error));
	}
	*mark = 1;
	context->fork_mark = mark;
	return COLLET_OK;
}

static const char *option_or_env(const char *option, const char *variable)
{
	return option ? option : collet_env(variable);
}

static collet_status read_log_level(struct collet_context *context)
{
	const char *log = collet_env("COLLET_LOG");
	const int level = log ? collet_log_level_parse(log) : COLLET_LOG_NONE;
	if (level < 0)
		return collet_fail(COLLET_ERR_CONFIG, "COLLET_LOG=%s is none of none, error, warn, info, debug", log);
	context->engine.log.level = (enum collet_log_level)level;
	return COLLET_OK;
}

/* Reads all settings except those of the log and of the bootstrap. */
static collet_status read_settings(struct collet_context *context, const collet_options *options)
{
	const char *transport = option_or_env(options ? options->transport : NULL, "COLLET_TRANSPORT");
	collet_status status = COLLET_OK;
	const char *algorithm = option_or_env(options ? options->algorithm : NULL, "COLLET_ALGORITHM");
	if (algorithm && strlen(algorithm) >= sizeof(context->algorithm))
		return collet_fail(COLLET_ERR_CONFIG, "COLLET_ALGORITHM is longer than %zu characters",
			sizeof(context->algorithm) - 1);
	if (transport && strlen(transport) >= sizeof(context->transport))
		return collet_fail(COLLET_ERR_CONFIG, "COLLET_TRANSPORT is longer than %zu characters",
			sizeof(context->transport) - 1);
	if (algorithm) {
		strcpy(context->algorithm, algorithm);
		status = collet_choice_parse_forced(algorithm, context->forced);
		if (status != COLLET_OK)
			return status;
	}
	if (transport)
		strcpy(context->transport, transport);
	status = collet_env_bool("COLLET_DETERMINISTIC", &context->deterministic);
	if (status == COLLET_OK)
		status = collet_isa_from_env(&context->isa);
	return status;
}

/* Writes down the settings that must be the same on all ranks. */
static void describe_settings(struct collet_context *context)
{
	struct collet_peer_info *peer_info = &context->peer_info;
	snprintf(peer_info->settings, sizeof(peer_info->settings),
		"version=%s\nCOLLET_ALGORITHM=%.120s\nCOLLET_TRANSPORT=%.60s\nCOLLET_DETERMINISTIC=%d\n",
		collet_version(), context->algorithm, context->transport, context->deterministic);
}

/* True if a host has more ranks than cores. Waiting ranks must yield soon then. */
static bool is_oversubscribed(const struct collet_peer_info *peer_infos, uint32_t size)
{
	for (uint32_t i = 0; i < size; i++) {
		uint32_t neighbours = 0;
		bool seen = false;
		for (uint32_t j = 0; j < i && !seen; j++)
			seen = peer_infos[j].host_id == peer_infos[i].host_id;
		if (seen)
			continue;
		for (uint32_t j = i; j < size; j++)
			neighbours += peer_infos[j].host_id == peer_infos[i].host_id;
		if (neighbours > peer_infos[i].host_cores)
			return true;
	}
	return false;
}

const char *collet_local_transport(const struct collet_context *context)
{
	return collet_peer_info_offers(&context->bootstrap.peer_infos[0], "shm") ? "shm" : "tcp";
}

static uint32_t or_default(uint32_t bytes)
{
	enum { DEFAULT_BYTES = 64 << 10 };
	return bytes ? bytes : DEFAULT_BYTES;
}

/* Chooses limits alike on all ranks: from rank 0's links, for as many ranks as its host has. */
static void choose_limits(struct collet_context *context)
{
	const struct collet_peer_info *peer_infos = context->bootstrap.peer_infos;
	const uint32_t cores = peer_infos[0].host_cores;
	uint32_t ranks = 0;
	for (uint32_t i = 0; i < context->launch.size; i++)
		ranks += peer_infos[i].host_id == peer_infos[0].host_id;
	const char *transport = collet_local_transport(context);
	const collet_link_cost *far =
		collet_tuning_find_far(context->links, context->link_count, transport, ranks, cores);
	const collet_link_cost *local = context->agreement.are_cores_far && far
		? far
		: collet_tuning_find(context->links, context->link_count, transport, ranks, cores);
	const collet_link_cost *remote =
		collet_tuning_find(context->links, context->link_count, "tcp", ranks, cores);
	/* The limits were measured where the processor copies messages. They would slow down an RDMA adapter. */
	const bool copies = collet_peer_info_lacks_rdma(&peer_infos[0]);
	context->engine.limits = (struct collet_limits){
		.eager_local =
			or_default(copies || collet_peer_info_offers(&peer_infos[0], "shm") ? local->eager_bytes : 0),
		.eager_remote = or_default(copies ? remote->eager_bytes : 0),
		.fast_path_bytes = or_default(local->fast_path_bytes)
	};
}

/* A call touches its input and its result, so half of the cache. At least what was measured on an EPYC with 32 MiB, and
 * at most what was measured on a Xeon with 300: a job has only its share of a cache that many cores have in common. */
static uint64_t nontemporal_min_bytes(void)
{
	const uint64_t least = UINT64_C(16) << 20, most = UINT64_C(32) << 20, half = collet_cpu_cache_bytes() / 2;
	return half < least ? least : half > most ? most : half;
}

/* Spinning pays while every rank of the host has a core. Else a spinning rank may keep the rank that it waits for from
 * running, if both have the same core. */
static void choose_wait_policy(struct collet_context *context)
{
	struct collet_engine *engine = &context->engine;
	engine->oversubscribed = is_oversubscribed(context->bootstrap.peer_infos, context->launch.size);
	engine->spin_polls = engine->oversubscribed ? 32 : 20000;
	engine->yield_ns = engine->oversubscribed ? 200 * 1000 : 100 * 1000;
}

static collet_status start_control(struct collet_context *context)
{
	struct collet_engine *engine = &context->engine;
	const struct collet_control_config config = {
		.rank = context->launch.rank,
		.size = context->launch.size,
		.launch = &context->launch,
		.bootstrap = &context->bootstrap,
		.events = &collet_connections_events,
		.context = engine,
		.log = &engine->log,
	};
	return collet_control_create(&engine->control, &config);
}

/* Reads an option that is 1, -1 or 0, which means the variable, which is off by default. */
static collet_status read_switch(int option, const char *variable, bool *wanted)
{
	*wanted = false;
	const collet_status status = collet_env_bool(variable, wanted);
	if (option)
		*wanted = option > 0;
	return status;
}

/* FNV-1a. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return hash;
}

/* Opens transports before the bootstrap, which tells other ranks of them. */
static collet_status open_transports(struct collet_context *context)
{
	const struct collet_device_config config = {
		.services = &collet_transport_services,
		.log = &context->engine.log,
		.self = &context->peer_info,
		.arena = &context->arena,
		.wake = &context->engine.wake,
		.job_id =
			hash_text(hash_text(UINT64_C(0xcbf29ce484222325), context->launch.job), context->launch.store),
	};
	return collet_transports_open(&context->transports, context->transport[0] ? context->transport : NULL, &config,
		&context->peer_info);
}

static collet_status open_gpu(struct collet_context *context)
{
	if (collet_offload)
		return collet_offload->context_open(context);
	snprintf(context->no_gpu_reason, sizeof(context->no_gpu_reason),
		"this library was built without support for GPUs (-Dcuda=disabled)");
	return COLLET_OK;
}

static bool close_gpu(struct collet_context *context, bool is_forked)
{
	return !context->gpu || collet_offload->context_close(context, is_forked);
}

struct progress_settings {
	bool is_wanted;
	int cpu; /* -1: where the caller may run */
};

static collet_status read_progress(
	const struct collet_launch *launch, const collet_options *options, struct progress_settings *progress)
{
	uint64_t cpu = UINT64_MAX;
	collet_status status = read_switch(
		options ? options->progress_thread : 0, "COLLET_PROGRESS_THREAD", &progress->is_wanted);
	if (status == COLLET_OK)
		status = collet_env_list_u64("COLLET_PROGRESS_CPU", launch->local_rank, COLLET_MAX_CPUS - 1, &cpu);
	progress->cpu = cpu == UINT64_MAX ? -1 : (int)cpu;
	return status;
}

/* Reads the options, the environment and what this host is. */
static collet_status read_local(
	struct collet_context *context, const collet_options *options, struct progress_settings *progress)
{
	collet_status status = read_log_level(context);
	if (status != COLLET_OK)
		return status;
	status = collet_launch_read(&context->launch, options);
	context->engine.log.rank = context->launch.rank;
	/* Also if that failed: a misspelt variable may be why. */
	if (context->launch.rank == 0)
		collet_warn_of_unknown_variables(&context->engine.log);
	if (status == COLLET_OK)
		status = read_settings(context, options);
	if (status == COLLET_OK)
		status = read_progress(&context->launch, options, progress);
	if (status == COLLET_OK)
		status = read_switch(options ? options->thread_multiple : 0, "COLLET_THREAD_MULTIPLE",
			&context->thread_multiple);
	if (status == COLLET_OK)
		status = collet_peer_info_fill_host(&context->peer_info);
	return status;
}

/* Opens what needs no other rank. */
static collet_status open_local(struct collet_context *context)
{
	struct collet_engine *engine = &context->engine;
	engine->run_on_end = collet_run_on_end;
	collet_status status = collet_engine_init(engine);
	if (status != COLLET_OK)
		return status;
	context->peer_info.rank = context->launch.rank;
	describe_settings(context);
	status = collet_arena_init(&context->arena, 0);
	if (status != COLLET_OK)
		goto err_engine;
	status = open_gpu(context);
	if (status != COLLET_OK)
		goto err_arena;
	engine->transports = &context->transports;
	status = open_transports(context);
	if (status != COLLET_OK)
		goto err_arena;
	return COLLET_OK;

err_arena:
	(void)close_gpu(context, false); /* no GPU has used the context yet */
	collet_arena_deinit(&context->arena);
err_engine:
	collet_engine_deinit(engine);
	return status;
}

/* Undoes open_local(). No GPU has used the context yet. */
static void close_local(struct collet_context *context)
{
	collet_transports_close(&context->transports, false);
	(void)close_gpu(context, false);
	collet_arena_deinit(&context->arena);
	collet_engine_deinit(&context->engine);
}

static void undo_bootstrap(struct collet_context *context)
{
	free(context->links);
	collet_bootstrap_deinit(&context->bootstrap);
}

/* Meets the other ranks: gets their peer_infos and rank 0's agreement, and sets what follows from both. */
static collet_status run_bootstrap(struct collet_context *context)
{
	struct collet_engine *engine = &context->engine;
	collet_status status = collet_bootstrap_init(&context->bootstrap, &context->launch, &context->peer_info,
		collet_agreement_decide, context, &engine->log);
	if (status != COLLET_OK)
		return status;
	status = collet_agreement_receive(context);
	if (status != COLLET_OK) {
		undo_bootstrap(context);
		return status;
	}
	engine->peer_infos = context->bootstrap.peer_infos;
	engine->rank = context->launch.rank;
	engine->size = context->launch.size;
	engine->arena = &context->arena;
	choose_wait_policy(context);
	choose_limits(context);
	context->engine.nontemporal_min_bytes = nontemporal_min_bytes();
	return COLLET_OK;
}

static collet_status start_threads(struct collet_context *context, const struct progress_settings *progress)
{
	struct collet_engine *engine = &context->engine;
	collet_status status = start_control(context);
	if (status != COLLET_OK || !progress->is_wanted)
		return status;
	status = collet_engine_start_progress_thread(engine, progress->cpu);
	if (status != COLLET_OK) {
		collet_control_destroy(&engine->control);
		collet_connections_deinit(engine);
	}
	return status;
}

collet_status collet_context_create(struct collet_context **created, const collet_options *options)
{
	struct collet_context *context = calloc(1, sizeof(*context));
	struct progress_settings progress = { .cpu = -1 };
	if (!context)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a context");
	pthread_mutex_init(&context->registry.lock, NULL);
	collet_status status = read_local(context, options, &progress);
	if (status == COLLET_OK)
		status = make_fork_mark(context);
	if (status != COLLET_OK)
		goto err_free;
	status = open_local(context);
	if (status != COLLET_OK)
		goto err_mark;
	status = run_bootstrap(context);
	if (status != COLLET_OK)
		goto err_own;
	status = start_threads(context, &progress);
	if (status != COLLET_OK)
		goto err_met;
	*created = context;
	return COLLET_OK;

err_met:
	undo_bootstrap(context);
err_own:
	close_local(context);
err_mark:
	munmap((void *)(uintptr_t)context->fork_mark, (size_t)sysconf(_SC_PAGESIZE));
err_free:
	pthread_mutex_destroy(&context->registry.lock);
	free(context);
	return status;
}

/* Contexts whose memory streams may still use after all their communicators are gone. Nothing tells when such a stream
 * ends, so these contexts live as long as the process. */
static struct {
	pthread_mutex_t lock;
	struct collet_context *first;
} leaked_contexts = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Keeps a context whose threads have ended and whose connections are closed. */
static void leak(struct collet_context *context, bool is_forked)
{
	explicit_bzero(context->launch.secret, sizeof(context->launch.secret));
	/* A thread that held the lock at the fork does not exist in the child. */
	if (is_forked)
		return;
	pthread_mutex_lock(&leaked_contexts.lock);
	context->next_leaked = leaked_contexts.first;
	leaked_contexts.first = context;
	pthread_mutex_unlock(&leaked_contexts.lock);
}

void collet_context_release(struct collet_context *context)
{
	/* Pairs with the release of other users: what they did with the context happened before it is freed. */
	if (atomic_fetch_sub_explicit(&context->users, 1, memory_order_acq_rel) != 1)
		return;
	struct collet_engine *engine = &context->engine;
	/* First, since connections that are still opening use the arena, peer_infos and transports. */
	const bool forked = collet_context_forked(context);
	if (forked) {
		collet_control_atfork_child(&engine->control);
		collet_engine_atfork_child(engine);
	} else {
		collet_engine_stop_progress_thread(engine);
		collet_control_destroy(&engine->control);
		collet_engine_deinit(engine);
	}
	collet_transports_close(&context->transports, forked);
	/* Relaxed: the count of users orders it. */
	if (atomic_load_explicit(&context->is_leaked, memory_order_relaxed) || !close_gpu(context, forked)) {
		leak(context, forked);
		return;
	}
	collet_arena_deinit(&context->arena);
	collet_bootstrap_deinit(&context->bootstrap);
	munmap((void *)(uintptr_t)context->fork_mark, (size_t)sysconf(_SC_PAGESIZE));
	if (!forked)
		pthread_mutex_destroy(&context->registry.lock);
	free(context->registry.entries);
	free(context->links);
	explicit_bzero(context->launch.secret, sizeof(context->launch.secret));
	free(context);
}
