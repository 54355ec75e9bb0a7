/* tcp: a conduit is one TCP connection. A message is a header of 32 bytes and then its bytes, each way in posting
 * order.
 *
 * What is fast about it: a send is one system call (header and payload gathered, queued messages too); a receive of a
 * small message is one, into a buffer that the next messages come with; a large payload is received where it is wanted,
 * together with the header that follows it. User memory is written only after the header was compared with the posted
 * receive's. Nothing that is not wanted is read, so a fast sender is held back by the socket. One that sends small
 * messages without ever waiting has them held together by the kernel (tcp_delayed_ack.c).
 *
 * The peer's bytes are not trusted: they choose no address and no length, and nothing is allocated on their word. */
#ifndef COLLET_TRANSPORT_TCP_TCP_ENDPOINT_H
#define COLLET_TRANSPORT_TCP_TCP_ENDPOINT_H

#include "transport/registry.h"

enum {
	/* A larger message's payload is not read into the buffer but where it is wanted: one system call more (and the
	 * acknowledgement that it provokes) costs less than copying it twice. */
	TCP_BUFFERED_MAX = 16384,
	TCP_BUFFER_BYTES = TCP_BUFFERED_MAX + 64,   /* with its header and the next one's */
	/* The most that one call of progress() moves each way: enough to hide the system call, little enough that other
	 * conduits and the other direction get their turn while the bytes are still in cache. */
	TCP_PROGRESS_BYTES = 1 << 20,
	/* Queued messages sent by one system call. */
	TCP_BATCH = 16,
	/* Payloads up to this are copied behind their header before they are sent: one part, which the kernel takes
	 * 50 ns faster than two. */
	TCP_COPIED_MAX = 4096,
	/* So many bytes of payloads at most for one system call. */
	TCP_COPIED_BYTES = 8192,
	/* So many small messages sent one after the other without waiting, and the sender is taken to run ahead. */
	TCP_BURST_COUNT = 8,
	/* So often a receiver looks in vain before it asks for what the sender's kernel may hold back. */
	TCP_EMPTY_READS = 2,
	/* So many messages received since it last slept, and a conduit leaves the epoll set. */
	TCP_UNWATCH_AFTER = 256
};

enum tcp_state {
	TCP_CLOSED = 0,   /* as zeroed; there is no socket */
	TCP_SEND_HELLO,   /* waits for room to send who this is */
	TCP_AWAIT_HELLO,  /* waits for who the peer is */
	TCP_SEND_ACCEPTED, /* waits for room to tell that the peer is the right one */
	TCP_AWAIT_ACCEPTED,/* waits for the peer to tell the same */
	TCP_READY         /* messages may follow */
};

/* Before every message. Both ends have one byte order; the version check at the rendezvous saw to that. */
struct tcp_header {
	uint16_t magic;
	uint16_t cpu;    /* the sender's collet_wake.cpu: a hint, believed unchecked */
	uint32_t checksum; /* of the message's three fields, so that what is no header is not taken for a wrong
	                      message */
	struct collet_message message;
};

/* Said by both ends before the first message. */
struct tcp_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t is_accepted; /* 0: hello; 1: your hello was right */
	uint32_t from, to;  /* ranks */
	uint32_t channel;
	uint32_t reserved0;
};

struct tcp_endpoint {
	struct collet_endpoint endpoint;
	enum tcp_state state;
	int socket;
	int epoll_fd;
	uint32_t owner_pid;               /* that opened it: a forked child must not shut the parent's connection */
	const struct collet_peer_info *self, *peer;
	int64_t host_checked_ns;          /* when the peer's host was last looked at for silence */
	bool is_watched;                  /* in the epoll set */
	bool is_armed;                    /* somebody may be asleep who relies on that */
	uint32_t unslept_count;           /* messages received since the last arm(), while watched */

