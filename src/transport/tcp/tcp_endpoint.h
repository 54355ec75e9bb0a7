/* Defines a tcp endpoint: one TCP connection. A message is a header of 32 bytes and then its bytes, each way in posting
 * order.
 *
 * What makes it fast:
 * - A send is one system call: header and payload are gathered, and queued messages join them.
 * - A receive of a small message is one system call too, into a buffer that also takes the next messages.
 * - A large payload is received straight into its destination, together with the header that follows it.
 * - The kernel holds small messages together if their sender sends many without waiting (tcp_delayed_ack.c).
 *
 * User memory is written only after the header has been compared with the posted receive. Only wanted bytes are read,
 * so the socket holds a fast sender back.
 *
 * The peer's bytes are not trusted: they choose no address and no length, and nothing is allocated because of them. */
#ifndef COLLET_TRANSPORT_TCP_TCP_ENDPOINT_H
#define COLLET_TRANSPORT_TCP_TCP_ENDPOINT_H

#include "transport/registry.h"

enum {
	/* The payload of a larger message is not read into the buffer but into its destination. One system call more,
	 * with the acknowledgement that it causes, costs less than copying the payload twice. */
	TCP_BUFFERED_MAX = 16384,
	TCP_BUFFER_BYTES = TCP_BUFFERED_MAX + 64,   /* with its header and the next one's */
	/* Limit of bytes that one call of progress() moves each way. It is large enough to hide the system call. It is
	 * small enough that other endpoints and the other direction get their turn while the bytes are in cache. */
	TCP_PROGRESS_BYTES = 1 << 20,
	/* Queued messages sent by one system call. */
	TCP_BATCH = 16,
	/* Payloads up to this size are copied behind their header before they are sent. The kernel takes one part 50 ns
	 * faster than two. */
	TCP_COPIED_MAX = 4096,
	/* Limit of copied payload bytes for one system call. */
	TCP_COPIED_BYTES = 8192,
	/* Small messages in a row without a wait that make the sender a burst sender. */
	TCP_BURST_COUNT = 8,
	/* Empty reads before a receiver asks for what the sender's kernel may hold back. */
	TCP_EMPTY_READS = 2,
	/* An endpoint leaves the epoll set after this many messages received without a sleep. */
	TCP_UNWATCH_AFTER = 256
};

enum tcp_state {
	TCP_CLOSED = 0,   /* also the state of a zeroed struct; there is no socket */
	TCP_SEND_HELLO,   /* waits for room to send the hello */
	TCP_AWAIT_HELLO,  /* waits for the peer's hello */
	TCP_SEND_ACCEPTED, /* waits for room to accept the peer's hello */
	TCP_AWAIT_ACCEPTED,/* waits for the peer to accept this hello */
	TCP_READY         /* messages may follow */
};

/* Precedes every message. Both ends have the same byte order: the version check of the bootstrap compares it. */
struct tcp_header {
	uint16_t magic;
	uint16_t cpu;    /* the sender's collet_wake.shared_cpu: an unchecked hint */
	/* Covers the three fields of the message, so that other bytes are not mistaken for the header of a wrong
	 * message. */
	uint32_t checksum;
	struct collet_message message;
};

/* Sent by both ends before the first message. */
struct tcp_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t is_accepted; /* 0: hello; 1: accepts the other's hello */
	uint32_t from, to;  /* ranks */
	uint32_t channel;
	uint32_t reserved0;
};

struct tcp_endpoint {
	struct collet_endpoint endpoint;
	enum tcp_state state;
	int socket;
	int epoll_fd;
	uint32_t owner_pid; /* the process that opened it: a forked child must not shut the parent's connection down */
	const struct collet_peer_info *self, *peer;
	int64_t host_checked_ns;          /* when the peer's host was last checked for silence */
	bool is_watched;                  /* in the epoll set */
	bool is_armed;                    /* the rank may sleep and rely on the epoll set */
	uint32_t messages_since_arm;      /* messages received since the last arm(), while in the epoll set */

