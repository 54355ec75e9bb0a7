/* verbs: errors. Turns each fault into a status and an error text that names the peer, the adapter and the cause that
 * the work completion gave. */
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

#include <arpa/inet.h>

#include "verbs_endpoint.h"

void collet_verbs_mark_lost(struct verbs_endpoint *verbs, collet_status status, const char *format, ...)
{
	if (verbs->is_lost)
		return;
	char what[300];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	verbs->is_lost = true;
	verbs->lost_status = status;
	snprintf(verbs->lost_reason, sizeof(verbs->lost_reason), "verbs: %s rank %u on %s (channel %u): %s",
		status == COLLET_ERR_PEER_LOST ? "lost" : "error with", verbs->endpoint.peer, verbs->peer->host,
		verbs->endpoint.channel, what);
}

const char *collet_verbs_port_state(const struct verbs_adapter *adapter)
{
	struct ibv_port_attr port = { .state = IBV_PORT_ACTIVE };
	bool is_known = true;
	/* Query twice. Linux's software adapters read the state of a port, then wait for the lock of network
	 * interfaces, and then answer. The port may have gone down meanwhile; the second answer shows that. */
	for (int i = 0; i < 2 && is_known && port.state == IBV_PORT_ACTIVE; i++)
		is_known = ibv_query_port(adapter->context, adapter->port, &port) == 0;
	return is_known ? ibv_port_state_str(port.state) : "gone";
}

/* Returns true if the completion says that the peer does not answer. All other errors are mistakes of one of the
 * ends. */
static bool is_peer_lost(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR || status == IBV_WC_REM_ABORT_ERR ||
		status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_WR_FLUSH_ERR;
}

void collet_verbs_completion_failed(struct verbs_endpoint *verbs, uint32_t index, const struct ibv_wc *completion)
{
	if (verbs->is_lost)
		return;
	const struct verbs_qp *qp = &verbs->qps[index];
	const struct verbs_adapter *adapter = verbs->rails[qp->rail].adapter;
	char name[160], peer_gid[INET6_ADDRSTRLEN];
	collet_verbs_mark_lost(verbs, is_peer_lost(completion->status) ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
		"%s to %s: %s (vendor error %u); the port is %s",
		collet_verbs_adapter_name(adapter, name, sizeof(name)),
		collet_verbs_gid_text(verbs->hello_in.rails[qp->peer_rail].gid, peer_gid, sizeof(peer_gid)),
		ibv_wc_status_str(completion->status), completion->vendor_err, collet_verbs_port_state(adapter));
}

uint32_t collet_verbs_complete_all(struct verbs_endpoint *verbs, collet_status status)
{
	verbs->unsent = verbs->unmatched = NULL;
	return collet_transfer_queue_complete_all(&verbs->sends, &verbs->endpoint, status) +
		collet_transfer_queue_complete_all(&verbs->receives, &verbs->endpoint, status);
}

static unsigned queue_length(const struct collet_transfer_queue *queue)
{
	unsigned count = 0;
	for (const struct collet_transfer *transfer = queue->first; transfer; transfer = transfer->next)
		count++;
	return count;
}

uint32_t collet_verbs_fail(struct verbs_endpoint *verbs)
{
	verbs->endpoint.status = verbs->services->fail(verbs->lost_status, "%s; %u sends and %u receives were pending",
		verbs->lost_reason, queue_length(&verbs->sends), queue_length(&verbs->receives));
	/* Destroys the queue pairs instead of only moving them to the error state: then nothing is in flight any
	 * more. */
	collet_verbs_destroy_qps(verbs);
	collet_verbs_reset_large(verbs);
	shutdown(verbs->socket, SHUT_RDWR);  /* tells the peer */
	return collet_verbs_complete_all(verbs, verbs->endpoint.status);
}
