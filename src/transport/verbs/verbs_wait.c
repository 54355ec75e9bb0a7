/* verbs, waiting: asleep, a rank is woken by its completion channels and by the socket's end. Whoever waits for long
 * looks whether the peer's process is there (the socket tells) and, when nothing has come for a while, whether the
 * adapters still reach each other: a queue pair that only receives never finds out by itself. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include <arpa/inet.h>

#include "verbs_endpoint.h"

static const int64_t silence_ns = INT64_C(2000000000);

int64_t collet_verbs_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* How long an adapter may take to say that an empty write has come or has not: its retries, each up to four times as
 * long as asked for, and some more. */
int64_t collet_verbs_answer_ns(const struct verbs_options *options)
{
	return ((INT64_C(4096) << options->timeout) * (options->retries + 1)) * 4 + INT64_C(10000000000);
}

static void ask_adapters(struct verbs_conduit *verbs, bool at_once)
{
	const int64_t now = collet_verbs_now_ns();
	if (at_once) {
		verbs->heard = false;
		verbs->heard_ns = now - silence_ns;
	} else if (verbs->heard || !verbs->heard_ns) {
		verbs->heard = false;
		verbs->heard_ns = now;
	}
	for (uint32_t p = 0; p < verbs->pair_count && !verbs->gone; p++) {
		struct verbs_pair *pair = &verbs->pairs[p];
		char name[160], there[INET6_ADDRSTRLEN];
		/* Neither an acknowledgement nor an error: a device that has been removed is as quiet as that. iWARP's
		 * waits for TCP, which does not give up for a quarter of an hour. */
		if (pair->asking && now - pair->asked_ns > collet_verbs_answer_ns(&verbs->device->options))
			collet_verbs_lose(verbs, verbs_is_iwarp(verbs) ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
				"%s to %s completes nothing any more; the port is %s%s",
				collet_verbs_adapter_name(verbs->rails[pair->rail].adapter, name, sizeof(name)),
				collet_verbs_gid_text(verbs->hear.rails[pair->peer_rail].gid, there, sizeof(there)),
				collet_verbs_port_state(verbs->rails[pair->rail].adapter),
				verbs_is_iwarp(verbs) ? ", is the peer's?" : "");
		if (pair->asking || now - verbs->heard_ns < silence_ns || !collet_verbs_room(pair))
			continue;
		pair->asking = true;
		pair->asked_ns = now;
		collet_verbs_write_empty(verbs, p, TAG_EMPTY);
	}
}

void collet_verbs_look_for_peer(struct verbs_conduit *verbs)
{
	char byte;
	const bool alarmed = collet_verbs_heed_events(verbs);
	verbs->conduit.stats.system_calls++;
	const ssize_t got = recv(verbs->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (got == 0)
		collet_verbs_lose(verbs, COLLET_ERR_PEER_LOST, "it has closed its connection or died");
	else if (got < 0 && errno != EAGAIN && errno != EINTR)
		collet_verbs_lose(verbs, COLLET_ERR_PEER_LOST, "its connection has ended (errno %d)", errno);
	else
		ask_adapters(verbs, alarmed);
}

/* The next completion makes the channel readable, once. */
static bool ask_for_events(struct verbs_conduit *verbs)
{
	for (uint32_t r = 0; r < verbs->rail_count; r++)
		if (ibv_req_notify_cq(verbs->rails[r].completions, 0) != 0)
			return false;
	return true;
}

bool collet_verbs_arm(struct collet_conduit *conduit)
{
	struct verbs_conduit *verbs = (struct verbs_conduit *)conduit;
	if (conduit->status != COLLET_OK || verbs->gone)
		return false;
	collet_verbs_look_for_peer(verbs);
	/* Asked first and looked then: what completes in between makes an event or is found here. */
	verbs->armed = true;
	if (!ask_for_events(verbs) || collet_verbs_poll(verbs) > 0)
		return false;
	return !verbs->gone && (conduit->posted || verbs->in_taken == verbs->in_come);
}

void collet_verbs_disarm(struct collet_conduit *conduit)
{
	struct verbs_conduit *verbs = (struct verbs_conduit *)conduit;
	if (!verbs->armed)
		return;
	verbs->armed = false;
	for (uint32_t r = 0; r < verbs->rail_count; r++) {
		struct ibv_cq *completions;
		void *context;
		conduit->stats.system_calls++;
		/* Not blocking: see opening. */
		while (ibv_get_cq_event(verbs->rails[r].channel, &completions, &context) == 0)
			ibv_ack_cq_events(completions, 1);
	}
}
