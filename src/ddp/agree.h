/* Compares what the ranks of a collet_ddp must have in common, before anything depends on it. */
#ifndef COLLET_DDP_AGREE_H
#define COLLET_DDP_AGREE_H

#include <collet/ddp.h>

/* Collective. Checks and compares the arguments of all ranks. COLLET_ERR_ARGUMENT on every rank if any rank's are
 * invalid or differ from rank 0's. *agreed: the options with their defaults filled in. */
collet_status collet_ddp_agree_options(collet_comm *comm, const collet_ddp_parameter *parameters,
	uint32_t parameter_count, const collet_ddp_options *options, collet_ddp_options *agreed);

/* Collective. Returns mine if it is a failure, else the first failure by rank order, with the rank named, else
 * COLLET_OK. */
collet_status collet_ddp_agree_status(collet_comm *comm, collet_status mine);

/* Returns the bytes of a parameter or buffer that collet_ddp_agree_options() has accepted. */
uint64_t collet_ddp_parameter_bytes(const collet_ddp_parameter *parameter);

#endif
