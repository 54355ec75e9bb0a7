/* trace: a wrapper that changes nothing, and tells. Each message is a line at COLLET_LOG=debug; what each conduit has
 * carried, and how often it was asked in vain, is a line on standard error when it closes, and each rank's sum at the
 * end. COLLET_TRACE=quiet leaves out the conduits' lines. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/config.h"
#include "core/status.h"
#include "transport/wrap/wrapper.h"

enum { SIZES = 5 };
static const char *const size_names[SIZES] = { "0 B", "to 256 B", "to 8 KiB", "to 256 KiB", "more" };
static const uint64_t size_ends[SIZES] = { 0, 256, 8192, 262144, UINT64_MAX };

struct trace_counts {
	uint64_t sends[SIZES], receives[SIZES];  /* posted, by size */
	uint64_t sends_at_once, receives_at_once;  /* of these, settled by the post */
	uint64_t views, bytes_out, bytes_in;
	uint64_t looks, looks_in_vain;   /* progress() */
	uint64_t peeks, arms, sleeps;    /* arm() that said: sleep */
};

struct trace_device {
	struct collet_wrapper wrapper;
	char name[COLLET_TRANSPORT_NAME_BYTES];
	bool quiet;
	_Atomic uint64_t conduits, messages_out, messages_in, bytes_out, bytes_in;
};

struct trace_conduit {
	struct collet_conduit conduit;
	struct trace_device *device;
	const struct collet_log *log;    /* the rank's, as COLLET_LOG has it */
	const char *peer_host;           /* of its card */
	uint32_t process;
	bool closed;
	struct trace_counts counts;
};

static struct trace_conduit *of(struct collet_conduit *conduit)
{
	return (struct trace_conduit *)conduit;
}

static struct collet_conduit *inner_of(const struct collet_conduit *conduit)
{
	return collet_wrapped((struct collet_conduit *)(uintptr_t)conduit, sizeof(struct trace_conduit));
}

static const struct collet_transport *table_of(const struct collet_conduit *conduit)
{
	return inner_of(conduit)->transport;
}

/* What the caller may look at is as the wrapped conduit has it. */
static void mirror(struct collet_conduit *conduit)
{
	const struct collet_conduit *inner = inner_of(conduit);
	conduit->status = inner->status;
	conduit->posted = inner->posted;
	conduit->reads_arena = inner->reads_arena;
	conduit->reads_memory_min = inner->reads_memory_min;
	conduit->reads_calls = inner->reads_calls;
	conduit->peer_cpu = inner->peer_cpu;
	conduit->stats = inner->stats;
}

static uint32_t size_of(uint64_t bytes)
{
	uint32_t size = 0;
	while (bytes > size_ends[size])
		size++;
	return size;
}

static collet_status open_conduit(struct collet_conduit *conduit, const struct collet_conduit_config *config)
{
	struct trace_conduit *trace = of(conduit);
	trace->device = (struct trace_device *)(void *)config->device;
	trace->log = config->log;
	trace->peer_host = config->peer->host;
	trace->process = (uint32_t)getpid();
	const collet_status status = collet_wrapper_open(conduit, inner_of(conduit), config);
	mirror(conduit);
	return status;
}

static collet_status opening(struct collet_conduit *conduit)
{
	const collet_status status = table_of(conduit)->opening(inner_of(conduit));
	mirror(conduit);
	return status;
}

static void list_sizes(char *text, size_t bytes, const uint64_t counts[SIZES])
{
	text[0] = '\0';
	for (uint32_t i = 0; i < SIZES; i++) {
		char part[48];
		snprintf(part, sizeof(part), "%s%llu %s", text[0] ? ", " : "", (unsigned long long)counts[i],
			size_names[i]);
		if (counts[i])
			strncat(text, part, bytes - strlen(text) - 1);
	}
	if (!text[0])
		snprintf(text, bytes, "none");
}