	const struct collet_wake *wake;   /* this rank's. For this and the following fields see tcp_delayed_ack.c */
	bool is_local;                    /* the peer is on this host */
	bool is_burst;                    /* the headers sent now announce a burst (TCP_BURST_MAGIC) */
	bool is_burst_announced;          /* a header that was sent has announced it */
	bool has_nagle;                   /* Nagle's algorithm is on */
	uint32_t burst_count; /* raised by 1 by a send without a wait before it, lowered by more after a wait */
	uint32_t empty_polls_seen;        /* the rank's empty_polls at the last send */
	bool is_peer_burst;               /* the last header announced a burst */
	bool has_unacked;                 /* bytes have come that no later send has surely acknowledged */
	uint32_t empty_reads;             /* empty reads since then */

	struct collet_transfer_queue sends;
	uint64_t sent_bytes;              /* bytes of the first send that are sent: header and payload together */

	struct collet_transfer_queue receives;
	bool has_header;                  /* `arriving` is the next message, and no receive has claimed it */
	bool is_receiving;                /* `arriving` belongs to the first receive, which has received_bytes of it */
	struct collet_message arriving;
	uint64_t received_bytes;
	uint64_t skip_bytes;              /* bytes still to come of a mismatched message */
	uint32_t buffer_begin, buffer_end;
	union {                           /* the hellos end before the first message comes */
		uint8_t buffer[TCP_BUFFER_BYTES];
		struct {
			struct tcp_hello out, in;
			size_t out_bytes, in_bytes;
		} hello;
	};
};

/* Ends the endpoint: status becomes sticky, and every transfer completes with it. Returns how many. The caller has set
 * the error sentence (collet_tcp_lose_peer() sets its own). */
uint32_t collet_tcp_fail(struct tcp_endpoint *tcp, collet_status status);
/* True if this socket error means that the peer's host cannot be reached, rather than a refusal by a live peer. */
bool collet_tcp_is_unreachable(int error);
/* Ends the endpoint because the connection has broken. error: errno; 0: the end of the stream. */
uint32_t collet_tcp_lose_peer(struct tcp_endpoint *tcp, const char *doing, int error);

/* Decides whether this rank, as sender, is in a burst. Called before the first byte of a message is sent, with its
 * size. */
void collet_tcp_delayed_ack_update(struct tcp_endpoint *tcp, uint64_t bytes);
/* Ends the burst, because this end waits for the peer or is about to close: the kernel holds nothing back. */
void collet_tcp_delayed_ack_reset(struct tcp_endpoint *tcp);
/* Notes that bytes have come. */
void collet_tcp_delayed_ack_received(struct tcp_endpoint *tcp);
/* Notes that bytes were sent, with an acknowledgement of what has come. */
void collet_tcp_delayed_ack_sent(struct tcp_endpoint *tcp);
/* Notes an empty read, and asks the peer's kernel for what it may hold back. sleeping: the rank is about to sleep. */
void collet_tcp_delayed_ack_empty_read(struct tcp_endpoint *tcp, bool sleeping);

/* Removes the endpoint from the epoll set, if it is in it. Nobody may be asleep and rely on it. */
void collet_tcp_unwatch(struct tcp_endpoint *tcp);

/* Sends what the socket takes. Returns the number of completed transfers. */
uint32_t collet_tcp_send(struct tcp_endpoint *tcp);
uint32_t collet_tcp_checksum(const struct collet_message *message);

/* Delivers bytes already read to posted receives, without a system call. Returns the number of completed transfers. */
uint32_t collet_tcp_deliver(struct tcp_endpoint *tcp);
/* Reads what has come and is wanted, and delivers it. *moved: bytes read. */
uint32_t collet_tcp_receive(struct tcp_endpoint *tcp, size_t *moved);
/* True if the next message's header has come, or the endpoint has ended. Reads once if it has not. No receive is
 * posted. */
bool collet_tcp_is_recv_ready(struct tcp_endpoint *tcp);
/* Returns the next message's header in *message, reading if necessary. False if it has not come. No receive is
 * posted. */
bool collet_tcp_peek(struct tcp_endpoint *tcp, struct collet_message *message);
/* True if a header has been read that no receive has claimed. */
bool collet_tcp_has_header(const struct tcp_endpoint *tcp);

collet_status collet_tcp_open_progress(struct tcp_endpoint *tcp);
void collet_tcp_hello_init(struct tcp_endpoint *tcp);

enum {
	TCP_MESSAGE_MAGIC = 0x6d63,  /* "cm" */
	TCP_BURST_MAGIC = 0x6163     /* "ca": the same, and the sender is in a burst */
};

#endif
