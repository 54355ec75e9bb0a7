/* verbs, faults: what is wrong becomes a status and a sentence that names the peer, the adapter, and what the work
 * completion said. */
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

#include <arpa/inet.h>

#include "verbs_endpoint.h"

void collet_verbs_lose(struct verbs_conduit *verbs, collet_status status, const char *format, ...)
{
	if (verbs->gone)
		return;
	char what[300];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	verbs->gone = true;
	verbs->gone_status = status;
	snprintf(verbs->reason, sizeof(verbs->reason), "verbs: %s rank %u on %s (channel %u): %s",
		status == COLLET_ERR_PEER_LOST ? "lost" : "trouble with", verbs->conduit.peer, verbs->peer->host,
		verbs->conduit.channel, what);
}

const char *collet_verbs_port_state(const struct verbs_adapter *adapter)
{
	struct ibv_port_attr port = { .state = IBV_PORT_ACTIVE };
	bool asked = true;
	/* Linux's software adapters take down what note they have of a port, wait until nobody else changes network
	 * interfaces, and answer: by then the port may have gone. The second answer knows. */
	for (int i = 0; i < 2 && asked && port.state == IBV_PORT_ACTIVE; i++)
		asked = ibv_query_port(adapter->context, adapter->port, &port) == 0;
	return asked ? ibv_port_state_str(port.state) : "gone";
}

/* The other end does not answer; everything else is something that this end, or the other, did wrong. */
static bool means_lost(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR || status == IBV_WC_REM_ABORT_ERR ||
		status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_WR_FLUSH_ERR;
}

void collet_verbs_completion_failed(struct verbs_conduit *verbs, uint32_t index, const struct ibv_wc *completion)
{
	if (verbs->gone)
		return;
	const struct verbs_pair *pair = &verbs->pairs[index];
	const struct verbs_adapter *adapter = verbs->rails[pair->rail].adapter;
	char name[160], there[INET6_ADDRSTRLEN];
	collet_verbs_lose(verbs, means_lost(completion->status) ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
		"%s to %s: %s (vendor's code %u); the port is %s",
		collet_verbs_adapter_name(adapter, name, sizeof(name)),
		collet_verbs_gid_text(verbs->hear.rails[pair->peer_rail].gid, there, sizeof(there)),
		ibv_wc_status_str(completion->status), completion->vendor_err,
		collet_verbs_port_state(adapter));
}

uint32_t collet_verbs_settle_all(struct verbs_conduit *verbs, collet_status status)
{
	verbs->unsent = verbs->unmatched = NULL;
	return collet_transfer_queue_settle_all(&verbs->sends, &verbs->conduit, status) +
		collet_transfer_queue_settle_all(&verbs->receives, &verbs->conduit, status);
}

static unsigned length(const struct collet_transfer_queue *queue)
{
	unsigned count = 0;
	for (const struct collet_transfer *transfer = queue->first; transfer; transfer = transfer->next)
		count++;
	return count;
}

uint32_t collet_verbs_fail(struct verbs_conduit *verbs)
{
	verbs->conduit.status = verbs->host->fail(verbs->gone_status, "%s; %u sends and %u receives were pending",
		verbs->reason, length(&verbs->sends), length(&verbs->receives));
	/* Destroyed, not only put into error: then no adapter has anything of ours in flight. */
	collet_verbs_destroy_pairs(verbs);
	collet_verbs_forget_large(verbs);
	shutdown(verbs->socket, SHUT_RDWR);  /* the peer finds out */
	return collet_verbs_settle_all(verbs, verbs->conduit.status);
}
