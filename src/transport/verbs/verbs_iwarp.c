/* verbs: connecting iWARP queue pairs by rdma_cm, which uses TCP connections of its own. The end that accepted the
 * socket listens on each of its adapters and sends the ports and a random token in its hello. The end that dialed
 * connects each queue pair and presents the token and the queue pair's index. The hello came over an authenticated
 * connection, so a stranger who finds a port cannot connect. All events of an endpoint come from one event channel,
 * which is read without blocking. The ports are closed once all queue pairs are connected.
 *
 * Queue pairs are created on the adapter's own context, not on that of rdma_cm, so events, registrations and counts
 * work as for the other networks. */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "verbs_endpoint.h"
#include "verbs_iwarp.h"
#include "verbs_rdmacm.h"

enum { RESOLVE_MS = 10000, PORTS_TRIED = 8 };

/* Private data of a connection request. */
struct connect_data {
	uint8_t token[sizeof(((struct verbs_hello *)0)->token)];
	uint32_t qp;
};

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static union address address_of(const uint8_t gid[16], uint16_t port)
{
	union address address = {0};
	if (memcmp(gid, mapped, sizeof(mapped)) == 0) {
		address.v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
		memcpy(&address.v4.sin_addr, gid + sizeof(mapped), sizeof(address.v4.sin_addr));
	} else {
		address.v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(port) };
		memcpy(&address.v6.sin6_addr, gid, sizeof(address.v6.sin6_addr));
	}
	return address;
}

/* ---- An adapter's address ----------------------------------------------------------------------------------- */

