/* Lists the variants: a row for each library, transport and setting. Drivers bind their own ranks, all alike, so
 * launchers bind nothing.
 *
 * The tuned settings help somewhere at a few ranks of one host: the algorithm, the layer below it, the eager limit.
 * A variant sets an algorithm for every collective that has one of its kind, so that it serves all of them.
 * `doubling` sends the fewest messages, `segments` pipelines, `scatter` moves the fewest bytes. */
#include "variants.h"

#include <string.h>

#include "report/wrap.h"
#include "work.h"

/* ---- Open MPI: MCA parameters, which mpirun takes from its environment ---------------------------------------- */

#define OPENMPI .library = "openmpi", .program = "collet-peer-openmpi", .launcher = "mpirun.openmpi", \
	.group = "peers", .arguments = { "--allow-run-as-root", "--oversubscribe", "--bind-to", "none" }
#define OB1_SHM "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism=cma"
#define OB1_TCP "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp", "OMPI_MCA_btl_tcp_if_include=lo"
#define PML_UCX "OMPI_MCA_pml=ucx", "OMPI_MCA_pml_ucx_tls=any", "OMPI_MCA_pml_ucx_devices=any"

#define TUNED(collective, algorithm) "OMPI_MCA_coll_tuned_" collective "_algorithm=" algorithm
#define TUNED_CUT(collective, bytes) "OMPI_MCA_coll_tuned_" collective "_algorithm_segmentsize=" bytes
#define TUNED_RULES "OMPI_MCA_coll_tuned_use_dynamic_rules=1"
#define TUNED_DOUBLING TUNED_RULES, TUNED("allreduce", "3"), TUNED("reduce", "5"), TUNED("bcast", "6"), \
	TUNED("allgather", "3"), TUNED("reduce_scatter_block", "3"), TUNED("alltoall", "3"), TUNED("barrier", "3"), \
	TUNED("gather", "2"), TUNED("scatter", "2")
#define TUNED_SEGMENTS(bytes) TUNED_RULES, TUNED("allreduce", "5"), TUNED_CUT("allreduce", bytes), \
	TUNED("reduce", "3"), TUNED_CUT("reduce", bytes), TUNED("bcast", "3"), TUNED_CUT("bcast", bytes), \
	TUNED("allgather", "4"), TUNED("alltoall", "2")
#define TUNED_SCATTER TUNED_RULES, TUNED("allreduce", "6"), TUNED("reduce", "7"), TUNED("bcast", "8"), \
	TUNED("reduce_scatter_block", "4"), TUNED("alltoall", "1")

/* The collectives, beyond all-reduce, for which rows set algorithms of coll/tuned. */
#define BIT(collective) (UINT32_C(1) << BENCH_##collective)

/* Open MPI 5 is another library here: its own launcher, and other names in places. */
#define OPENMPI5 .library = "openmpi5", .program = "collet-peer-openmpi5", .group = "peers-new", \
	.launcher = BENCH_PEERS_CACHE "/openmpi5/bin/mpirun", \
	.arguments = { "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none" }
#define OB1_SM "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,sm", "OMPI_MCA_smsc=cma"
/* Without coll/sm and coll/han, which use shared memory below a pml that does not. */
#define NO_SM "OMPI_MCA_coll=^sm,han"

/* ---- UCX, below MPICH and below Open MPI's pml/ucx ------------------------------------------------------------ */

#define UCX_SHM "UCX_TLS=posix,sysv,cma,self"
#define UCX_TCP "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"
/* Newer ones take no loopback device; what goes to another address of the host crosses lo all the same. */
#define NEW_UCX_TCP "UCX_TLS=tcp,self"

/* ---- MPICH: CVARs --------------------------------------------------------------------------------------------- */

