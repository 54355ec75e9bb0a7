/* Sends and receives frames of bounded size over a non-blocking stream socket, between rank 0 and one other rank. Bytes
 * that cannot be sent now are queued, so a peer that does not read delays nobody else. The bootstrap and later the
 * control plane use the same connection. This works because a link never reads beyond a frame. */
#ifndef COLLET_BOOTSTRAP_FRAMED_SOCKET_H
#define COLLET_BOOTSTRAP_FRAMED_SOCKET_H

#include <collet/collet.h>

/* The header of a frame, as sent, in the byte order that the handshake has compared. */
struct collet_frame {
	uint32_t kind;    /* enum collet_frame_kind */
	uint32_t from;    /* world ranks */
	uint32_t to;
	uint32_t type;    /* defined by the sender */
	uint32_t bytes;   /* length of the data that follow */
	uint32_t may_drop; /* of a message: see collet_control_send_droppable() */
};

enum collet_frame_kind {
	/* During the bootstrap. */
	COLLET_FRAME_PEER_INFO = 1, /* to rank 0: struct collet_peer_info, then the bytes of collet_binding_read() */
	COLLET_FRAME_MISSING_RANKS, /* from rank 0: a sentence that names the missing ranks */
	COLLET_FRAME_GET_TOPOLOGY,  /* from rank 0: asks for the topology of the receiver's host */
	COLLET_FRAME_TOPOLOGY,      /* to rank 0: the cpus of struct collet_host_topology, or nothing */
	COLLET_FRAME_PEER_TABLE,    /* from rank 0: the outcome and all peer infos */
	/* In the control plane. */
	COLLET_FRAME_MESSAGE,       /* a message to frame.to, or to all ranks */
	COLLET_FRAME_PEER_GONE,     /* from rank 0: frame.to is gone, with a sentence; type: enum collet_gone_reason */
	COLLET_FRAME_BYE,           /* the sender closes in order */
	COLLET_FRAME_PROCESS_DIED   /* to rank 0: the process of frame.to, on the sender's host, has ended */
};

/* Why a rank is gone: its process or its connection ended, or it closed its context in order (COLLET_FRAME_BYE). */
enum collet_gone_reason { COLLET_GONE_DIED, COLLET_GONE_LEFT };

enum {
	/* The bytes that may be queued for a peer during the bootstrap. A peer that reads slower counts as lost. One
	 * longer frame (the peer table) is accepted if the queue is empty. */
	COLLET_FRAMED_SOCKET_QUEUE_BYTES = 8 << 20
};

struct collet_framed_socket {
	int socket;                      /* -1: closed */
	uint8_t *out;                    /* queued bytes: [out_first, out_end) */
	size_t out_first, out_end, out_capacity;
	size_t queue_limit;              /* COLLET_FRAMED_SOCKET_QUEUE_BYTES, unless the owner sets another */
	struct collet_frame frame;       /* header of the frame that is being received, or has been */
	uint8_t *in;                     /* its data */
	size_t in_bytes, in_capacity;    /* in_bytes: received so far, with the header */
	uint32_t frame_limit;            /* longest frame.bytes that is accepted */
};

/* Takes ownership of the socket. */
void collet_framed_socket_init(struct collet_framed_socket *connection, int socket, uint32_t frame_limit);
/* Closes the socket and frees. May be called twice, and on a link that was initialised with -1. */
void collet_framed_socket_deinit(struct collet_framed_socket *connection);
/* Gives the socket back to the caller. No bytes may be queued, and no frame half read. */
int collet_framed_socket_release(struct collet_framed_socket *connection);

/* Queues one frame and sends what the socket accepts. Returns COLLET_ERR_TRANSPORT if the connection is broken,
 * COLLET_ERR_PEER_LOST if the peer does not read, or COLLET_ERR_MEMORY. */
collet_status collet_framed_socket_send(
	struct collet_framed_socket *connection, const struct collet_frame *frame, const void *data);
/* Sends queued bytes. Returns COLLET_OK if none are left, COLLET_PENDING if the caller must wait until the socket is
 * writable, else an error as above. */
collet_status collet_framed_socket_flush(struct collet_framed_socket *connection);
/* Reads one frame. COLLET_OK: link->frame and link->in hold it until the next call. COLLET_PENDING: wait until the
 * socket is readable. COLLET_ERR_TRANSPORT: the connection ended or broke, or the frame exceeds frame_limit. */
collet_status collet_framed_socket_read(struct collet_framed_socket *connection);

static inline size_t collet_framed_socket_queued_bytes(const struct collet_framed_socket *connection)
{
	return connection->out_end - connection->out_first;
}

static inline bool collet_framed_socket_has_queued(const struct collet_framed_socket *connection)
{
	return collet_framed_socket_queued_bytes(connection) != 0;
}

#endif
