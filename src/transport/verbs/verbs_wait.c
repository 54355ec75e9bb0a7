/* verbs: waiting. Completion channels and the end of the socket wake a sleeping rank. A rank that waits for long checks
 * the socket, which ends with the peer's process. After some time of silence it also probes whether the adapters still
 * reach each other, because a queue pair that only receives never notices that they do not. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include <arpa/inet.h>

#include "verbs_completion.h"
#include "verbs_endpoint.h"

static const int64_t probe_after_ns = INT64_C(2000000000);

int64_t collet_verbs_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Returns the most time that a probe may take to complete or fail: all retries, each up to four times as long as the
 * timeout, and 10 s more. */
int64_t collet_verbs_probe_timeout_ns(const struct verbs_options *options)
{
	return ((INT64_C(4096) << options->timeout) * (options->retries + 1)) * 4 + INT64_C(10000000000);
}

static void probe_adapters(struct verbs_endpoint *verbs, bool is_urgent)
{
	const int64_t now = collet_verbs_now_ns();
	if (is_urgent) {
		verbs->has_completed = false;
		verbs->completed_ns = now - probe_after_ns;
	} else if (verbs->has_completed || !verbs->completed_ns) {
		verbs->has_completed = false;
		verbs->completed_ns = now;
	}
	for (uint32_t p = 0; p < verbs->qp_count && !verbs->is_lost; p++) {
		struct verbs_qp *qp = &verbs->qps[p];
		char name[160], peer_gid[INET6_ADDRSTRLEN];
		/* A device that was removed reports neither success nor error. With iWARP the peer may be gone: TCP
		 * retries for a quarter of an hour. */
		if (qp->is_probing && now - qp->probed_ns > collet_verbs_probe_timeout_ns(&verbs->device->options))
			collet_verbs_mark_lost(verbs,
				verbs_is_iwarp(verbs) ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
				"%s to %s reports no completions any more; the port is %s%s",
				collet_verbs_adapter_name(verbs->rails[qp->rail].adapter, name, sizeof(name)),
				collet_verbs_gid_text(
					verbs->hello_in.rails[qp->peer_rail].gid, peer_gid, sizeof(peer_gid)),
				collet_verbs_port_state(verbs->rails[qp->rail].adapter),
				verbs_is_iwarp(verbs) ? ", is the peer's?" : "");
		if (qp->is_probing || now - verbs->completed_ns < probe_after_ns || !collet_verbs_has_room(qp))
			continue;
		qp->is_probing = true;
		qp->probed_ns = now;
		collet_verbs_post_probe(verbs, p, VERBS_TAG_EMPTY);
	}
}

void collet_verbs_check_peer(struct verbs_endpoint *verbs)
{
	char byte;
	const bool has_port_error = collet_verbs_handle_events(verbs);
	verbs->endpoint.stats.system_calls++;
	const ssize_t got = recv(verbs->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (got == 0)
		collet_verbs_mark_lost(verbs, COLLET_ERR_PEER_LOST, "it has closed its connection or died");
	else if (got < 0 && errno != EAGAIN && errno != EINTR)
		collet_verbs_mark_lost(verbs, COLLET_ERR_PEER_LOST, "its connection has ended (errno %d)", errno);
	else
		probe_adapters(verbs, has_port_error);
}

/* Makes the next completion of each queue fire its channel, once. */
static bool request_notifications(struct verbs_endpoint *verbs)
{
	for (uint32_t r = 0; r < verbs->rail_count; r++)
		if (ibv_req_notify_cq(verbs->rails[r].cq, 0) != 0)
			return false;
	return true;
}

bool collet_verbs_arm(struct collet_endpoint *endpoint)
{
	struct verbs_endpoint *verbs = (struct verbs_endpoint *)endpoint;
	if (endpoint->status != COLLET_OK || verbs->is_lost)
		return false;
	collet_verbs_check_peer(verbs);
	/* Requests notifications first and polls then: a completion in between fires an event or is found here. */
	verbs->is_armed = true;
	if (!request_notifications(verbs) || collet_verbs_poll(verbs) > 0)
		return false;
	return !verbs->is_lost && (endpoint->posted || verbs->in_matched == verbs->in_arrived);
}

void collet_verbs_disarm(struct collet_endpoint *endpoint)
{
	struct verbs_endpoint *verbs = (struct verbs_endpoint *)endpoint;
	if (!verbs->is_armed)
		return;
	verbs->is_armed = false;
	for (uint32_t r = 0; r < verbs->rail_count; r++) {
		struct ibv_cq *completions;
		void *context;
		endpoint->stats.system_calls++;
		/* Does not block: the channel is non-blocking, see watch() in verbs_connect.c. */
		while (ibv_get_cq_event(verbs->rails[r].comp_channel, &completions, &context) == 0)
			ibv_ack_cq_events(completions, 1);
	}
}