#define MPICH .library = "mpich", .program = "collet-peer-mpich", .launcher = "mpirun.mpich", .group = "peers"
#define INTRA(collective, algorithm) "MPIR_CVAR_" collective "_INTRA_ALGORITHM=" algorithm
#define INTRA_DOUBLING INTRA("ALLREDUCE", "recursive_doubling"), INTRA("REDUCE", "binomial"), \
	INTRA("BCAST", "binomial"), INTRA("ALLGATHER", "recursive_doubling"), \
	INTRA("REDUCE_SCATTER_BLOCK", "recursive_halving"), INTRA("ALLTOALL", "brucks")
#define INTRA_SCATTER INTRA("ALLREDUCE", "reduce_scatter_allgather"), INTRA("REDUCE", "reduce_scatter_gather"), \
	INTRA("BCAST", "scatter_ring_allgather"), INTRA("ALLGATHER", "ring"), \
	INTRA("REDUCE_SCATTER_BLOCK", "pairwise"), INTRA("ALLTOALL", "pairwise")
/* MPICH never yields; where ranks share cores its non-blocking calls with a sched_yield() between tests help. */
#define YIELD "COLLET_BENCH_MPI_YIELD=1"
/* Drivers bind ranks to cores when there are enough; this shares cores out where there are not, as for collet. */
#define PINNED "COLLET_BENCH_PIN_SHARED=1"

/* MPICH 5 has collectives in shared memory, whatever is below it: NOLOCAL hides from it that ranks share a host. */
#define MPICH5 .library = "mpich5", .program = "collet-peer-mpich5", .group = "peers-new", \
	.launcher = BENCH_PEERS_CACHE "/mpich5/bin/mpiexec"
#define CH4_UCX "MPIR_CVAR_CH4_NETMOD=ucx"
#define NOLOCAL "MPIR_CVAR_NOLOCAL=1"
#define CH4_UCX_TCP CH4_UCX, NEW_UCX_TCP, NOLOCAL
#define CH4_OFI_TCP "MPIR_CVAR_CH4_NETMOD=ofi", "FI_PROVIDER=tcp", "FI_TCP_IFACE=lo", NOLOCAL

/* ---- Intel MPI: I_MPI_ADJUST_<collective>, numbers of algorithms ---------------------------------------------- */

/* Its launcher would bind ranks before their driver does. The libfabric is that of an earlier release. Collectives use
 * shared memory also where messages do not, unless told not to. */
#define IMPI .library = "impi", .program = "collet-peer-impi", .group = "peers-new", \
	.launcher = BENCH_PEERS_CACHE "/impi/bin/mpiexec.hydra"
#define INTRANODE_P2P "I_MPI_COLL_INTRANODE=pt2pt"
#define IMPI_OFI "I_MPI_PIN=0", "FI_PROVIDER=tcp", "FI_PROVIDER_PATH=" BENCH_PEERS_CACHE "/impi/lib/libfabric"
#define IMPI_SHM "I_MPI_PIN=0", "I_MPI_FABRICS=shm"
#define IMPI_TCP IMPI_OFI, "I_MPI_FABRICS=ofi", "FI_TCP_IFACE=lo", INTRANODE_P2P
#define ADJUST(collective, algorithm) "I_MPI_ADJUST_" collective "=" algorithm
/* Named for the algorithm of all-reduce. The others are those that were best at some size, of two ranks or of four. */
#define ADJUST_1 ADJUST("ALLREDUCE", "1"), ADJUST("BCAST", "1"), ADJUST("REDUCE", "1"), ADJUST("ALLGATHER", "1"), \
	ADJUST("ALLTOALL", "0"), ADJUST("REDUCE_SCATTER_BLOCK", "4"), ADJUST("GATHER", "1"), \
	ADJUST("SCATTER", "1"), ADJUST("BARRIER", "7")
#define ADJUST_8 ADJUST("ALLREDUCE", "8"), ADJUST("BCAST", "12"), ADJUST("REDUCE", "9"), ADJUST("ALLGATHER", "5"), \
	ADJUST("ALLTOALL", "14"), ADJUST("REDUCE_SCATTER_BLOCK", "2"), ADJUST("GATHER", "4"), \
	ADJUST("SCATTER", "0"), ADJUST("BARRIER", "8")
