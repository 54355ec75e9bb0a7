#include "bootstrap/meet/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/identity.h"
#include "bootstrap/interface.h"
#include "bootstrap/interface_speed.h"
#include "core/status.h"

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static collet_status listen_unix(struct collet_meeting *meeting)
{
	struct collet_card *card = meeting->card;
	struct collet_endpoint endpoint;
	uint8_t random[16];
	collet_status status = collet_random(random, sizeof(random));
	if (status)
		return status;
	memcpy(card->unix_name, "collet-", 7);
	collet_hex(card->unix_name + 7, random, sizeof(random));
	collet_endpoint_unix(&endpoint, card->unix_name);
	return collet_socket_listen(&endpoint, 0, 0, &meeting->bootstrap->listen_unix);
}

static collet_status listen_tcp(struct collet_meeting *meeting, const struct collet_endpoint *at)
{
	const struct collet_launch *launch = meeting->launch;
	struct collet_card *card = meeting->card;
	struct collet_endpoint endpoint = *at;
	collet_endpoint_set_port(&endpoint, 0);
	collet_status status = collet_socket_listen(&endpoint, launch->port_first, launch->port_last,
		&meeting->bootstrap->listen_tcp);
	if (status == COLLET_ERR_BUSY && launch->port_first)
		return collet_fail(COLLET_ERR_CONFIG, "no port from %u to %u is free (COLLET_PORT_RANGE)",
			launch->port_first, launch->port_last);
	if (status)
		return status;
	card->family = endpoint.any.sa_family;
	card->port = collet_endpoint_port(&endpoint);
	card->scope_id = card->family == AF_INET6 ? endpoint.v6.sin6_scope_id : 0;
	if (card->family == AF_INET)
		memcpy(card->address, &endpoint.v4.sin_addr, 4);
	else
		memcpy(card->address, &endpoint.v6.sin6_addr, 16);
	if (!card->link_mbps)  /* no transport has adapters of its own */
		card->link_mbps = collet_interface_mbps(&endpoint);
	char text[COLLET_ENDPOINT_TEXT];
	collet_log(meeting->log, COLLET_LOG_DEBUG, "listens on %s and unix:%s", collet_endpoint_print(&endpoint, text),
		card->unix_name);
	return COLLET_OK;
}

collet_status collet_meeting_listen(struct collet_meeting *meeting, const struct collet_endpoint *at)
{
	struct collet_endpoint loopback, chosen;
	const char *interface = meeting->launch->interface;
	collet_status status = listen_unix(meeting);
	if (status)
		return status;
	if (*interface && !(at && collet_interface_allows(interface, at))) {
		status = collet_interface_choose(interface, at, &chosen);
		return status ? status : listen_tcp(meeting, &chosen);
	}
	if (at)
		return listen_tcp(meeting, at);
	const struct in_addr v4 = { .s_addr = htonl(INADDR_LOOPBACK) };
	collet_endpoint_ip(&loopback, AF_INET, &v4, 0, 0);
	status = listen_tcp(meeting, &loopback);
	if (status != COLLET_ERR_UNSUPPORTED && status != COLLET_ERR_SYSTEM)
		return status;
	collet_endpoint_ip(&loopback, AF_INET6, &in6addr_loopback, 0, 0);
	status = listen_tcp(meeting, &loopback);
	if (status)  /* one host, no loopback: shared memory still works */
		collet_log(meeting->log, COLLET_LOG_INFO, "has no TCP address: %s", collet_last_error());
	return COLLET_OK;
}

collet_status collet_meeting_admit(const struct collet_launch *launch, int socket)
{
	uint32_t uid;
	if (launch->secret_bytes)
		return COLLET_OK;  /* the handshake proves more */
	if (!collet_socket_peer_uid(socket, &uid))
		return collet_fail(COLLET_ERR_AUTH, "without a secret only Unix sockets are accepted");
	if (uid != (uint32_t)geteuid())
		return collet_fail(COLLET_ERR_AUTH,
			"the other end belongs to user %u, this rank to user %lu, and there is no secret", uid,
			(unsigned long)geteuid());
	return COLLET_OK;
}

static collet_status meet_alone(struct collet_meeting *meeting)
{
	struct collet_bootstrap *b = meeting->bootstrap;
	uint8_t nonce[32];
	b->cards = malloc(sizeof(*b->cards));
	if (!b->cards)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a card");
	b->cards[0] = *meeting->card;
	collet_status status = collet_random(nonce, sizeof(nonce));
	if (!status)
		status = collet_session_key(b->session_key, meeting->launch, nonce);
	if (!status && meeting->make_blob)
		status = meeting->make_blob(meeting->context, b->cards, 1, &b->blob, &b->blob_bytes);
	return status;
}

static collet_status meet(struct collet_meeting *meeting)
{
	const struct collet_launch *launch = meeting->launch;
	struct collet_card *card = meeting->card;
	collet_status status = collet_card_describe_host(card);
	if (status)
		return status;
	card->rank = launch->rank;
	if (launch->size == 1)
		return meet_alone(meeting);
	status = collet_store_init(&meeting->store, launch);
	if (status)
		return status;
	return launch->rank == 0 ? collet_meet_as_root(meeting) : collet_meet_as_guest(meeting);
}

collet_status collet_bootstrap_meet(struct collet_bootstrap *bootstrap, const struct collet_launch *launch,
	struct collet_card *card, collet_make_blob make_blob, void *context, const struct collet_log *log)
{
	struct collet_meeting meeting = {
		.bootstrap = bootstrap,
		.launch = launch,
		.card = card,
		.make_blob = make_blob,
		.context = context,
		.log = log,
		.deadline = collet_deadline_after(launch->rendezvous_timeout_ns),
	};
	*bootstrap = (struct collet_bootstrap){ .listen_tcp = -1, .listen_unix = -1 };
	bootstrap->star = malloc(sizeof(int) * launch->size);
	if (!bootstrap->star)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for %u connections", launch->size);
	for (uint32_t i = 0; i < launch->size; i++)
		bootstrap->star[i] = -1;
	bootstrap->star_count = launch->size;
	collet_status status = meet(&meeting);
	if (status) {
		char sentence[COLLET_ERROR_BYTES];
		snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
		collet_bootstrap_deinit(bootstrap);
		return collet_fail_again(status, sentence);
	}
	*card = bootstrap->cards[launch->rank];  /* rank 0 knew more of it */
	return COLLET_OK;
}

void collet_bootstrap_deinit(struct collet_bootstrap *bootstrap)
{
	if (bootstrap->star) {  /* NULL: zeroed, or done before; then no descriptor is ours either */
		for (uint32_t i = 0; i < bootstrap->star_count; i++)
			close_fd(&bootstrap->star[i]);
		close_fd(&bootstrap->listen_tcp);
		close_fd(&bootstrap->listen_unix);
	}
	free(bootstrap->star);
	free(bootstrap->cards);
	free(bootstrap->blob);
	collet_wipe(bootstrap->session_key, sizeof(bootstrap->session_key));
	*bootstrap = (struct collet_bootstrap){ .listen_tcp = -1, .listen_unix = -1 };
}
