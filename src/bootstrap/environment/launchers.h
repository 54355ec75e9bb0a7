/* Reads what launchers set in the environment of each rank. */
#ifndef COLLET_BOOTSTRAP_ENVIRONMENT_LAUNCHERS_H
#define COLLET_BOOTSTRAP_ENVIRONMENT_LAUNCHERS_H

#include <collet/collet.h>

struct collet_launcher_info {
	const char *launcher;      /* NULL: no launcher */
	uint32_t rank, size;
	bool has_local;            /* the next two are known */
	uint32_t local_rank, local_size;
	const char *local_size_name;  /* the variable with local_size, for error texts */
	char job[64];              /* "" if the launcher has no name for the job */
	char host[256];            /* of rank 0; "": not known */
	uint16_t port;             /* 0: not known */
	bool needs_port_scan;      /* another program uses the port: try the ports above it */
};

/* Takes the first launcher whose variables are set, in the order torchrun and Kubernetes, Open MPI, Slurm, MPICH,
 * OpenPAI. So a rank that torchrun starts inside an mpirun or a Slurm job belongs to torchrun. Returns
 * COLLET_ERR_CONFIG, with the names of the variables, if some are missing or contradict each other. */
collet_status collet_launcher_read(struct collet_launcher_info *info);

#endif
