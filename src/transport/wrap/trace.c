/* Implements the trace wrapper, which changes nothing and reports. At COLLET_LOG=debug it prints a line per message.
 * When an endpoint closes, it prints what the endpoint has carried and how often it was polled in vain. At the end it
 * prints the totals of the rank. COLLET_TRACE=quiet leaves out the lines of endpoints. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/config.h"
#include "core/status.h"
#include "transport/wrap/wrapper.h"

enum { SIZE_CLASSES = 5 };
static const char *const size_names[SIZE_CLASSES] = { "0 B", "to 256 B", "to 8 KiB", "to 256 KiB", "more" };
static const uint64_t size_ends[SIZE_CLASSES] = { 0, 256, 8192, 262144, UINT64_MAX };

struct trace_counts {
	uint64_t sends[SIZE_CLASSES], receives[SIZE_CLASSES]; /* posted, by size class */
	uint64_t sends_immediate, receives_immediate; /* of these, completed by the post */
	uint64_t views, bytes_out, bytes_in;
	uint64_t polls, empty_polls;     /* progress() */
	uint64_t peeks, arms, sleeps;    /* sleeps: calls of arm() that returned true */
};

struct trace_device {
	struct collet_wrapper wrapper;
	char name[COLLET_TRANSPORT_NAME_BYTES];
	bool is_quiet;
	_Atomic uint64_t endpoints, messages_out, messages_in, bytes_out, bytes_in;
};

struct trace_endpoint {
	struct collet_endpoint endpoint;
	struct trace_device *device;
	const struct collet_log *log;    /* the rank's log, with the level of COLLET_LOG */
	const char *peer_host;           /* of its peer info */
	uint32_t owner_pid;
	bool is_closed;
	struct trace_counts counts;
};

static struct trace_endpoint *trace_of(struct collet_endpoint *endpoint)
{
	return (struct trace_endpoint *)endpoint;
}

static struct collet_endpoint *inner_of(const struct collet_endpoint *endpoint)
{
	return collet_wrapper_inner((struct collet_endpoint *)(uintptr_t)endpoint, sizeof(struct trace_endpoint));
}

static const struct collet_transport *table_of(const struct collet_endpoint *endpoint)
{
	return inner_of(endpoint)->transport;
}

/* Copies the fields that the caller reads from the wrapped endpoint. */
static void mirror_inner(struct collet_endpoint *endpoint)
{
	const struct collet_endpoint *inner = inner_of(endpoint);
	endpoint->status = inner->status;
	endpoint->posted = inner->posted;
	endpoint->peer_reads_arena = inner->peer_reads_arena;
	endpoint->peer_cpu = inner->peer_cpu;
	endpoint->stats = inner->stats;
}

static uint32_t size_class(uint64_t bytes)
{
	uint32_t size = 0;
	while (bytes > size_ends[size])
		size++;
	return size;
}

static collet_status open_endpoint(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config)
{
	struct trace_endpoint *trace = trace_of(endpoint);
	trace->device = (struct trace_device *)(void *)config->device;
	trace->log = config->log;
	trace->peer_host = config->peer->host;
	trace->owner_pid = (uint32_t)getpid();
	const collet_status status = collet_wrapper_open(endpoint, inner_of(endpoint), config);
	mirror_inner(endpoint);
	return status;
}

static collet_status open_progress(struct collet_endpoint *endpoint)
{
	const collet_status status = table_of(endpoint)->open_progress(inner_of(endpoint));
	mirror_inner(endpoint);
	return status;
}

static void list_sizes(char *text, size_t bytes, const uint64_t counts[SIZE_CLASSES])
{
	text[0] = '\0';
	for (uint32_t i = 0; i < SIZE_CLASSES; i++) {
		char part[48];
		snprintf(part, sizeof(part), "%s%llu %s", text[0] ? ", " : "", (unsigned long long)counts[i],
			size_names[i]);
		if (counts[i])
			strncat(text, part, bytes - strlen(text) - 1);
	}
	if (!text[0])
		snprintf(text, bytes, "none");
}