#define ADJUST_10 ADJUST("ALLREDUCE", "10"), ADJUST("BCAST", "15"), ADJUST("REDUCE", "2"), ADJUST("ALLGATHER", "6"), \
	ADJUST("ALLTOALL", "18"), ADJUST("REDUCE_SCATTER_BLOCK", "0"), ADJUST("GATHER", "5"), \
	ADJUST("SCATTER", "5"), ADJUST("BARRIER", "10")
#define ADJUST_13 ADJUST("ALLREDUCE", "13"), ADJUST("BCAST", "13"), ADJUST("REDUCE", "3"), ADJUST("ALLGATHER", "3"), \
	ADJUST("ALLTOALL", "3"), ADJUST("REDUCE_SCATTER_BLOCK", "1"), ADJUST("GATHER", "3"), \
	ADJUST("SCATTER", "2"), ADJUST("BARRIER", "9")

/* ---- Gloo: what its driver calls ------------------------------------------------------------------------------ */

#define GLOO .library = "gloo", .program = "collet-peer-gloo", .group = "peers", .transport = "tcp"
#define CALLS "COLLET_BENCH_GLOO="

const struct peer_variant bench_peer_variants[] = {
	{ OPENMPI, .name = "default" },
	{ OPENMPI, .name = "default", .transport = "shm", .settings = { OB1_SHM } },
	{ OPENMPI, .name = "doubling", .transport = "shm", .settings = { OB1_SHM, TUNED_DOUBLING } },
	{ OPENMPI, .name = "segments", .transport = "shm", .settings = { OB1_SHM, TUNED_SEGMENTS("262144") } },
	{ OPENMPI, .name = "scatter", .transport = "shm", .settings = { OB1_SHM, TUNED_SCATTER } },
	{ OPENMPI, .name = "eager", .transport = "shm",
		.settings = { OB1_SHM, "OMPI_MCA_btl_vader_eager_limit=65536",
			"OMPI_MCA_btl_vader_max_send_size=131072", "OMPI_MCA_btl_vader_rndv_eager_limit=65536" } },
	{ OPENMPI, .name = "sm", .transport = "shm", .settings = { OB1_SHM, "OMPI_MCA_coll_sm_priority=100" } },
	{ OPENMPI, .name = "alloc", .transport = "shm", .settings = { OB1_SHM }, .own_memory_only = true },
	{ OPENMPI, .name = "ucx", .transport = "shm", .settings = { PML_UCX, UCX_SHM } },
	{ OPENMPI, .name = "ucx-doubling", .transport = "shm", .settings = { PML_UCX, UCX_SHM, TUNED_DOUBLING } },
	{ OPENMPI, .name = "ucx-segments", .transport = "shm",
		.settings = { PML_UCX, UCX_SHM, TUNED_SEGMENTS("262144") } },
	{ OPENMPI, .name = "ucx-scatter", .transport = "shm", .settings = { PML_UCX, UCX_SHM, TUNED_SCATTER } },
	{ OPENMPI, .name = "pinned", .transport = "shm", .settings = { OB1_SHM, PINNED }, .oversubscribed_only = true },
	{ OPENMPI, .name = "doubling-pinned", .transport = "shm", .settings = { OB1_SHM, TUNED_DOUBLING, PINNED },
		.oversubscribed_only = true },
	{ OPENMPI, .name = "ucx-pinned", .transport = "shm", .settings = { PML_UCX, UCX_SHM, PINNED },
		.oversubscribed_only = true },
	{ OPENMPI, .name = "ucx-doubling-pinned", .transport = "shm",
		.settings = { PML_UCX, UCX_SHM, TUNED_DOUBLING, PINNED }, .oversubscribed_only = true },
	{ OPENMPI, .name = "default", .transport = "tcp", .settings = { OB1_TCP } },
	{ OPENMPI, .name = "doubling", .transport = "tcp", .settings = { OB1_TCP, TUNED_DOUBLING } },
	{ OPENMPI, .name = "segments", .transport = "tcp", .settings = { OB1_TCP, TUNED_SEGMENTS("524288") } },
	{ OPENMPI, .name = "scatter", .transport = "tcp", .settings = { OB1_TCP, TUNED_SCATTER } },
	{ OPENMPI, .name = "links", .transport = "tcp", .settings = { OB1_TCP, "OMPI_MCA_btl_tcp_links=2" } },
	{ OPENMPI, .name = "eager", .transport = "tcp",
		.settings = { OB1_TCP, "OMPI_MCA_btl_tcp_eager_limit=1048576",
			"OMPI_MCA_btl_tcp_rndv_eager_limit=1048576", "OMPI_MCA_btl_tcp_max_send_size=1048576" } },
	{ OPENMPI, .name = "ucx", .transport = "tcp", .settings = { PML_UCX, UCX_TCP } },
	{ OPENMPI, .name = "ucx-doubling", .transport = "tcp", .settings = { PML_UCX, UCX_TCP, TUNED_DOUBLING } },
	{ OPENMPI, .name = "ucx-segments", .transport = "tcp",
		.settings = { PML_UCX, UCX_TCP, TUNED_SEGMENTS("524288") } },
	{ OPENMPI, .name = "pinned", .transport = "tcp", .settings = { OB1_TCP, PINNED }, .oversubscribed_only = true },
	{ OPENMPI, .name = "doubling-pinned", .transport = "tcp", .settings = { OB1_TCP, TUNED_DOUBLING, PINNED },
		.oversubscribed_only = true },
	{ OPENMPI, .name = "ucx-doubling-pinned", .transport = "tcp",
		.settings = { PML_UCX, UCX_TCP, TUNED_DOUBLING, PINNED }, .oversubscribed_only = true },

	{ MPICH, .name = "default" },
	{ MPICH, .name = "default", .transport = "shm", .settings = { UCX_SHM } },
	{ MPICH, .name = "doubling", .transport = "shm", .settings = { UCX_SHM, INTRA_DOUBLING } },
	{ MPICH, .name = "scatter", .transport = "shm", .settings = { UCX_SHM, INTRA_SCATTER } },
	{ MPICH, .name = "eager", .transport = "shm", .settings = { UCX_SHM, "UCX_RNDV_THRESH=inf" } },
	{ MPICH, .name = "rndv4", .transport = "shm", .settings = { UCX_SHM, "UCX_RNDV_THRESH=4" } },
	{ MPICH, .name = "rndv256k", .transport = "shm", .settings = { UCX_SHM, "UCX_RNDV_THRESH=262144" } },
	{ MPICH, .name = "alloc", .transport = "shm", .settings = { UCX_SHM }, .own_memory_only = true },
	{ MPICH, .name = "yield", .transport = "shm", .settings = { UCX_SHM, YIELD }, .oversubscribed_only = true },
	{ MPICH, .name = "yield-pinned", .transport = "shm", .settings = { UCX_SHM, YIELD, PINNED },
		.oversubscribed_only = true },
	{ MPICH, .name = "default", .transport = "tcp", .settings = { UCX_TCP } },
	{ MPICH, .name = "doubling", .transport = "tcp", .settings = { UCX_TCP, INTRA_DOUBLING } },
	{ MPICH, .name = "scatter", .transport = "tcp", .settings = { UCX_TCP, INTRA_SCATTER } },
	{ MPICH, .name = "eager", .transport = "tcp", .settings = { UCX_TCP, "UCX_RNDV_THRESH=inf" } },
	{ MPICH, .name = "rndv4", .transport = "tcp", .settings = { UCX_TCP, "UCX_RNDV_THRESH=4" } },
	{ MPICH, .name = "rndv256k", .transport = "tcp", .settings = { UCX_TCP, "UCX_RNDV_THRESH=262144" } },
	{ MPICH, .name = "segments", .transport = "tcp",
		.settings = { UCX_TCP, "UCX_TCP_TX_SEG_SIZE=262144", "UCX_TCP_RX_SEG_SIZE=262144" } },
	{ MPICH, .name = "yield", .transport = "tcp", .settings = { UCX_TCP, YIELD }, .oversubscribed_only = true },
	{ MPICH, .name = "yield-pinned", .transport = "tcp", .settings = { UCX_TCP, YIELD, PINNED },
		.oversubscribed_only = true },

	{ IMPI, .name = "default", .settings = { IMPI_OFI } },
	{ IMPI, .name = "default", .transport = "shm", .settings = { IMPI_SHM } },
	{ IMPI, .name = "adjust1", .transport = "shm", .settings = { IMPI_SHM, ADJUST_1 } },
	{ IMPI, .name = "adjust8", .transport = "shm", .settings = { IMPI_SHM, ADJUST_8 } },
	{ IMPI, .name = "adjust10", .transport = "shm", .settings = { IMPI_SHM, ADJUST_10 } },
	{ IMPI, .name = "adjust13", .transport = "shm", .settings = { IMPI_SHM, ADJUST_13 } },
	{ IMPI, .name = "p2p", .transport = "shm", .settings = { IMPI_SHM, INTRANODE_P2P } },
	{ IMPI, .name = "alloc", .transport = "shm", .settings = { IMPI_SHM }, .own_memory_only = true },
	{ IMPI, .name = "pinned", .transport = "shm", .settings = { IMPI_SHM, PINNED }, .oversubscribed_only = true },
	{ IMPI, .name = "adjust1-pinned", .transport = "shm", .settings = { IMPI_SHM, ADJUST_1, PINNED },
		.oversubscribed_only = true },
	{ IMPI, .name = "adjust8-pinned", .transport = "shm", .settings = { IMPI_SHM, ADJUST_8, PINNED },
		.oversubscribed_only = true },
	{ IMPI, .name = "adjust10-pinned", .transport = "shm", .settings = { IMPI_SHM, ADJUST_10, PINNED },
		.oversubscribed_only = true },
	{ IMPI, .name = "adjust13-pinned", .transport = "shm", .settings = { IMPI_SHM, ADJUST_13, PINNED },
		.oversubscribed_only = true },
	{ IMPI, .name = "p2p-pinned", .transport = "shm", .settings = { IMPI_SHM, INTRANODE_P2P, PINNED },
		.oversubscribed_only = true },
	{ IMPI, .name = "default", .transport = "tcp", .settings = { IMPI_TCP } },
	{ IMPI, .name = "adjust1", .transport = "tcp", .settings = { IMPI_TCP, ADJUST_1 } },
	{ IMPI, .name = "adjust8", .transport = "tcp", .settings = { IMPI_TCP, ADJUST_8 } },
	{ IMPI, .name = "adjust10", .transport = "tcp", .settings = { IMPI_TCP, ADJUST_10 } },
	{ IMPI, .name = "adjust13", .transport = "tcp", .settings = { IMPI_TCP, ADJUST_13 } },
	{ IMPI, .name = "pinned", .transport = "tcp", .settings = { IMPI_TCP, PINNED }, .oversubscribed_only = true },
	{ IMPI, .name = "adjust10-pinned", .transport = "tcp", .settings = { IMPI_TCP, ADJUST_10, PINNED },
		.oversubscribed_only = true },

	{ OPENMPI5, .name = "default" },
	{ OPENMPI5, .name = "default", .transport = "shm", .settings = { OB1_SM } },
	{ OPENMPI5, .name = "eager", .transport = "shm",
		.settings = { OB1_SM, "OMPI_MCA_btl_sm_eager_limit=65536", "OMPI_MCA_btl_sm_max_send_size=131072",
			"OMPI_MCA_btl_sm_rndv_eager_limit=65536" } },
	{ OPENMPI5, .name = "copies", .transport = "shm",
		.settings = { "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,sm", "OMPI_MCA_smsc=^cma" } },
	{ OPENMPI5, .name = "sm", .transport = "shm", .settings = { OB1_SM, "OMPI_MCA_coll_sm_priority=100" } },
	{ OPENMPI5, .name = "alloc", .transport = "shm", .settings = { OB1_SM }, .own_memory_only = true },
	{ OPENMPI5, .name = "ucx", .transport = "shm", .settings = { PML_UCX, UCX_SHM } },
	{ OPENMPI5, .name = "ucx-doubling", .transport = "shm", .settings = { PML_UCX, UCX_SHM, TUNED_DOUBLING } },
	{ OPENMPI5, .name = "ucx-segments", .transport = "shm",
		.settings = { PML_UCX, UCX_SHM, TUNED_SEGMENTS("262144") } },
	{ OPENMPI5, .name = "ucx-eager", .transport = "shm", .settings = { PML_UCX, UCX_SHM, "UCX_RNDV_THRESH=inf" } },
	{ OPENMPI5, .name = "pinned", .transport = "shm", .settings = { OB1_SM, PINNED }, .oversubscribed_only = true },
	{ OPENMPI5, .name = "sm-pinned", .transport = "shm",
		.settings = { OB1_SM, "OMPI_MCA_coll_sm_priority=100", PINNED }, .oversubscribed_only = true },
	{ OPENMPI5, .name = "ucx-pinned", .transport = "shm", .settings = { PML_UCX, UCX_SHM, PINNED },
		.oversubscribed_only = true },
	{ OPENMPI5, .name = "ucx-eager-pinned", .transport = "shm",
		.settings = { PML_UCX, UCX_SHM, "UCX_RNDV_THRESH=inf", PINNED }, .oversubscribed_only = true },
	{ OPENMPI5, .name = "default", .transport = "tcp", .settings = { OB1_TCP, NO_SM } },
	{ OPENMPI5, .name = "doubling", .transport = "tcp", .settings = { OB1_TCP, NO_SM, TUNED_DOUBLING } },
	{ OPENMPI5, .name = "segments", .transport = "tcp", .settings = { OB1_TCP, NO_SM, TUNED_SEGMENTS("524288") } },
	{ OPENMPI5, .name = "eager", .transport = "tcp",
		.settings = { OB1_TCP, NO_SM, "OMPI_MCA_btl_tcp_eager_limit=1048576",
			"OMPI_MCA_btl_tcp_rndv_eager_limit=1048576", "OMPI_MCA_btl_tcp_max_send_size=1048576" } },
	{ OPENMPI5, .name = "ucx", .transport = "tcp", .settings = { PML_UCX, NEW_UCX_TCP, NO_SM } },
	{ OPENMPI5, .name = "ucx-doubling", .transport = "tcp",
		.settings = { PML_UCX, NEW_UCX_TCP, NO_SM, TUNED_DOUBLING } },
	{ OPENMPI5, .name = "ucx-segments", .transport = "tcp",
		.settings = { PML_UCX, NEW_UCX_TCP, NO_SM, TUNED_SEGMENTS("524288") } },
	{ OPENMPI5, .name = "pinned", .transport = "tcp", .settings = { OB1_TCP, NO_SM, PINNED },
		.oversubscribed_only = true },

	{ MPICH5, .name = "default" },
	{ MPICH5, .name = "default", .transport = "shm", .settings = { CH4_UCX, UCX_SHM } },
	{ MPICH5, .name = "doubling", .transport = "shm", .settings = { CH4_UCX, UCX_SHM, INTRA_DOUBLING } },
	{ MPICH5, .name = "scatter", .transport = "shm", .settings = { CH4_UCX, UCX_SHM, INTRA_SCATTER } },
	{ MPICH5, .name = "cma256k", .transport = "shm",
		.settings = { CH4_UCX, UCX_SHM, "MPIR_CVAR_CH4_IPC_CMA_P2P_THRESHOLD=262144" } },
	{ MPICH5, .name = "alloc", .transport = "shm", .settings = { CH4_UCX, UCX_SHM }, .own_memory_only = true },
	{ MPICH5, .name = "ucx-eager", .transport = "shm",
		.settings = { CH4_UCX, UCX_SHM, NOLOCAL, "UCX_RNDV_THRESH=inf" } },
	{ MPICH5, .name = "ucx-eager-scatter", .transport = "shm",
		.settings = { CH4_UCX, UCX_SHM, NOLOCAL, "UCX_RNDV_THRESH=inf", INTRA_SCATTER } },
	{ MPICH5, .name = "pinned", .transport = "shm", .settings = { CH4_UCX, UCX_SHM, PINNED },
		.oversubscribed_only = true },
	{ MPICH5, .name = "yield-pinned", .transport = "shm", .settings = { CH4_UCX, UCX_SHM, YIELD, PINNED },
		.oversubscribed_only = true },
	{ MPICH5, .name = "default", .transport = "tcp", .settings = { CH4_OFI_TCP } },
	{ MPICH5, .name = "doubling", .transport = "tcp", .settings = { CH4_OFI_TCP, INTRA_DOUBLING } },
	{ MPICH5, .name = "scatter", .transport = "tcp", .settings = { CH4_OFI_TCP, INTRA_SCATTER } },
	{ MPICH5, .name = "ucx", .transport = "tcp", .settings = { CH4_UCX_TCP } },
	{ MPICH5, .name = "ucx-doubling", .transport = "tcp", .settings = { CH4_UCX_TCP, INTRA_DOUBLING } },
	{ MPICH5, .name = "ucx-eager", .transport = "tcp", .settings = { CH4_UCX_TCP, "UCX_RNDV_THRESH=inf" } },
	{ MPICH5, .name = "yield-pinned", .transport = "tcp", .settings = { CH4_OFI_TCP, YIELD, PINNED },
		.oversubscribed_only = true },
	{ MPICH5, .name = "ucx-yield-pinned", .transport = "tcp", .settings = { CH4_UCX_TCP, YIELD, PINNED },
		.oversubscribed_only = true },

	{ GLOO, .name = "default" },
	{ GLOO, .name = "ring", .settings = { CALLS "ring" }, .collectives = BIT(ALLREDUCE) },
	{ GLOO, .name = "bcube", .settings = { CALLS "bcube" }, .collectives = BIT(ALLREDUCE) },
	{ GLOO, .name = "halving", .settings = { CALLS "halving" }, .collectives = BIT(ALLREDUCE) },
	{ GLOO, .name = "halving-sync", .settings = { CALLS "halving,sync" }, .collectives = BIT(ALLREDUCE) },
	{ GLOO, .name = "halving-poll", .settings = { CALLS "halving,poll" }, .collectives = BIT(ALLREDUCE) },
	{ GLOO, .name = "chunked", .settings = { CALLS "chunked" }, .collectives = BIT(ALLREDUCE) },
	{ GLOO, .name = "chunked-sync", .settings = { CALLS "chunked,sync" }, .collectives = BIT(ALLREDUCE) },
	{ GLOO, .name = "chunked-poll", .settings = { CALLS "chunked,poll" }, .collectives = BIT(ALLREDUCE) },
};
const size_t bench_peer_variant_count = sizeof(bench_peer_variants) / sizeof(bench_peer_variants[0]);