static uint64_t sum(const uint64_t counts[SIZES])
{
	uint64_t all = 0;
	for (uint32_t i = 0; i < SIZES; i++)
		all += counts[i];
	return all;
}

static void tell(const struct trace_conduit *trace)
{
	const struct trace_counts *c = &trace->counts;
	char out[160], in[160];
	list_sizes(out, sizeof(out), c->sends);
	list_sizes(in, sizeof(in), c->receives);
	collet_log(&trace->device->wrapper.log, COLLET_LOG_INFO,
		"%s, rank %u on %s, channel %u: sent %llu bytes in %s (%llu at once); received %llu bytes in %s (%llu "
		"at once, %llu as views); %llu looks, %llu in vain; %llu peeks; armed %llu times, %llu to sleep; %llu "
		"system calls",
		trace->device->name, trace->conduit.peer, trace->peer_host, trace->conduit.channel,
		(unsigned long long)c->bytes_out, out, (unsigned long long)c->sends_at_once,
		(unsigned long long)c->bytes_in, in, (unsigned long long)c->receives_at_once,
		(unsigned long long)c->views, (unsigned long long)c->looks, (unsigned long long)c->looks_in_vain,
		(unsigned long long)c->peeks, (unsigned long long)c->arms, (unsigned long long)c->sleeps,
		(unsigned long long)trace->conduit.stats.system_calls);
}

static void close_conduit(struct collet_conduit *conduit)
{
	struct trace_conduit *trace = of(conduit);
	if (trace->closed || !trace->device)
		return;
	trace->closed = true;
	table_of(conduit)->close(inner_of(conduit));
	mirror(conduit);
	if (trace->process != (uint32_t)getpid())
		return;
	struct trace_device *device = trace->device;
	atomic_fetch_add_explicit(&device->conduits, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&device->messages_out, sum(trace->counts.sends), memory_order_relaxed);
	atomic_fetch_add_explicit(&device->messages_in, sum(trace->counts.receives), memory_order_relaxed);
	atomic_fetch_add_explicit(&device->bytes_out, trace->counts.bytes_out, memory_order_relaxed);
	atomic_fetch_add_explicit(&device->bytes_in, trace->counts.bytes_in, memory_order_relaxed);
	if (!device->quiet)
		tell(trace);
}

static void log_post(const struct trace_conduit *trace, const char *what, const struct collet_message *message,
	collet_status status)
{
	if (!collet_host_functions.logs(trace->log, COLLET_LOG_DEBUG))
		return;
	collet_log(trace->log, COLLET_LOG_DEBUG, "%s, rank %u, channel %u: %s %llu of call %016llx, %llu bytes: %s",
		trace->device->name, trace->conduit.peer, trace->conduit.channel, what,
		(unsigned long long)message->sequence, (unsigned long long)message->signature,
		(unsigned long long)message->bytes,
		status == COLLET_OK ? "at once" : status == COLLET_PENDING ? "lent" : collet_status_name(status));
}

static void post_send(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct trace_conduit *trace = of(conduit);
	const struct collet_message message = transfer->message;
	table_of(conduit)->post_send(inner_of(conduit), transfer);
	/* Lent, it is still there: the caller waits for this thread to make progress. */
	const collet_status status = transfer->status;
	mirror(conduit);
	trace->counts.sends[size_of(message.bytes)]++;
	trace->counts.sends_at_once += status == COLLET_OK;
	trace->counts.bytes_out += message.bytes;
	log_post(trace, "send", &message, status);
}

static void post_recv(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct trace_conduit *trace = of(conduit);
	const struct collet_message message = transfer->message;
	const bool view = transfer->flags & COLLET_TRANSFER_VIEW;
	table_of(conduit)->post_recv(inner_of(conduit), transfer);
	const collet_status status = transfer->status;
	mirror(conduit);
	trace->counts.receives[size_of(message.bytes)]++;
	trace->counts.receives_at_once += status == COLLET_OK;
	trace->counts.views += view;
	trace->counts.bytes_in += message.bytes;
	log_post(trace, "receive", &message, status);
}