static uint64_t sum(const uint64_t counts[SIZE_CLASSES])
{
	uint64_t all = 0;
	for (uint32_t i = 0; i < SIZE_CLASSES; i++)
		all += counts[i];
	return all;
}

static void log_summary(const struct trace_endpoint *trace)
{
	const struct trace_counts *c = &trace->counts;
	char out[160], in[160];
	list_sizes(out, sizeof(out), c->sends);
	list_sizes(in, sizeof(in), c->receives);
	collet_log(&trace->device->wrapper.log, COLLET_LOG_INFO,
		"%s, rank %u on %s, channel %u: sent %llu bytes in %s (%llu immediately); received %llu bytes in %s "
		"(%llu immediately, %llu as views); %llu polls, %llu of them empty; %llu peeks; armed %llu times, %llu "
		"to sleep; %llu system calls",
		trace->device->name, trace->endpoint.peer, trace->peer_host, trace->endpoint.channel,
		(unsigned long long)c->bytes_out, out, (unsigned long long)c->sends_immediate,
		(unsigned long long)c->bytes_in, in, (unsigned long long)c->receives_immediate,
		(unsigned long long)c->views, (unsigned long long)c->polls, (unsigned long long)c->empty_polls,
		(unsigned long long)c->peeks, (unsigned long long)c->arms, (unsigned long long)c->sleeps,
		(unsigned long long)trace->endpoint.stats.system_calls);
}

static void close_endpoint(struct collet_endpoint *endpoint)
{
	struct trace_endpoint *trace = trace_of(endpoint);
	if (trace->is_closed || !trace->device)
		return;
	trace->is_closed = true;
	table_of(endpoint)->close(inner_of(endpoint));
	mirror_inner(endpoint);
	if (trace->owner_pid != (uint32_t)getpid())
		return;
	struct trace_device *device = trace->device;
	atomic_fetch_add_explicit(&device->endpoints, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&device->messages_out, sum(trace->counts.sends), memory_order_relaxed);
	atomic_fetch_add_explicit(&device->messages_in, sum(trace->counts.receives), memory_order_relaxed);
	atomic_fetch_add_explicit(&device->bytes_out, trace->counts.bytes_out, memory_order_relaxed);
	atomic_fetch_add_explicit(&device->bytes_in, trace->counts.bytes_in, memory_order_relaxed);
	if (!device->is_quiet)
		log_summary(trace);
}

static void log_post(const struct trace_endpoint *trace, const char *what, const struct collet_message *message,
	collet_status status)
{
	if (!collet_transport_services.log_enabled(trace->log, COLLET_LOG_DEBUG))
		return;
	collet_log(trace->log, COLLET_LOG_DEBUG, "%s, rank %u, channel %u: %s %llu of call %016llx, %llu bytes: %s",
		trace->device->name, trace->endpoint.peer, trace->endpoint.channel, what,
		(unsigned long long)message->sequence, (unsigned long long)message->signature,
		(unsigned long long)message->bytes,
		status == COLLET_OK ? "completed" : status == COLLET_PENDING ? "pending" : collet_status_name(status));
}

static void post_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct trace_endpoint *trace = trace_of(endpoint);
	const struct collet_message message = transfer->message;
	table_of(endpoint)->post_send(inner_of(endpoint), transfer);
	/* A pending transfer still exists: its owner waits for this thread to make progress. */
	const collet_status status = transfer->status;
	mirror_inner(endpoint);
	trace->counts.sends[size_class(message.bytes)]++;
	trace->counts.sends_immediate += status == COLLET_OK;
	trace->counts.bytes_out += message.bytes;
	log_post(trace, "send", &message, status);
}

static void post_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct trace_endpoint *trace = trace_of(endpoint);
	const struct collet_message message = transfer->message;
	const bool wants_view = transfer->flags & COLLET_TRANSFER_VIEW;
	table_of(endpoint)->post_recv(inner_of(endpoint), transfer);
	const collet_status status = transfer->status;
	mirror_inner(endpoint);
	trace->counts.receives[size_class(message.bytes)]++;
	trace->counts.receives_immediate += status == COLLET_OK;
	trace->counts.views += wants_view;
	trace->counts.bytes_in += message.bytes;
	log_post(trace, "receive", &message, status);
}