/* ---- Which of them a run wants -------------------------------------------------------------------------------- */

const char *bench_peer_variant_name(const struct peer_variant *variant, char into[64])
{
	if (strcmp(variant->name, "default") == 0)
		snprintf(into, 64, "%s", variant->library);
	else
		snprintf(into, 64, "%s:%s", variant->library, variant->name);
	return into;
}

void bench_peer_list(FILE *out)
{
	char name[64];
	fputs("# what compare runs the peers with (--with), by transport\n", out);
	for (size_t v = 0; v < bench_peer_variant_count; v++) {
		const struct peer_variant *variant = &bench_peer_variants[v];
		if (variant->transport == NULL)
			continue;   /* each library's own choice: nothing is set */
		const int column =
			fprintf(out, "%-27s %-4s ", bench_peer_variant_name(variant, name), variant->transport);
		int at = column;
		for (size_t i = 0; i < PEER_SETTINGS_MAX && variant->settings[i] != NULL; i++)
			at = bench_wrap(out, column, at, variant->settings[i]);
		bench_wrap(out, column, at, variant->oversubscribed_only ? "(where ranks outnumber cores)"
			: variant->own_memory_only ? "(with --buffers alloc: MPI_Alloc_mem)" : "");
		putc('\n', out);
	}
}