/* Converts an address to a GID. Returns false if it has another family or is link-local. */
static bool gid_of_address(const struct sockaddr *address, int family, uint8_t gid[16])
{
	if (!address || address->sa_family != family)
		return false;
	if (family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
		memcpy(gid, mapped, sizeof(mapped));
		memcpy(gid + sizeof(mapped), &v4->sin_addr, sizeof(v4->sin_addr));
		return !(gid[12] == 169 && gid[13] == 254);
	}
	memcpy(gid, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
	return !(gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80);
}

/* Returns true if rdma_cm binds this address to the adapter. */
static bool is_address_of(const struct verbs_rdmacm *cm, struct rdma_event_channel *channel, const uint8_t gid[16],
	const struct verbs_adapter *adapter)
{
	struct rdma_cm_id *id;
	union address address = address_of(gid, 0);
	if (cm->create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
		return false;
	const bool is_same = cm->bind_addr(id, &address.any) == 0 && id->verbs && id->port_num == adapter->port &&
			     strcmp(ibv_get_device_name(id->verbs->device), adapter->name) == 0;
	cm->destroy_id(id);
	return is_same;
}

/* Finds the first address of the family that belongs to the adapter. */
static bool find_address(const struct verbs_rdmacm *cm, struct rdma_event_channel *channel,
	const struct ifaddrs *interfaces, int family, struct verbs_adapter *adapter)
{
	for (const struct ifaddrs *interface = interfaces; interface; interface = interface->ifa_next) {
		uint8_t gid[16];
		if (!(interface->ifa_flags & IFF_UP) || (interface->ifa_flags & IFF_LOOPBACK) ||
			!gid_of_address(interface->ifa_addr, family, gid) || !is_address_of(cm, channel, gid, adapter))
			continue;
		memcpy(adapter->gid.raw, gid, sizeof(gid));
		return true;
	}
	return false;
}

const char *collet_verbs_iwarp_address(struct collet_device *device, struct verbs_adapter *adapter)
{
	if (!device->rdmacm)
		device->rdmacm = collet_verbs_load_rdmacm();
	const struct verbs_rdmacm *cm = device->rdmacm;
	if (!cm)
		return "is iWARP, which needs librdmacm.so.1 (install librdmacm1)";
	struct rdma_event_channel *channel = cm->create_event_channel();
	if (!channel)
		return "is iWARP, and rdma_cm is not available (is rdma_ucm loaded, and is /dev/infiniband/rdma_cm "
		       "accessible?)";
	struct ifaddrs *interfaces = NULL;
	const bool is_found =
		getifaddrs(&interfaces) == 0 && (find_address(cm, channel, interfaces, AF_INET, adapter) ||
							find_address(cm, channel, interfaces, AF_INET6, adapter));
	if (interfaces)
		freeifaddrs(interfaces);
	cm->destroy_event_channel(channel);
	return is_found ? NULL : "is iWARP, and has no routable IP address";
}

/* ---- Start -------------------------------------------------------------------------------------------------- */

static const struct verbs_rdmacm *cm_of(const struct verbs_endpoint *verbs)
{
	return verbs->device->rdmacm;
}

static collet_status create_channel(struct verbs_endpoint *verbs)
{
	verbs->cm_channel = cm_of(verbs)->create_event_channel();
	if (!verbs->cm_channel)
		return collet_verbs_fail_connect(verbs, "no rdma_cm", strerror(errno));
	const int flags = fcntl(verbs->cm_channel->fd, F_GETFL);
	if (flags < 0 || fcntl(verbs->cm_channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return collet_verbs_fail_connect(verbs, "cannot set up rdma_cm", strerror(errno));
	return COLLET_OK;
}

/* Listens on one rail. rdma_cm may choose a port that a socket uses; only listen() shows that, so retry. */
static collet_status listen_on(struct verbs_endpoint *verbs, uint32_t rail)
{
	const struct verbs_rdmacm *cm = cm_of(verbs);
	const struct verbs_adapter *adapter = verbs->rails[rail].adapter;
	int error = EADDRINUSE;
	for (unsigned tried = 0; tried < PORTS_TRIED && error == EADDRINUSE; tried++) {
		struct rdma_cm_id *id;
		union address address = address_of(adapter->gid.raw, 0);
		if (cm->create_id(verbs->cm_channel, &id, NULL, RDMA_PS_TCP) != 0)
			return collet_verbs_fail_connect(verbs, "no rdma_cm identifier", strerror(errno));
		if (cm->bind_addr(id, &address.any) == 0 && cm->listen(id, VERBS_QPS_MAX) == 0) {
			verbs->listeners[rail] = id;
			verbs->hello_out.rails[rail].port =
				ntohs(id->route.addr.src_addr.sa_family == AF_INET ? id->route.addr.src_sin.sin_port
										   : id->route.addr.src_sin6.sin6_port);
			return COLLET_OK;
		}
		error = errno;
		cm->destroy_id(id);
	}
	char name[160];
	collet_verbs_adapter_name(adapter, name, sizeof(name));
	return collet_verbs_fail_connect(verbs, name, strerror(error));
}

collet_status collet_verbs_iwarp_listen(struct verbs_endpoint *verbs)
{
	collet_status status = create_channel(verbs);
	if (status == COLLET_OK && getrandom(verbs->hello_out.token, sizeof(verbs->hello_out.token), GRND_NONBLOCK) !=
					   sizeof(verbs->hello_out.token))
		status = collet_verbs_fail_connect(verbs, "no random bytes", strerror(errno));
	for (uint32_t r = 0; r < verbs->rail_count && status == COLLET_OK; r++)
		status = listen_on(verbs, r);
	return status;
}

/* Sets the error text for a queue pair that failed at this step. */
static collet_status fail_qp(const struct verbs_endpoint *verbs, uint32_t index, const char *step, const char *why)
{
	const struct verbs_qp *qp = &verbs->qps[index];
	char name[160], peer_gid[INET6_ADDRSTRLEN], what[300];
	snprintf(what, sizeof(what), "cannot connect %s to %s port %u: %s",
		collet_verbs_adapter_name(verbs->rails[qp->rail].adapter, name, sizeof(name)),
		collet_verbs_gid_text(verbs->hello_in.rails[qp->peer_rail].gid, peer_gid, sizeof(peer_gid)),
		verbs->hello_in.rails[qp->peer_rail].port, step);
	return collet_verbs_fail_connect(verbs, what, why);
}

static collet_status begin_connect(struct verbs_endpoint *verbs, uint32_t index)
{
	const struct verbs_rdmacm *cm = cm_of(verbs);
	struct verbs_qp *qp = &verbs->qps[index];
	union address from = address_of(verbs->rails[qp->rail].adapter->gid.raw, 0);
	union address to =
		address_of(verbs->hello_in.rails[qp->peer_rail].gid, verbs->hello_in.rails[qp->peer_rail].port);
	uint8_t class = verbs->device->options.traffic_class;
	qp->attempts++;
	if (cm->create_id(verbs->cm_channel, &qp->id, NULL, RDMA_PS_TCP) != 0)
		return fail_qp(verbs, index, "no rdma_cm identifier", strerror(errno));
	if (class && cm->set_option(qp->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &class, sizeof(class)) != 0)
		return fail_qp(verbs, index, "cannot set COLLET_VERBS_TRAFFIC_CLASS", strerror(errno));
	if (cm->resolve_addr(qp->id, &from.any, &to.any, RESOLVE_MS) != 0)
		return fail_qp(verbs, index, "resolving the address", strerror(errno));
	return COLLET_OK;
}

collet_status collet_verbs_iwarp_connect(struct verbs_endpoint *verbs)
{
	collet_status status = create_channel(verbs);
	for (uint32_t p = 0; p < verbs->qp_count && status == COLLET_OK; p++)
		status = begin_connect(verbs, p);
	return status;
}

/* ---- Events ------------------------------------------------------------------------------------------------- */

/* Allows one read in flight each way: reads are the probes of iWARP. */
static struct rdma_conn_param parameters_of(const struct verbs_qp *qp)
{
	return (struct rdma_conn_param){ .responder_resources = 1, .initiator_depth = 1, .qp_num = qp->qp->qp_num };
}

static collet_status send_connect_data(struct verbs_endpoint *verbs, uint32_t index)
{
	struct connect_data data = { .qp = index };
	memcpy(data.token, verbs->hello_in.token, sizeof(data.token));
	struct rdma_conn_param parameters = parameters_of(&verbs->qps[index]);
	parameters.private_data = &data;
	parameters.private_data_len = sizeof(data);
	if (cm_of(verbs)->connect(verbs->qps[index].id, &parameters) != 0)
		return fail_qp(verbs, index, "connecting", strerror(errno));
	return COLLET_OK;
}

/* Returns the index of the queue pair that a valid request is for, or VERBS_QPS_MAX for an invalid request. */
static uint32_t check_connect_data(
	const struct verbs_endpoint *verbs, const struct connect_data *data, const struct rdma_cm_id *listener)
{
	if (memcmp(data->token, verbs->hello_out.token, sizeof(data->token)) != 0 || data->qp >= verbs->qp_count)
		return VERBS_QPS_MAX;
	const struct verbs_qp *qp = &verbs->qps[data->qp];
	return qp->id || verbs->listeners[qp->rail] != listener ? VERBS_QPS_MAX : data->qp;
}

static collet_status accept_qp(struct verbs_endpoint *verbs, struct rdma_cm_id *id, const struct connect_data *data,
	const struct rdma_cm_id *listener)
{
	const uint32_t index = check_connect_data(verbs, data, listener);
	if (index == VERBS_QPS_MAX) {
		(void)cm_of(verbs)->reject(id, NULL, 0);
		cm_of(verbs)->destroy_id(id);
		verbs->services->log(verbs->log, COLLET_LOG_WARN,
			"verbs: rejected a connection to the iWARP port for rank %u from somebody else",
			verbs->endpoint.peer);
		return COLLET_OK;
	}
	struct verbs_qp *qp = &verbs->qps[index];
	struct rdma_conn_param parameters = parameters_of(qp);
	qp->id = id;
	if (cm_of(verbs)->accept(id, &parameters) != 0)
		return fail_qp(verbs, index, "accepting", strerror(errno));
	return COLLET_OK;
}

static uint32_t qp_of(const struct verbs_endpoint *verbs, const struct rdma_cm_id *id)
{
	uint32_t index = 0;
	while (index < verbs->qp_count && verbs->qps[index].id != id)
		index++;
	return index;
}

/* Returns true if the port that rdma_cm chose for this end was in use: another attempt gets another port. */
static bool may_retry(const struct verbs_endpoint *verbs, uint32_t index, int error)
{
	return verbs->is_dialer && error == EADDRINUSE && verbs->qps[index].attempts < PORTS_TRIED;
}

static collet_status handle_event(struct verbs_endpoint *verbs, uint32_t index, enum rdma_cm_event_type type, int error)
{
	struct verbs_qp *qp = &verbs->qps[index];
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (cm_of(verbs)->resolve_route(qp->id, RESOLVE_MS) != 0)
			return fail_qp(verbs, index, "resolving the route", strerror(errno));
		return COLLET_OK;
	case RDMA_CM_EVENT_ROUTE_RESOLVED: return send_connect_data(verbs, index);
	case RDMA_CM_EVENT_ESTABLISHED: qp->is_established = true; return COLLET_OK;
	default:
		if (!may_retry(verbs, index, error))
			return fail_qp(verbs, index, cm_of(verbs)->event_str(type),
				error ? strerror(error) : "no reason given");
		cm_of(verbs)->destroy_id(qp->id);
		qp->id = NULL;
		return begin_connect(verbs, index);
	}
}

static void close_listeners(struct verbs_endpoint *verbs)
{
	for (uint32_t r = 0; r < VERBS_RAILS_MAX; r++)
		if (verbs->listeners[r]) {
			cm_of(verbs)->destroy_id(verbs->listeners[r]);
			verbs->listeners[r] = NULL;
		}
}

collet_status collet_verbs_iwarp_connect_progress(struct verbs_endpoint *verbs)
{
	const struct verbs_rdmacm *cm = cm_of(verbs);
	collet_status status = COLLET_OK;
	struct rdma_cm_event *event;
	while (status == COLLET_OK && cm->get_cm_event(verbs->cm_channel, &event) == 0) {
		/* Copies what is needed: an identifier cannot be destroyed before its events are acknowledged. */
		struct rdma_cm_id *id = event->id;
		const struct rdma_cm_id *listener = event->listen_id;
		const enum rdma_cm_event_type type = event->event;
		const int error = event->status < 0 ? -event->status : event->status;
		struct connect_data data = { .qp = VERBS_QPS_MAX };
		if (event->param.conn.private_data_len >= sizeof(data) && type == RDMA_CM_EVENT_CONNECT_REQUEST)
			memcpy(&data, event->param.conn.private_data, sizeof(data));
		cm->ack_cm_event(event);
		const uint32_t index = qp_of(verbs, id);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			status = accept_qp(verbs, id, &data, listener);
		else if (index < verbs->qp_count)
			status = handle_event(verbs, index, type, error);
	}
	if (status != COLLET_OK)
		return status;
	for (uint32_t p = 0; p < verbs->qp_count; p++)
		if (!verbs->qps[p].is_established)
			return COLLET_PENDING;
	close_listeners(verbs);
	return COLLET_OK;
}

/* ---- Closing ------------------------------------------------------------------------------------------------ */

void collet_verbs_iwarp_disconnect(struct verbs_endpoint *verbs)
{
	for (uint32_t p = 0; p < VERBS_QPS_MAX; p++) {
		if (verbs->qps[p].id)
			cm_of(verbs)->destroy_id(verbs->qps[p].id);
		verbs->qps[p].id = NULL;
	}
	close_listeners(verbs);
	if (verbs->cm_channel)
		cm_of(verbs)->destroy_event_channel(verbs->cm_channel);
	verbs->cm_channel = NULL;
}

void collet_verbs_iwarp_close_in_child(const struct verbs_endpoint *verbs)
{
	if (verbs->cm_channel)
		close(verbs->cm_channel->fd);
}
