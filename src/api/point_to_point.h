/* Sends and receives, as what starts them later has them. */
#ifndef COLLET_API_POINT_TO_POINT_H
#define COLLET_API_POINT_TO_POINT_H

#include "api/comm.h"

/* A send or a receive. */
struct collet_p2p_op {
	bool is_send;
	void *buffer;
	uint64_t count;
	uint32_t peer, tag;
	collet_received *received;
	struct collet_bounce_buffer *bounce_buffer; /* see engine/p2p/bounce_buffer.h; NULL: none */
};
/* Starts them, as one request if they are several. Only for want of memory it cannot, which ends the communicator;
 * NULL: nothing has been started. Under lock. */
struct collet_request *collet_p2p_ops_start(
	collet_comm *comm, const struct collet_p2p_op *ops, uint32_t count, collet_dtype dtype, int64_t timeout_ns);

#endif
