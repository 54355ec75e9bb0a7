/* verbs: asynchronous events of adapters: ports go down and come back, devices and queue pairs fail, without a
 * completion that would tell. Every event is logged. A fatal event ends the endpoints concerned, with its text in the
 * error. A port error makes endpoints probe their adapters at once instead of after a time of silence.
 *
 * The descriptors are in the rank's epoll set, so an event wakes a sleeping rank. The next endpoint that checks its
 * peer handles the pending events for all endpoints of the device. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "verbs_endpoint.h"

/* Returns true for the first adapter of its device. Several adapters may be ports of one device, which has one
 * descriptor. */
static bool is_first(const struct collet_device *device, uint32_t adapter)
{
	for (uint32_t i = 0; i < adapter; i++)
		if (device->adapters[i].context == device->adapters[adapter].context)
			return false;
	return true;
}

collet_status collet_verbs_watch_events(struct collet_device *device)
{
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		if (!is_first(device, i))
			continue;
		const int fd = device->adapters[i].context->async_fd, flags = fcntl(fd, F_GETFL);
		struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = device };
		if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
			epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
			return device->services->fail(COLLET_ERR_TRANSPORT, "verbs: cannot watch events of %s: %s",
				device->adapters[i].name, strerror(errno));
	}
	return COLLET_OK;
}

void collet_verbs_unwatch_events(struct collet_device *device)
{
	for (uint32_t i = 0; i < device->adapter_count; i++)
		(void)epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, device->adapters[i].context->async_fd, NULL);
}

/* ---- One event ---------------------------------------------------------------------------------------------- */

static void record_endpoint_event(
	struct verbs_endpoint *verbs, const struct collet_device *device, uint32_t adapter, enum ibv_event_type type)
{
	device->services->log(device->log, COLLET_LOG_WARN, "verbs: %s, connection to rank %u, channel %u: %s",
		device->adapters[adapter].name, verbs->endpoint.peer, verbs->endpoint.channel,
		ibv_event_type_str(type));
	/* Store before the event is acknowledged: ibv_destroy_qp() waits for that, so the endpoint still exists.
	 * Pairs with the acquire load in collet_verbs_handle_events(). */
	atomic_store_explicit(&verbs->fatal_event, (int)type + 1, memory_order_release);
}

/* Records an event of a port or of a whole device. */
static void record_adapter_event(struct collet_device *device, uint32_t first, const struct ibv_async_event *event)
{
	const bool is_port_event = event->event_type != IBV_EVENT_DEVICE_FATAL;
	const bool is_good = event->event_type == IBV_EVENT_PORT_ACTIVE;
	for (uint32_t i = first; i < device->adapter_count; i++) {
		struct verbs_adapter *adapter = &device->adapters[i];
		char name[160];
		if (adapter->context != device->adapters[first].context ||
			(is_port_event && adapter->port != event->element.port_num))
			continue;
		device->services->log(device->log, is_good ? COLLET_LOG_INFO : COLLET_LOG_WARN, "verbs: %s: %s",
			collet_verbs_adapter_name(adapter, name, sizeof(name)), ibv_event_type_str(event->event_type));
		/* Pairs with the acquire loads in collet_verbs_handle_events() and
		 * collet_verbs_is_adapter_active(). */
		if (!is_port_event)
			atomic_store_explicit(&adapter->is_fatal, true, memory_order_release);
		if (event->event_type == IBV_EVENT_PORT_ERR)
			atomic_fetch_add_explicit(&device->port_errors, 1, memory_order_release);
	}
}

static void record_event(struct collet_device *device, uint32_t adapter, const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		record_endpoint_event(event->element.qp->qp_context, device, adapter, event->event_type);
		return;
	case IBV_EVENT_CQ_ERR:
		record_endpoint_event(event->element.cq->cq_context, device, adapter, event->event_type);
		return;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_DEVICE_FATAL: record_adapter_event(device, adapter, event); return;
	default:
		device->services->log(device->log, COLLET_LOG_INFO, "verbs: %s: %s", device->adapters[adapter].name,
			ibv_event_type_str(event->event_type));
	}
}

/* ---- All ---------------------------------------------------------------------------------------------------- */

static void drain_events(struct collet_device *device)
{
	/* If the lock is held, its holder registers memory or drains events itself: do not wait. */
	if (pthread_mutex_trylock(&device->lock) != 0)
		return;
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		struct ibv_async_event event;
		while (is_first(device, i) && ibv_get_async_event(device->adapters[i].context, &event) == 0) {
			record_event(device, i, &event);
			ibv_ack_async_event(&event);
		}
	}
	pthread_mutex_unlock(&device->lock);
}

bool collet_verbs_handle_events(struct verbs_endpoint *verbs)
{
	char name[160];
	drain_events(verbs->device);
	/* These loads pair with the release stores above. */
	const int event = atomic_load_explicit(&verbs->fatal_event, memory_order_acquire);
	if (event)
		collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT, "%s reports: %s",
			collet_verbs_adapter_name(verbs->rails[0].adapter, name, sizeof(name)),
			ibv_event_type_str((enum ibv_event_type)(event - 1)));
	for (uint32_t r = 0; r < verbs->rail_count; r++)
		if (atomic_load_explicit(&verbs->rails[r].adapter->is_fatal, memory_order_acquire))
			collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT, "%s reports: %s",
				collet_verbs_adapter_name(verbs->rails[r].adapter, name, sizeof(name)),
				ibv_event_type_str(IBV_EVENT_DEVICE_FATAL));
	const uint32_t port_errors = atomic_load_explicit(&verbs->device->port_errors, memory_order_acquire);
	const bool has_port_error = port_errors != verbs->port_errors_seen;
	verbs->port_errors_seen = port_errors;
	return has_port_error;
}
