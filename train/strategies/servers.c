#include "strategies/servers.h"

#include <stdlib.h>

#include "error.h"

uint32_t servers_count(const struct options *options)
{
	return options->servers ? options->servers : 1;
}

uint32_t servers_rank(const struct trainer *trainer, uint32_t s)
{
	return trainer->workers + s;
}

bool servers_is_one(const struct trainer *trainer)
{
	return collet_comm_rank(trainer->comm) >= trainer->workers;
}

struct range servers_part(const struct trainer *trainer, uint32_t s)
{
	return strategy_part(trainer->work, s, servers_count(trainer->options));
}

struct range servers_own_part(const struct trainer *trainer)
{
	return servers_part(trainer, collet_comm_rank(trainer->comm) - trainer->workers);
}

bool servers_create(struct trainer *trainer, collet_request ***requests)
{
	const uint32_t peers = servers_is_one(trainer) ? trainer->workers : servers_count(trainer->options);
	*requests = calloc(2 * (size_t)peers, sizeof(**requests));
	return (*requests || train_fail("no memory for requests to %u ranks", peers)) &&
		strategy_broadcast_values(trainer) && strategy_create_step_comm(trainer);
}

bool servers_exchange(struct trainer *trainer, const float *what, collet_request **requests)
{
	const uint32_t servers = servers_count(trainer->options);
	int64_t began;
	if (!strategy_communicate(trainer, &began))
		return false;
	for (uint32_t s = 0; s < servers; s++) {
		const struct range part = servers_part(trainer, s);
		const collet_how receive = { .request = &requests[2 * s] }, send = { .request = &requests[2 * s + 1] };
		if (!train_check(collet_recv(trainer->step_comm, trainer->work->values + part.first, part.count,
					 COLLET_F32, servers_rank(trainer, s), SERVERS_VALUES, NULL, &receive),
			    "receiving values from a server") ||
			!train_check(collet_send(trainer->step_comm, what + part.first, part.count, COLLET_F32,
					     servers_rank(trainer, s), SERVERS_GRADIENTS, &send),
				"sending gradients to a server"))
			return false;
	}
	if (!train_check(collet_request_wait_all(requests, 2 * (size_t)servers), "waiting for the servers"))
		return false;
	strategy_arrived(trainer, began);
	return true;
}

bool servers_share(struct trainer *trainer)
{
	if (!trainer->backend->wait(trainer->network))
		return false;
	for (uint32_t s = 0; s < servers_count(trainer->options); s++) {
		const struct range part = servers_part(trainer, s);
		float *values = trainer->work->values + part.first;
		if (!train_check(collet_broadcast(trainer->comm, values, values, part.count, COLLET_F32,
					 servers_rank(trainer, s), NULL),
			    "sharing the servers' values"))
			return false;
	}
	return true;
}