/* One item of a list, "LIBRARY" or "LIBRARY:VARIANT". */
struct item {
	const char *library, *variant;   /* variant NULL: none is named */
	size_t library_length, variant_length;
};

/* Takes the first item off the list; false at its end. */
static bool next_item(const char **list, struct item *item)
{
	if (*list == NULL || **list == '\0')
		return false;
	const size_t length = strcspn(*list, ",");
	item->library = *list;
	item->library_length = strcspn(*list, ",:");
	item->variant = item->library_length < length ? *list + item->library_length + 1 : NULL;
	item->variant_length = item->variant != NULL ? length - item->library_length - 1 : 0;
	*list += length + ((*list)[length] == ',');
	return true;
}

static bool is_word(const char *word, const char *text, size_t length)
{
	return strlen(word) == length && strncmp(word, text, length) == 0;
}

static bool names_library(const struct item *item, const char *library)
{
	return is_word(library, item->library, item->library_length);
}

static bool names_variant(const struct item *item, const struct peer_variant *variant)
{
	return names_library(item, variant->library) && item->variant != NULL
		&& is_word(variant->name, item->variant, item->variant_length);
}

bool bench_peer_library_named(const char *with, const char *library)
{
	struct item item;
	bool named = with == NULL;
	while (!named && next_item(&with, &item))
		named = names_library(&item, library);
	return named;
}