	const struct collet_wake *wake;   /* of this rank; what follows: see tcp_delayed_ack.c */
	bool is_local;                    /* the peer is on this host */
	bool is_burst;                    /* headers that are sent now say that this end runs ahead */
	bool is_burst_announced;          /* one that has been sent did */
	bool has_nagle;                   /* Nagle's algorithm is on */
	uint32_t burst_count;             /* up by one when a send follows another without a wait, down by more else */
	uint32_t empty_polls_seen;        /* the rank's, at the last send */
	bool is_peer_burst;               /* so said the last header */
	bool has_unacked;                 /* bytes have come, and nothing that went since acknowledges them surely */
	uint32_t empty_reads;             /* looks in vain since */

	struct collet_transfer_queue sends;
	uint64_t sent_bytes;              /* of the first send: bytes of header and payload together */

	struct collet_transfer_queue receives;
	bool has_header;                  /* arriving is the next message, which no receive has taken */
	bool is_receiving;                /* arriving is the first receive's and received of its bytes are there */
	struct collet_message arriving;
	uint64_t received_bytes;
	uint64_t skip_bytes;              /* bytes still to come of a message that was a mismatch */
	uint32_t buffer_begin, buffer_end;
	union {                           /* the greetings are over before the first message comes */
		uint8_t buffer[TCP_BUFFER_BYTES];
		struct {
			struct tcp_hello out, in;
			size_t out_bytes, in_bytes;
		} hello;
	};
};

/* Ends the conduit: status becomes sticky, every transfer settles with it. Returns how many. The sentence is set before
 * (collet_tcp_lose_peer() sets its own). */
uint32_t collet_tcp_fail(struct tcp_endpoint *tcp, collet_status status);
/* The way to the peer is gone, says this error of the socket's: no refusal by a peer that lives. */
bool collet_tcp_is_unreachable(int error);
/* Ends the conduit of a connection that has broken: error is errno, 0 for the end of the stream. */
uint32_t collet_tcp_lose_peer(struct tcp_endpoint *tcp, const char *doing, int error);

/* Before messages of so many bytes, none of which has begun to leave, are sent. */
void collet_tcp_delayed_ack_judge(struct tcp_endpoint *tcp, uint64_t bytes);
/* This end does not run ahead of the peer, or is about to close: nothing is held back. */
void collet_tcp_delayed_ack_reset(struct tcp_endpoint *tcp);
/* Bytes have come. */
void collet_tcp_delayed_ack_received(struct tcp_endpoint *tcp);
/* Bytes have gone, and with them an acknowledgement of what has come. */
void collet_tcp_delayed_ack_sent(struct tcp_endpoint *tcp);
/* Nothing has come. sleeping: and nobody will look for a while. */
void collet_tcp_delayed_ack_starved(struct tcp_endpoint *tcp, bool sleeping);

/* Out of the epoll set, if it is there; nobody may be asleep who relies on it. */
void collet_tcp_unwatch(struct tcp_endpoint *tcp);

/* Sends what the socket takes; returns how many transfers settled. */
uint32_t collet_tcp_send(struct tcp_endpoint *tcp);
uint32_t collet_tcp_checksum(const struct collet_message *message);

/* Gives posted receives what has been read already; no system call. */
uint32_t collet_tcp_deliver(struct tcp_endpoint *tcp);
/* Reads what is there and wanted, and delivers it. *moved: bytes read. */
uint32_t collet_tcp_receive(struct tcp_endpoint *tcp, size_t *moved);
/* Has the next message's header come? Reads once if not. No receive is posted. */
bool collet_tcp_is_recv_ready(struct tcp_endpoint *tcp);
/* The next message's header, read if need be. */
bool collet_tcp_peek(struct tcp_endpoint *tcp, struct collet_message *message);
/* Is a header read that no receive has taken? */
bool collet_tcp_has_header(const struct tcp_endpoint *tcp);

collet_status collet_tcp_open_progress(struct tcp_endpoint *tcp);
void collet_tcp_hello_init(struct tcp_endpoint *tcp);

enum {
	TCP_MESSAGE_MAGIC = 0x6d63,  /* "cm" */
	TCP_BURST_MAGIC = 0x6163     /* "ca": the same, and the sender runs ahead */
};

#endif
