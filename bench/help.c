#include "help.h"

static const char *const texts[] = {
	[BENCH_COMMAND_MEASURE] =
		"Usage: collet-bench COLLECTIVE [-n N] [OPTION...]\n"
		"\n"
		"Measures a collective: the time of a call, the bandwidth, and whether the results are right.\n"
		"Under collet-run, mpirun, srun or torchrun, and without -n, it is one of their ranks.\n"
		"\n"
		"  collet-bench allreduce -n 4 --sizes 4:64M:x16\n"
		"  collet-run -n 4 collet-bench allgather --transport tcp\n",
	[BENCH_COMMAND_LIST] =
		"Usage: collet-bench list\n"
		"\n"
		"Lists algorithms, transports, and the settings in which compare runs other libraries.\n",
	[BENCH_COMMAND_EXPLAIN] =
		"Usage: collet-bench explain COLLECTIVE [-n N] [OPTION...]\n"
		"\n"
		"Shows which algorithm is chosen for which sizes, how messages are cut, and the model's times.\n"
		"\n"
		"  collet-bench explain allreduce -n 8\n",
	[BENCH_COMMAND_LIMITS] =
		"Usage: collet-bench limits [OPTION...]\n"
		"\n"
		"Measures what this machine can do: memory, reading a peer's memory, loopback TCP, a flag, RDMA.\n",
	[BENCH_COMMAND_INIT] =
		"Usage: collet-bench init [-n N] [OPTION...]\n"
		"\n"
		"Measures how long a communicator takes to create, and how much memory each rank then has.\n"
		"\n"
		"  collet-bench init -n 64\n",
	[BENCH_COMMAND_FAULTS] =
		"Usage: collet-bench faults [-n N] [OPTION...]\n"
		"\n"
		"Kills one rank, and measures how long it takes until all others have their error.\n",
	[BENCH_COMMAND_OVERLAP] =
		"Usage: collet-bench overlap COLLECTIVE [-n N] [OPTION...]\n"
		"\n"
		"Measures how much of a request hides behind a sleep, and behind computing.\n",
	[BENCH_COMMAND_REQUEST] =
		"Usage: collet-bench request COLLECTIVE [-n N] [OPTION...]\n"
		"\n"
		"Measures what a request costs over a blocking call, and the rate of many requests.\n",
	[BENCH_COMMAND_WAITING] =
		"Usage: collet-bench waiting COLLECTIVE [-n N] [OPTION...]\n"
		"\n"
		"Measures how much of a core ranks use while they wait for one that is 100 ms late.\n",
	[BENCH_COMMAND_COMPARE] =
		"Usage: collet-bench compare COLLECTIVE[,COLLECTIVE...]|all [-n N] [--with LIST] [OPTION...]\n"
		"\n"
		"Times collet and other libraries in one run, in turns. collet-bench list shows their settings.\n"
		"\n"
		"  collet-bench compare allreduce -n 2 --with openmpi,mpich --transport shm --plot shm.svg\n",
	[BENCH_COMMAND_TUNE] =
		"Usage: collet-bench tune [COLLECTIVE,...|limits|all] [OPTION...]\n"
		"\n"
		"Measures every algorithm, fits the cost model, and writes the tuning file. tune --check judges\n"
		"what is chosen now, and writes nothing. Nothing else should run meanwhile.\n",
	[BENCH_COMMAND_TRAINING] =
		"Usage: collet-bench training [-n N] [OPTION...] [-- OPTION OF collet-train...]\n"
		"\n"
		"Runs collet-train with each strategy, and with one rank, and prints one table.\n"
		"\n"
		"  collet-bench training -n 2 --predict 1,4,8,64\n",
};

const char *bench_help_text(enum bench_command_kind command)
{
	return texts[command];
}
