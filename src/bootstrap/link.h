/* One end of a star connection: frames of a bounded size, in order, over a non-blocking stream socket. Bytes that do
 * not leave at once are queued, so that a peer that does not read holds up nobody else. The same frames and the same
 * code serve the rendezvous and, on the same connection, the control plane after it: a link never reads beyond a
 * frame. */
#ifndef COLLET_BOOTSTRAP_LINK_H
#define COLLET_BOOTSTRAP_LINK_H

#include <collet/collet.h>

/* On the wire, in the byte order that the handshake has compared. */
struct collet_frame {
	uint32_t kind;    /* enum collet_frame_kind */
	uint32_t from;    /* world ranks */
	uint32_t to;
	uint32_t type;    /* the sender's own */
	uint32_t bytes;   /* of what follows */
	uint32_t reserved0;
};

enum collet_frame_kind {
	COLLET_FRAME_PEER_INFO = 1, /* rendezvous, to rank 0: a struct collet_peer_info, then collet_binding_read()'s
	                               bytes */
	COLLET_FRAME_MISSING_RANKS, /* rendezvous, from rank 0: a sentence on who is missing */
	COLLET_FRAME_GET_MACHINE, /* rendezvous, from rank 0: how is your host built? */
	COLLET_FRAME_MACHINE,   /* rendezvous, to rank 0: struct collet_machine's cpus, or nothing */
	COLLET_FRAME_PEER_TABLE, /* rendezvous, from rank 0: how it ended, and all cards */
	COLLET_FRAME_MESSAGE,   /* control: for frame.to, or everybody */
	COLLET_FRAME_PEER_GONE, /* control, from rank 0: frame.to is gone; type 1: left in order; a sentence */
	COLLET_FRAME_BYE,       /* control: the sender closes in order */
	COLLET_FRAME_PROCESS_DIED /* control, to rank 0: the process of frame.to, on the sender's host, has ended */
};

enum {
	/* what a peer may leave unread; beyond it counts as lost. A table may be longer */
	COLLET_LINK_QUEUE_BYTES = 8 << 20
};

struct collet_link {
	int socket;                      /* -1: closed */
	uint8_t *out;                    /* queued: [out_first, out_end) */
	size_t out_first, out_end, out_capacity;
	struct collet_frame frame;       /* what is coming, or has come */
	uint8_t *in;                     /* its bytes */
	size_t in_bytes, in_capacity;    /* in_bytes: got so far, frame included */
	uint32_t frame_limit;            /* longest frame.bytes that is accepted */
};

/* Takes the socket. */
void collet_link_init(struct collet_link *link, int socket, uint32_t frame_limit);
/* Closes, frees; safe to repeat, and on one that was initialised with -1. */
void collet_link_deinit(struct collet_link *link);
/* The socket is the caller's again. Nothing may be queued or half read. */
int collet_link_release(struct collet_link *link);

/* Queues one frame and sends what can leave. COLLET_ERR_TRANSPORT: the connection is broken; COLLET_ERR_PEER_LOST: the
 * peer does not read; COLLET_ERR_MEMORY. */
collet_status collet_link_send(struct collet_link *link, const struct collet_frame *frame, const void *data);
/* COLLET_OK: nothing is queued any more. COLLET_PENDING: wait until writable. Else as above. */
collet_status collet_link_flush(struct collet_link *link);
/* COLLET_OK: link->frame and link->in hold a frame, until the next call. COLLET_PENDING: wait until readable.
 * COLLET_ERR_TRANSPORT: ended, broken, or a frame beyond frame_limit. */
collet_status collet_link_read(struct collet_link *link);

static inline bool collet_link_has_queued(const struct collet_link *link)
{
	return link->out_first != link->out_end;
}

#endif
