/* What the ranks of a collet_ddp must have in common, compared before anything depends on it. */
#ifndef COLLET_DDP_AGREE_H
#define COLLET_DDP_AGREE_H

#include <collet/ddp.h>

/* Collective. COLLET_ERR_ARGUMENT on every rank if any rank's arguments make no sense or differ from rank 0's. *terms:
 * the options with their defaults filled in. */
collet_status collet_ddp_agree_options(collet_comm *comm, const collet_ddp_parameter *parameters,
	uint32_t parameter_count, const collet_ddp_options *options, collet_ddp_options *agreed);

/* Collective. mine if that is a failure; else the first failure by rank order, named; COLLET_OK if there is none. */
collet_status collet_ddp_agree_status(collet_comm *comm, collet_status mine);

/* Of a parameter or buffer that collet_ddp_agree_options() has accepted. */
uint64_t collet_ddp_parameter_bytes(const collet_ddp_parameter *parameter);

#endif