static void release(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	table_of(conduit)->release(inner_of(conduit), transfer);
	mirror(conduit);
}

static uint32_t progress(struct collet_conduit *conduit)
{
	struct trace_conduit *trace = of(conduit);
	const uint32_t settled = table_of(conduit)->progress(inner_of(conduit));
	mirror(conduit);
	trace->counts.looks++;
	trace->counts.looks_in_vain += settled == 0;
	return settled;
}

static bool has_come(struct collet_conduit *conduit, uint64_t bytes)
{
	const bool is_there = table_of(conduit)->has_come(inner_of(conduit), bytes);
	mirror(conduit);
	return is_there;
}

static bool peek(struct collet_conduit *conduit, struct collet_message *message)
{
	const bool is_there = table_of(conduit)->peek(inner_of(conduit), message);
	mirror(conduit);
	of(conduit)->counts.peeks++;
	return is_there;
}

static bool arm(struct collet_conduit *conduit)
{
	struct trace_conduit *trace = of(conduit);
	const bool sleeps = table_of(conduit)->arm(inner_of(conduit));
	mirror(conduit);
	trace->counts.arms++;
	trace->counts.sleeps += sleeps;
	return sleeps;
}

static void disarm(struct collet_conduit *conduit)
{
	table_of(conduit)->disarm(inner_of(conduit));
	mirror(conduit);
}

static void took(struct collet_conduit *conduit, uint32_t call, uint64_t bytes, uint64_t ticks)
{
	table_of(conduit)->took(inner_of(conduit), call, bytes, ticks);
	mirror(conduit);
}

static bool takes_gpu(struct collet_conduit *conduit, const void *data, uint64_t bytes)
{
	return table_of(conduit)->takes_gpu(inner_of(conduit), data, bytes);
}

static unsigned long long get(const _Atomic uint64_t *count)
{
	return (unsigned long long)atomic_load_explicit(count, memory_order_relaxed);
}

static void close_device(struct collet_device *closed)
{
	struct trace_device *device = (struct trace_device *)(void *)closed;
	if (get(&device->conduits))
		collet_log(&device->wrapper.log, COLLET_LOG_INFO,
			"%s: %llu conduits, %llu messages and %llu bytes sent, %llu messages and %llu bytes received",
			device->name, get(&device->conduits), get(&device->messages_out), get(&device->bytes_out),
			get(&device->messages_in), get(&device->bytes_in));
	free(device);
}

collet_status collet_trace_wrap(struct collet_offer *offer, const struct collet_device_config *config)
{
	const char *how = collet_env("COLLET_TRACE");
	if (how && strcmp(how, "quiet") != 0)
		return collet_fail(COLLET_ERR_CONFIG, "COLLET_TRACE=%s: all that it can be is quiet", how);
	struct trace_device *device = calloc(1, sizeof(*device));
	if (!device)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a transport");
	collet_wrapper_begin(offer, &device->wrapper, config, sizeof(struct trace_conduit));
	memcpy(device->name, offer->name, sizeof(device->name));
	device->quiet = how;
	struct collet_transport *own = &offer->own;
	own->device_close = close_device;
	own->open = open_conduit;
	own->opening = opening;
	own->close = close_conduit;
	own->post_send = post_send;
	own->post_recv = post_recv;
	own->release = release;
	own->progress = progress;
	own->has_come = own->has_come ? has_come : NULL;
	own->send_now = own->recv_now = NULL;
	own->peek = peek;
	own->arm = arm;
	own->disarm = disarm;
	own->takes_gpu = device->wrapper.inner->takes_gpu ? takes_gpu : NULL;
	own->took = device->wrapper.inner->took ? took : NULL;
	return COLLET_OK;
}
