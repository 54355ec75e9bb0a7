/* Helpers to drive the two ends of a pair that uses verbs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "verbs_ends.h"

void exchange(struct pair *pair, uint64_t sequence, uint8_t *from, uint8_t *into, size_t bytes)
{
	struct collet_transfer send = transfer_of(sequence, from, bytes), receive = transfer_of(sequence, into, bytes);
	pattern_fill(from, bytes, sequence);
	memset(into, 0xee, bytes);
	post_recv(&pair->ends[1], &receive);
	post_send(&pair->ends[0], &send);
	assert_true(pair_complete(pair, &receive) && pair_complete(pair, &send));
	assert_int_equal(receive.status, COLLET_OK);
	assert_int_equal(send.status, COLLET_OK);
	assert_true(pattern_is(into, bytes, sequence));
}

void reopen(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		pair->transport->close(pair->ends[i].endpoint);
		memset(pair->ends[i].endpoint, 0, pair->transport->endpoint_bytes);
	}
	pair_connect_tcp(pair);
	for (int i = 0; i < 2; i++) {
		struct end *end = &pair->ends[i];
		const struct collet_endpoint_config config = { .self = &end->peer_info,
			.peer = &pair->ends[!i].peer_info,
			.channel = 3,
			.dialed = i == 0,
			.socket = pair->sockets[i],
			.wake = &end->wake,
			.log = &end->log,
			.services = &collet_transport_services,
			.device = end->instance->device };
		pair->sockets[i] = -1;
		end->endpoint->transport = end->instance->transport;
		end->endpoint->peer = pair->ends[!i].peer_info.rank;
		end->endpoint->channel = 3;
		assert_int_equal(pair->transport->open(end->endpoint, &config), COLLET_OK);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_await(pair, i), COLLET_OK);
}
