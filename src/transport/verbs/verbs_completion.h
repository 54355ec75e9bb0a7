/* verbs: posting writes and receive requests to queue pairs, and polling their completions. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_COMPLETION_H
#define COLLET_TRANSPORT_VERBS_VERBS_COMPLETION_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "verbs_endpoint.h"

/* An RDMA write to post; with is_read a read. */
struct verbs_write {
	struct ibv_sge parts[2];
	int part_count;
	uint64_t to;
	uint32_t rkey;
	bool is_read;                    /* reads into parts[0] instead */
	bool has_immediate;
	uint32_t immediate;
	bool is_signalled;               /* first queue pair: asks for a completion; on the others every write does */
	uint32_t tag;                    /* of the completion: VERBS_TAG_* in 8 bits, data of the caller above */
};

enum { VERBS_TAG_RING, VERBS_TAG_EMPTY, VERBS_TAG_PROBE, VERBS_TAG_FLUSH, VERBS_TAG_DATA };

static inline bool collet_verbs_has_room(const struct verbs_qp *qp)
{
	return qp->posted - qp->completed < qp->depth;
}

/* Posts a write; the queue must have room. A failure marks the endpoint as lost. */
void collet_verbs_post_write(struct verbs_endpoint *verbs, uint32_t qp, const struct verbs_write *write);
/* Posts a probe: an empty write (iWARP: a small read) that completes if the peer's adapter answers. */
void collet_verbs_post_probe(struct verbs_endpoint *verbs, uint32_t qp, uint32_t tag);
/* Starts the probes of the setup, one on each queue pair. probes_pending counts those that have not completed. */
void collet_verbs_begin_probes(struct verbs_endpoint *verbs);
/* Builds an immediate for the first queue pair, with credits: only there immediates arrive in order. */
uint32_t collet_verbs_immediate(struct verbs_endpoint *verbs, enum verbs_immediate_kind kind, uint32_t argument);
/* Posts receive requests. Returns false if the adapter refuses them. */
bool collet_verbs_post_receives(struct verbs_qp *qp, uint32_t count);
/* Polls and handles completions. Returns their number. */
uint32_t collet_verbs_poll(struct verbs_endpoint *verbs);

#endif