const char *bench_peer_unknown(const char *with, size_t *length)
{
	struct item item;
	while (next_item(&with, &item)) {
		bool known = false;
		for (size_t v = 0; v < bench_peer_variant_count && !known; v++)
			known = item.variant != NULL ? names_variant(&item, &bench_peer_variants[v])
				: names_library(&item, bench_peer_variants[v].library);
		*length = item.library_length + (item.variant != NULL ? 1 + item.variant_length : 0);
		if (!known)
			return item.library;
	}
	return NULL;
}

static bool fits_transport(const struct peer_variant *variant, const char *transport)
{
	if (transport != NULL && variant->transport != NULL)
		return strcmp(variant->transport, transport) == 0;
	if (transport != NULL)
		return false;
	/* The library's own choice is its default, and Gloo has but one; what is tuned for shm may be chosen. */
	return variant->transport == NULL || variant->launcher == NULL
		|| (strcmp(variant->transport, "shm") == 0 && strcmp(variant->name, "default") != 0);
}

static bool of_use(const struct peer_variant *variant, const struct peer_filter *filter)
{
	return (filter->tuned || strcmp(variant->name, "default") == 0) &&
	       (filter->oversubscribed || !variant->oversubscribed_only) &&
	       (filter->own_memory || !variant->own_memory_only) &&
	       (variant->collectives == 0 || (variant->collectives & filter->collectives) != 0);
}

bool bench_peer_matches(const struct peer_variant *variant, const struct peer_filter *filter)
{
	const char *with = filter->with;
	struct item item;
	if (!fits_transport(variant, filter->transport))
		return false;
	if (with == NULL)
		return of_use(variant, filter);
	while (next_item(&with, &item))
		if (names_variant(&item, variant)
			|| (item.variant == NULL && names_library(&item, variant->library) && of_use(variant, filter)))
			return true;
	return false;
}
