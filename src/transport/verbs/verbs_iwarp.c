/* verbs, iWARP: its queue pairs are connected by rdma_cm, which speaks TCP of its own. The end that accepted the socket
 * listens with each of its adapters and tells the ports in its hello, with a pass; the end that dialed connects each
 * queue pair, showing pass and number. So strangers who find a port get nowhere, and nothing but the hello, which came
 * over an authenticated connection, says who connects with whom. Everything happens on one event channel, which is
 * asked without waiting; the ports are closed when all queue pairs are connected.
 *
 * Queue pairs are made on our own contexts, not on rdma_cm's: so events, registrations and counts are as everywhere. */
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
#include "verbs_rdmacm.h"

enum { RESOLVE_MS = 10000, PORTS_TRIED = 8 };

/* Shown by the end that connects. */
struct ticket {
	uint8_t pass[sizeof(((struct verbs_hello *)0)->pass)];
	uint32_t pair;
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

/* As a GID; false: one that is not routed, or of another family. */
static bool as_gid(const struct sockaddr *address, int family, uint8_t gid[16])
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

static bool leads_to(const struct verbs_rdmacm *cm, struct rdma_event_channel *channel, const uint8_t gid[16],
	const struct verbs_adapter *adapter)
{
	struct rdma_cm_id *id;
	union address address = address_of(gid, 0);
	if (cm->create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
		return false;
	const bool leads = cm->bind_addr(id, &address.any) == 0 && id->verbs && id->port_num == adapter->port &&
			   strcmp(ibv_get_device_name(id->verbs->device), adapter->name) == 0;
	cm->destroy_id(id);
	return leads;
}

/* The first address of the family with which rdma_cm comes to this adapter. */
static bool look_for_address(const struct verbs_rdmacm *cm, struct rdma_event_channel *channel,
	const struct ifaddrs *interfaces, int family, struct verbs_adapter *adapter)
{
	for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next) {
		uint8_t gid[16];
		if (!(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK) || !as_gid(at->ifa_addr, family, gid) ||
			!leads_to(cm, channel, gid, adapter))
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
		return "is iWARP, and rdma_cm is not to be had (is rdma_ucm loaded, and /dev/infiniband/rdma_cm there "
		       "for us?)";
	struct ifaddrs *interfaces = NULL;
	const bool found =
		getifaddrs(&interfaces) == 0 && (look_for_address(cm, channel, interfaces, AF_INET, adapter) ||
							look_for_address(cm, channel, interfaces, AF_INET6, adapter));
	if (interfaces)
		freeifaddrs(interfaces);
	cm->destroy_event_channel(channel);
	return found ? NULL : "is iWARP, and has no IP address that is routed";
}

/* ---- Beginning ---------------------------------------------------------------------------------------------- */

static const struct verbs_rdmacm *cm_of(const struct verbs_conduit *verbs)
{
	return verbs->device->rdmacm;
}

static collet_status make_channel(struct verbs_conduit *verbs)
{
	verbs->channel = cm_of(verbs)->create_event_channel();
	if (!verbs->channel)
		return collet_verbs_refuse(verbs, "no rdma_cm", strerror(errno));
	const int flags = fcntl(verbs->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(verbs->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return collet_verbs_refuse(verbs, "cannot set up rdma_cm", strerror(errno));
	return COLLET_OK;
}

/* The port that rdma_cm chooses may be a socket's, which only shows in listening. */
static collet_status listen_on(struct verbs_conduit *verbs, uint32_t rail)
{
	const struct verbs_rdmacm *cm = cm_of(verbs);
	const struct verbs_adapter *adapter = verbs->rails[rail].adapter;
	int error = EADDRINUSE;
	for (unsigned tried = 0; tried < PORTS_TRIED && error == EADDRINUSE; tried++) {
		struct rdma_cm_id *id;
		union address address = address_of(adapter->gid.raw, 0);
		if (cm->create_id(verbs->channel, &id, NULL, RDMA_PS_TCP) != 0)
			return collet_verbs_refuse(verbs, "no rdma_cm identifier", strerror(errno));
		if (cm->bind_addr(id, &address.any) == 0 && cm->listen(id, PAIRS_MOST) == 0) {
			verbs->listeners[rail] = id;
			verbs->say.rails[rail].port =
				ntohs(id->route.addr.src_addr.sa_family == AF_INET ? id->route.addr.src_sin.sin_port
										   : id->route.addr.src_sin6.sin6_port);
			return COLLET_OK;
		}
		error = errno;
		cm->destroy_id(id);
	}
	char name[160];
	collet_verbs_adapter_name(adapter, name, sizeof(name));
	return collet_verbs_refuse(verbs, name, strerror(error));
}

collet_status collet_verbs_iwarp_await(struct verbs_conduit *verbs)
{
	collet_status status = make_channel(verbs);
	if (status == COLLET_OK &&
		getrandom(verbs->say.pass, sizeof(verbs->say.pass), GRND_NONBLOCK) != sizeof(verbs->say.pass))
		status = collet_verbs_refuse(verbs, "no random bytes", strerror(errno));
	for (uint32_t r = 0; r < verbs->rail_count && status == COLLET_OK; r++)
		status = listen_on(verbs, r);
	return status;
}

/* Of this queue pair, at this step. */
static collet_status refuse_pair(const struct verbs_conduit *verbs, uint32_t index, const char *step, const char *why)
{
	const struct verbs_pair *pair = &verbs->pairs[index];
	char name[160], there[INET6_ADDRSTRLEN], what[300];
	snprintf(what, sizeof(what), "cannot connect %s to %s port %u: %s",
		collet_verbs_adapter_name(verbs->rails[pair->rail].adapter, name, sizeof(name)),
		collet_verbs_gid_text(verbs->hear.rails[pair->peer_rail].gid, there, sizeof(there)),
		verbs->hear.rails[pair->peer_rail].port, step);
	return collet_verbs_refuse(verbs, what, why);
}

static collet_status dial(struct verbs_conduit *verbs, uint32_t index)
{
	const struct verbs_rdmacm *cm = cm_of(verbs);
	struct verbs_pair *pair = &verbs->pairs[index];
	union address from = address_of(verbs->rails[pair->rail].adapter->gid.raw, 0);
	union address to = address_of(verbs->hear.rails[pair->peer_rail].gid, verbs->hear.rails[pair->peer_rail].port);
	uint8_t class = verbs->device->options.traffic_class;
	pair->dials++;
	if (cm->create_id(verbs->channel, &pair->id, NULL, RDMA_PS_TCP) != 0)
		return refuse_pair(verbs, index, "no rdma_cm identifier", strerror(errno));
	if (class && cm->set_option(pair->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &class, sizeof(class)) != 0)
		return refuse_pair(verbs, index, "it takes no COLLET_VERBS_TRAFFIC_CLASS", strerror(errno));
	if (cm->resolve_addr(pair->id, &from.any, &to.any, RESOLVE_MS) != 0)
		return refuse_pair(verbs, index, "resolving the address", strerror(errno));
	return COLLET_OK;
}

collet_status collet_verbs_iwarp_connect(struct verbs_conduit *verbs)
{
	collet_status status = make_channel(verbs);
	for (uint32_t p = 0; p < verbs->pair_count && status == COLLET_OK; p++)
		status = dial(verbs, p);
	return status;
}

/* ---- Events ------------------------------------------------------------------------------------------------- */

/* One read each way may be in flight: by it an adapter is asked whether it is there. */
static struct rdma_conn_param parameters_of(const struct verbs_pair *pair)
{
	return (struct rdma_conn_param){ .responder_resources = 1, .initiator_depth = 1, .qp_num = pair->pair->qp_num };
}

static collet_status show_ticket(struct verbs_conduit *verbs, uint32_t index)
{
	struct ticket ticket = { .pair = index };
	memcpy(ticket.pass, verbs->hear.pass, sizeof(ticket.pass));
	struct rdma_conn_param parameters = parameters_of(&verbs->pairs[index]);
	parameters.private_data = &ticket;
	parameters.private_data_len = sizeof(ticket);
	if (cm_of(verbs)->connect(verbs->pairs[index].id, &parameters) != 0)
		return refuse_pair(verbs, index, "connecting", strerror(errno));
	return COLLET_OK;
}

/* Which queue pair the ticket is for; PAIRS_MOST: it is none of ours. */
static uint32_t check_ticket(
	const struct verbs_conduit *verbs, const struct ticket *ticket, const struct rdma_cm_id *listener)
{
	if (memcmp(ticket->pass, verbs->say.pass, sizeof(ticket->pass)) != 0 || ticket->pair >= verbs->pair_count)
		return PAIRS_MOST;
	const struct verbs_pair *pair = &verbs->pairs[ticket->pair];
	return pair->id || verbs->listeners[pair->rail] != listener ? PAIRS_MOST : ticket->pair;
}

static collet_status let_in(struct verbs_conduit *verbs, struct rdma_cm_id *id, const struct ticket *ticket,
	const struct rdma_cm_id *listener)
{
	const uint32_t index = check_ticket(verbs, ticket, listener);
	if (index == PAIRS_MOST) {
		(void)cm_of(verbs)->reject(id, NULL, 0);
		cm_of(verbs)->destroy_id(id);
		verbs->host->log(verbs->log, COLLET_LOG_WARN,
			"verbs: somebody who is not rank %u has connected to its iWARP port, and was rejected",
			verbs->conduit.peer);
		return COLLET_OK;
	}
	struct verbs_pair *pair = &verbs->pairs[index];
	struct rdma_conn_param parameters = parameters_of(pair);
	pair->id = id;
	if (cm_of(verbs)->accept(id, &parameters) != 0)
		return refuse_pair(verbs, index, "accepting", strerror(errno));
	return COLLET_OK;
}

static uint32_t pair_of(const struct verbs_conduit *verbs, const struct rdma_cm_id *id)
{
	uint32_t index = 0;
	while (index < verbs->pair_count && verbs->pairs[index].id != id)
		index++;
	return index;
}

/* As when listening: the port that rdma_cm chose for this end may be taken. */
static bool may_dial_again(const struct verbs_conduit *verbs, uint32_t index, int error)
{
	return verbs->dialed && error == EADDRINUSE && verbs->pairs[index].dials < PORTS_TRIED;
}

static collet_status heed(struct verbs_conduit *verbs, uint32_t index, enum rdma_cm_event_type type, int error)
{
	struct verbs_pair *pair = &verbs->pairs[index];
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (cm_of(verbs)->resolve_route(pair->id, RESOLVE_MS) != 0)
			return refuse_pair(verbs, index, "resolving the route", strerror(errno));
		return COLLET_OK;
	case RDMA_CM_EVENT_ROUTE_RESOLVED: return show_ticket(verbs, index);
	case RDMA_CM_EVENT_ESTABLISHED: pair->established = true; return COLLET_OK;
	default:
		if (!may_dial_again(verbs, index, error))
			return refuse_pair(verbs, index, cm_of(verbs)->event_str(type),
				error ? strerror(error) : "no reason given");
		cm_of(verbs)->destroy_id(pair->id);
		pair->id = NULL;
		return dial(verbs, index);
	}
}

static void close_doors(struct verbs_conduit *verbs)
{
	for (uint32_t r = 0; r < RAILS_MOST; r++)
		if (verbs->listeners[r]) {
			cm_of(verbs)->destroy_id(verbs->listeners[r]);
			verbs->listeners[r] = NULL;
		}
}

collet_status collet_verbs_iwarp_connecting(struct verbs_conduit *verbs)
{
	const struct verbs_rdmacm *cm = cm_of(verbs);
	collet_status status = COLLET_OK;
	struct rdma_cm_event *event;
	while (status == COLLET_OK && cm->get_cm_event(verbs->channel, &event) == 0) {
		/* An identifier cannot be destroyed before its events are acknowledged, so what matters is copied. */
		struct rdma_cm_id *id = event->id;
		const struct rdma_cm_id *listener = event->listen_id;
		const enum rdma_cm_event_type type = event->event;
		const int error = event->status < 0 ? -event->status : event->status;
		struct ticket ticket = { .pair = PAIRS_MOST };
		if (event->param.conn.private_data_len >= sizeof(ticket) && type == RDMA_CM_EVENT_CONNECT_REQUEST)
			memcpy(&ticket, event->param.conn.private_data, sizeof(ticket));
		cm->ack_cm_event(event);
		const uint32_t index = pair_of(verbs, id);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			status = let_in(verbs, id, &ticket, listener);
		else if (index < verbs->pair_count)
			status = heed(verbs, index, type, error);
	}
	if (status != COLLET_OK)
		return status;
	for (uint32_t p = 0; p < verbs->pair_count; p++)
		if (!verbs->pairs[p].established)
			return COLLET_PENDING;
	close_doors(verbs);
	return COLLET_OK;
}

/* ---- The end ------------------------------------------------------------------------------------------------ */

void collet_verbs_iwarp_hang_up(struct verbs_conduit *verbs)
{
	for (uint32_t p = 0; p < PAIRS_MOST; p++) {
		if (verbs->pairs[p].id)
			cm_of(verbs)->destroy_id(verbs->pairs[p].id);
		verbs->pairs[p].id = NULL;
	}
	close_doors(verbs);
	if (verbs->channel)
		cm_of(verbs)->destroy_event_channel(verbs->channel);
	verbs->channel = NULL;
}

void collet_verbs_iwarp_leave_in_child(const struct verbs_conduit *verbs)
{
	if (verbs->channel)
		close(verbs->channel->fd);
}
