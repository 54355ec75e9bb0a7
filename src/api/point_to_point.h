/* Starts sends and receives that have been checked. */
#ifndef COLLET_API_POINT_TO_POINT_H
#define COLLET_API_POINT_TO_POINT_H

#include "api/comm.h"

/* One send or receive. */
struct collet_p2p_op {
	bool is_send;
	void *buffer;
	uint64_t count;
	uint32_t peer, tag;
	collet_received *received;
	struct collet_bounce_buffer *bounce_buffer; /* engine/p2p/bounce_buffer.h; NULL if there is none */
};
/* Starts the operations, as one request if they are several. Only lack of memory makes it fail, which ends the
 * communicator. Returns NULL if nothing has been started. Under lock. */
struct collet_request *collet_p2p_ops_start(
	collet_comm *comm, const struct collet_p2p_op *ops, uint32_t count, collet_dtype dtype, int64_t timeout_ns);

#endif