static void release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	table_of(endpoint)->release_view(inner_of(endpoint), transfer);
	mirror_inner(endpoint);
}

static uint32_t progress(struct collet_endpoint *endpoint)
{
	struct trace_endpoint *trace = trace_of(endpoint);
	const uint32_t completed = table_of(endpoint)->progress(inner_of(endpoint));
	mirror_inner(endpoint);
	trace->counts.polls++;
	trace->counts.empty_polls += completed == 0;
	return completed;
}

static bool is_recv_ready(struct collet_endpoint *endpoint, uint64_t bytes)
{
	const bool is_ready = table_of(endpoint)->is_recv_ready(inner_of(endpoint), bytes);
	mirror_inner(endpoint);
	return is_ready;
}

static bool peek(struct collet_endpoint *endpoint, struct collet_message *message)
{
	const bool is_ready = table_of(endpoint)->peek(inner_of(endpoint), message);
	mirror_inner(endpoint);
	trace_of(endpoint)->counts.peeks++;
	return is_ready;
}

static bool arm(struct collet_endpoint *endpoint)
{
	struct trace_endpoint *trace = trace_of(endpoint);
	const bool sleeps = table_of(endpoint)->arm(inner_of(endpoint));
	mirror_inner(endpoint);
	trace->counts.arms++;
	trace->counts.sleeps += sleeps;
	return sleeps;
}

static void disarm(struct collet_endpoint *endpoint)
{
	table_of(endpoint)->disarm(inner_of(endpoint));
	mirror_inner(endpoint);
}

static bool accepts_gpu(struct collet_endpoint *endpoint, const void *data, uint64_t bytes)
{
	return table_of(endpoint)->accepts_gpu(inner_of(endpoint), data, bytes);
}

static unsigned long long load_count(const _Atomic uint64_t *count)
{
	return (unsigned long long)atomic_load_explicit(count, memory_order_relaxed);
}

static void close_device(struct collet_device *closed)
{
	struct trace_device *device = (struct trace_device *)(void *)closed;
	if (load_count(&device->endpoints))
		collet_log(&device->wrapper.log, COLLET_LOG_INFO,
			"%s: %llu endpoints, %llu messages and %llu bytes sent, %llu messages and %llu bytes received",
			device->name, load_count(&device->endpoints), load_count(&device->messages_out),
			load_count(&device->bytes_out), load_count(&device->messages_in),
			load_count(&device->bytes_in));
	free(device);
}

collet_status collet_trace_wrap(struct collet_transport_instance *instance, const struct collet_device_config *config)
{
	const char *how = collet_env("COLLET_TRACE");
	if (how && strcmp(how, "quiet") != 0)
		return collet_fail(COLLET_ERR_CONFIG, "COLLET_TRACE=%s: the only value is quiet", how);
	struct trace_device *device = calloc(1, sizeof(*device));
	if (!device)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a transport");
	collet_wrapper_init(instance, &device->wrapper, config, sizeof(struct trace_endpoint));
	memcpy(device->name, instance->name, sizeof(device->name));
	device->is_quiet = how;
	struct collet_transport *table = &instance->table;
	table->device_close = close_device;
	table->open = open_endpoint;
	table->open_progress = open_progress;
	table->close = close_endpoint;
	table->post_send = post_send;
	table->post_recv = post_recv;
	table->release_view = release_view;
	table->progress = progress;
	table->is_recv_ready = table->is_recv_ready ? is_recv_ready : NULL;
	table->try_send = table->try_recv = NULL;
	table->peek = peek;
	table->arm = arm;
	table->disarm = disarm;
	table->accepts_gpu = device->wrapper.inner->accepts_gpu ? accepts_gpu : NULL;
	return COLLET_OK;
}
