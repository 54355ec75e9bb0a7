/* A row for each library, transport and setting. Drivers bind their own ranks, all alike, so launchers bind nothing. */
#include "variants.h"

#define OPENMPI .library = "openmpi", .program = "collet-peer-openmpi", .launcher = "mpirun.openmpi"
#define OPENMPI_COMMON "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"
#define MPICH .library = "mpich", .program = "collet-peer-mpich", .launcher = "mpirun.mpich"
#define GLOO .library = "gloo", .program = "collet-peer-gloo"

const struct peer_variant bench_peer_variants[] = {
	{ OPENMPI, .name = "default", .arguments = { OPENMPI_COMMON } },
	{ OPENMPI, .name = "default", .transport = "shm",
		.arguments = { OPENMPI_COMMON, "--mca", "pml", "ob1", "--mca", "btl", "self,vader" } },
	{ OPENMPI, .name = "default", .transport = "tcp",
		.arguments = { OPENMPI_COMMON, "--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca",
			"btl_tcp_if_include", "lo" } },
	{ MPICH, .name = "default" },
	{ MPICH, .name = "default", .transport = "shm", .environment = { "UCX_TLS=posix,cma,self" } },
	{ MPICH, .name = "default", .transport = "tcp", .environment = { "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo" } },
	{ GLOO, .name = "default" },
	{ GLOO, .name = "default", .transport = "tcp" },
};
const size_t bench_peer_variant_count = sizeof(bench_peer_variants) / sizeof(bench_peer_variants[0]);
