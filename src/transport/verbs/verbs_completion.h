/* verbs: posting writes and receive requests to queue pairs, and polling their completions. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_COMPLETION_H
#define COLLET_TRANSPORT_VERBS_VERBS_COMPLETION_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "verbs_endpoint.h"

struct verbs_write {
	struct ibv_sge parts[2];
	int part_count;
	uint64_t to;
	uint32_t rkey;
	bool is_read; /* instead, into its part */
	bool has_immediate;
	uint32_t immediate;
	bool is_signalled;               /* on the first queue pair; on the others every write is */
	uint32_t tag;                    /* of its completion: TAG_*, and above 8 bits what its owner wants */
};
enum { TAG_RING, TAG_EMPTY, TAG_PROBE, TAG_FLUSH, TAG_DATA };
static inline bool collet_verbs_has_room(const struct verbs_qp *qp)
{
	return qp->posted - qp->completed < qp->depth;
}
/* Only with room. Should it fail, the conduit is lost. */
void collet_verbs_post_write(struct verbs_endpoint *verbs, uint32_t qp, const struct verbs_write *write);
/* A write of nothing (iWARP: a small read): it asks the peer's adapter whether it is there. */
void collet_verbs_post_probe(struct verbs_endpoint *verbs, uint32_t qp, uint32_t tag);
/* Over each queue pair. The answers are counted by probes_pending. */
void collet_verbs_begin_probes(struct verbs_endpoint *verbs);
/* For the first queue pair, which is in order: carries what has been freed. */
uint32_t collet_verbs_immediate(struct verbs_endpoint *verbs, enum verbs_immediate_kind kind, uint32_t argument);
/* Receive requests; false: refused. */
bool collet_verbs_post_receives(struct verbs_qp *qp, uint32_t count);
/* Takes completions; returns how many there were. */
uint32_t collet_verbs_poll(struct verbs_endpoint *verbs);

#endif
