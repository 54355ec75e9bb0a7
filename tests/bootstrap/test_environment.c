/* Tests what collet_launch_read() makes of environments and options. Each row is one environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/environment/launchers.h"
#include "bootstrap/store/store.h"

extern char **environ;

static char folder[] = "/tmp/collet-test-XXXXXX";

/* Sets only the variables of "A=1 B=2", and a home without a secret. */
static void set_environment(const char *text)
{
	static char *none[] = { NULL };
	char copy[1024], *at = copy;
	environ = none;
	setenv("HOME", folder, 1);
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *word; (word = strsep(&at, " ")) != NULL;) {
		char *equals = strchr(word, '=');
		if (!equals)
			continue;
		*equals = 0;
		setenv(word, equals + 1, 1);
	}
}

struct row {
	const char *name, *environment;
	const char *launcher;            /* NULL: an error is expected */
	uint32_t rank, size, local_rank;
	const char *store;               /* its start; NULL: any. For an error: a part of the sentence */
	bool scan;
};

#define SECRET " COLLET_SECRET=x"
static const struct row rows[] = {
	{"nothing", "", "none", 0, 1, 0, ""},
	{"torchrun, one host",
		"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=node7 "
		"MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 "
		"TORCHELASTIC_USE_AGENT_STORE=True",
		"torchrun", 1, 2, 1, "unix:torch-"},
	{"torchrun, two hosts",
		"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node7 MASTER_PORT=29500 "
		"TORCHELASTIC_RUN_ID=x TORCHELASTIC_USE_AGENT_STORE=True" SECRET,
		"torchrun", 3, 4, 1, "tcp://node7:29500", true},
	{"torchrun, two hosts, COLLET_PORT",
		"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node7 "
		"MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True COLLET_PORT=4000" SECRET,
		"torchrun", 3, 4, 1, "tcp://node7:4000"},
	{"Kubernetes", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=job-master-0 MASTER_PORT=23456" SECRET, "torchrun", 1, 2, 0,
		"tcp://job-master-0:23456"},
	{"Kubernetes over IPv6", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=fd00::7 MASTER_PORT=23456" SECRET, "torchrun", 1, 2,
		0, "tcp://[fd00::7]:23456"},
	{"two hosts, no secret", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=node7 MASTER_PORT=23456", NULL, 0, 0, 0,
		"COLLET_SECRET_FILE"},
	{"loopback, no secret", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=23456", "torchrun", 1, 2, 0,
		"unix:port-23456-"},
	{"loopback with a secret", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=23456" SECRET, "torchrun", 1,
		2, 0, "tcp://localhost:23456"},
	{"by hand, one host", "RANK=0 WORLD_SIZE=3", "torchrun", 0, 3, 0, "unix:default"},
	{"collet-run",
		"RANK=2 WORLD_SIZE=3 LOCAL_RANK=2 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "
		"COLLET_STORE=unix:abc COLLET_JOB=abc",
		"torchrun", 2, 3, 2, "unix:abc"},
	{"Open MPI 4",
		"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
		"OMPI_COMM_WORLD_LOCAL_SIZE=4 "
		"PMIX_NAMESPACE=1206124545 PMIX_RANK=1 OMPI_MCA_orte_hnp_uri=1206124544.0;tcp://192.0.2.2:55457",
		"Open MPI", 1, 4, 1, "unix:ompi-"},
	{"Open MPI, two hosts",
		"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
		"OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=12" SECRET,
		NULL, 0, 0, 0, "COLLET_STORE=tcp://HOST_OF_RANK_0:PORT"},
	{"Open MPI, two hosts, store",
		"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
		"OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=12 COLLET_STORE=tcp://a:5" SECRET,
		"Open MPI", 3, 4, 1, "tcp://a:5"},
	{"Open MPI, two hosts, -x MASTER_ADDR",
		"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
		"OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=a MASTER_PORT=5" SECRET,
		"Open MPI", 3, 4, 1, "tcp://a:5"},
	{"MPICH", "PMI_RANK=1 PMI_SIZE=2 PMI_FD=6 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 PMI_JOBID=77", "MPICH", 1, 2, 1,
		"unix:pmi-"},
	{"Slurm, one host",
		"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_NNODES=1 SLURM_JOB_ID=5 SLURM_STEP_ID=0", "Slurm",
		1, 2, 1, "unix:slurm-"},
	{"Slurm, two hosts",
		"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NNODES=2 SLURM_JOB_ID=123456 SLURM_STEP_ID=0 "
		"SLURM_STEP_NODELIST=node[07-09,12],x" SECRET,
		"Slurm", 3, 4, 1, "tcp://node07:23456", true},
	{"Slurm, PMI too", "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=1 PMI_RANK=1 PMI_SIZE=2", "Slurm", 1, 2, 0,
		"unix:"},
	{"in a Slurm allocation, not by srun", "SLURM_NTASKS=8 SLURM_JOB_ID=5", "none", 0, 1, 0, ""},
	{"torchrun inside of mpirun", "RANK=0 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", "torchrun",
		0, 2, 0, "unix:"},
	{"OpenPAI",
		"PAI_TASK_INDEX=1 PAI_TASK_ROLE_TASK_COUNT_worker=2 PAI_HOST_IP_worker_0=10.0.0.4 "
		"PAI_worker_0_SynPort_PORT=3333 PAI_JOB_NAME=j" SECRET,
		"OpenPAI", 1, 2, 0, "tcp://10.0.0.4:3333"},
	{"OpenPAI, counted by address",
		"PAI_TASK_INDEX=1 PAI_HOST_IP_worker_0=10.0.0.4 PAI_HOST_IP_worker_1=10.0.0.5 "
		"PAI_HOST_IP_worker_2=10.0.0.6 PAI_worker_0_SynPort_PORT=3333" SECRET,
		"OpenPAI", 1, 3, 0, "tcp://10.0.0.4:3333"},
	{"OpenPAI, WORLD_SIZE by hand",
		"PAI_TASK_INDEX=1 WORLD_SIZE=2 PAI_HOST_IP_worker_0=10.0.0.4 "
		"PAI_worker_0_SynPort_PORT=3333" SECRET,
		"OpenPAI", 1, 2, 0, "tcp://10.0.0.4:3333"},
	{"a file", "RANK=0 WORLD_SIZE=2 COLLET_STORE=file:///tmp", "torchrun", 0, 2, 0, "file:///tmp"},
	{"tcp to oneself without a secret", "RANK=0 WORLD_SIZE=2 COLLET_STORE=tcp://[::1]:4000", "torchrun", 0, 2, 0,
		"unix:port-4000-"},
	/* incomplete or invalid */
	{"RANK alone", "RANK=1", NULL, 0, 0, 0, "WORLD_SIZE"},
	{"WORLD_SIZE alone", "WORLD_SIZE=2", NULL, 0, 0, 0, "RANK"},
	{"Open MPI's rank alone", "OMPI_COMM_WORLD_RANK=1", NULL, 0, 0, 0, "OMPI_COMM_WORLD_SIZE"},
	{"PMI_SIZE alone", "PMI_SIZE=2", NULL, 0, 0, 0, "PMI_RANK"},
	{"OpenPAI without a count", "PAI_TASK_INDEX=1", NULL, 0, 0, 0, "PAI_TASK_ROLE_TASK_COUNT_worker"},
	{"rank beyond the world", "RANK=2 WORLD_SIZE=2", NULL, 0, 0, 0, "RANK=2 is not below WORLD_SIZE=2"},
	{"not a number", "RANK=one WORLD_SIZE=2", NULL, 0, 0, 0, "RANK=one"},
	{"negative", "RANK=-1 WORLD_SIZE=2", NULL, 0, 0, 0, "RANK=-1"},
	{"local rank beyond", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", NULL, 0, 0, 0, "LOCAL_RANK=2"},
	{"more here than in all", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3", NULL, 0, 0, 0,
		"LOCAL_WORLD_SIZE=3"},
	{"address without port", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", NULL, 0, 0, 0, "MASTER_PORT"},
	{"port without address", "RANK=0 WORLD_SIZE=2 MASTER_PORT=1", NULL, 0, 0, 0, "MASTER_ADDR"},
	{"port 0", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0" SECRET, NULL, 0, 0, 0, "MASTER_PORT=0"},
	{"port too high", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000" SECRET, NULL, 0, 0, 0,
		"MASTER_PORT=70000"},
	{"unknown store", "RANK=0 WORLD_SIZE=2 COLLET_STORE=etcd://a", NULL, 0, 0, 0, "etcd://a"},
	{"store without port", "RANK=0 WORLD_SIZE=2 COLLET_STORE=tcp://a" SECRET, NULL, 0, 0, 0, "tcp://HOST:PORT"},
	{"IPv6 store without brackets", "RANK=0 WORLD_SIZE=2 COLLET_STORE=tcp://fd00::1:80" SECRET, NULL, 0, 0, 0,
		"COLLET_STORE"},
	{"unix store over two hosts", "RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 COLLET_STORE=unix:a", NULL,
		0, 0, 0, "LOCAL_WORLD_SIZE=2"},
	{"port range backwards", "COLLET_PORT_RANGE=5-4", NULL, 0, 0, 0, "COLLET_PORT_RANGE"},
	{"port range with a tail", "COLLET_PORT_RANGE=4-5x", NULL, 0, 0, 0, "COLLET_PORT_RANGE"},
	{"interface", "COLLET_INTERFACE=10.0.0.0/33", NULL, 0, 0, 0, "COLLET_INTERFACE"},
	{"timeout", "COLLET_TIMEOUT=soon", NULL, 0, 0, 0, "COLLET_TIMEOUT=soon"},
	{"missing secret file", "COLLET_SECRET_FILE=/nowhere/at/all", NULL, 0, 0, 0, "/nowhere/at/all"},
};

static void each_environment_is_understood(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		struct collet_launch launch = { .rank = 99, .size = 99 };
		set_environment(row->environment);
		collet_status status = collet_launch_read(&launch, NULL);
		if (!row->launcher) {
			if (status != COLLET_ERR_CONFIG || !strstr(collet_last_error(), row->store))
				fail_msg("%s: %s, '%s' does not say '%s'", row->name, collet_status_name(status),
					collet_last_error(), row->store);
			assert_int_equal(launch.size, 99);  /* only the rank is written */
			assert_int_not_equal(launch.rank, 99);
			continue;
		}
		if (status)
			fail_msg("%s: %s", row->name, collet_last_error());
		if (strcmp(launch.launcher, row->launcher) || launch.rank != row->rank || launch.size != row->size ||
		    launch.local_rank != row->local_rank || launch.needs_port_scan != row->scan ||
		    strncmp(launch.store, row->store, strlen(row->store)) != 0)
			fail_msg("%s: %s, rank %u of %u, local %u, store %s, scan %d", row->name, launch.launcher,
				launch.rank, launch.size, launch.local_rank, launch.store, launch.needs_port_scan);
	}
}

static struct collet_launch read_ok(const char *environment, const collet_options *options)
{
	struct collet_launch launch;
	set_environment(environment);
	if (collet_launch_read(&launch, options))
		fail_msg("%s: %s", environment, collet_last_error());
	return launch;
}

static void options_win_over_the_environment(void **state)
{
	const collet_options options = {
		.explicit_rank = true,
		.rank = 1,
		.world_size = 3,
		.local_rank = 1,
		.store = "unix:mine",
		.job = "j",
		.secret = "s",
		.interface = "lo",
		.port_range = "10-20",
		.timeout_ns = 5,
		.rendezvous_timeout_ns = COLLET_NO_TIMEOUT,
	};
	const char *environment =
		"RANK=0 WORLD_SIZE=2 COLLET_STORE=unix:other COLLET_JOB=k COLLET_SECRET=t COLLET_INTERFACE=eth9 "
		"COLLET_PORT_RANGE=30-40 COLLET_TIMEOUT=1 COLLET_RENDEZVOUS_TIMEOUT=2";
	const struct collet_launch mine = read_ok(environment, &options), theirs = read_ok(environment, NULL);
	assert_int_equal(mine.rank, 1);
	assert_int_equal(mine.size, 3);
	assert_string_equal(mine.store, "unix:mine");
	assert_string_equal(mine.job, "j");
	assert_string_equal(mine.interface, "lo");
	assert_int_equal(mine.port_first, 10);
	assert_int_equal(mine.port_last, 20);
	assert_int_equal(mine.timeout_ns, 5);
	assert_int_equal(mine.rendezvous_timeout_ns, COLLET_NO_TIMEOUT);
	assert_string_equal(theirs.store, "unix:other");
	assert_string_equal(theirs.job, "k");
	assert_int_equal(theirs.timeout_ns, 1000000000);
	assert_int_equal(theirs.rendezvous_timeout_ns, 2000000000);
	assert_memory_not_equal(mine.secret, theirs.secret, sizeof(mine.secret));
	const struct collet_launch standard = read_ok("", NULL);
	assert_int_equal(standard.timeout_ns, (int64_t)30 * 60 * 1000000000);
	assert_int_equal(standard.rendezvous_timeout_ns, (int64_t)5 * 60 * 1000000000);
}

static void bad_options_are_the_callers_mistake(void **state)
{
	struct collet_launch launch;
	const collet_options beyond = { .explicit_rank = true, .rank = 3, .world_size = 3 };
	const collet_options nobody = { .explicit_rank = true };
	const collet_options hasty = { .timeout_ns = -2 };
	set_environment("");
	assert_int_equal(collet_launch_read(&launch, &beyond), COLLET_ERR_ARGUMENT);
	assert_int_equal(collet_launch_read(&launch, &nobody), COLLET_ERR_ARGUMENT);
	assert_int_equal(collet_launch_read(&launch, &hasty), COLLET_ERR_ARGUMENT);
}

static void ranks_of_one_job_agree_on_its_name_and_jobs_differ(void **state)
{
	static const char *const jobs[][2] = {
		{"RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d LOCAL_WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=5 "
		 "TORCHELASTIC_RUN_ID=x",
			"RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d LOCAL_WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=6 "
			"TORCHELASTIC_RUN_ID=x"},
		{"OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=%d "
		 "OMPI_COMM_WORLD_LOCAL_SIZE=2 "
		 "PMIX_NAMESPACE=1",
			"OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=%d "
			"OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=2"},
		{"SLURM_PROCID=%d SLURM_NTASKS=2 SLURM_LOCALID=%d SLURM_NNODES=1 SLURM_JOB_ID=1 SLURM_STEP_ID=0",
			"SLURM_PROCID=%d SLURM_NTASKS=2 SLURM_LOCALID=%d SLURM_NNODES=1 SLURM_JOB_ID=1 "
			"SLURM_STEP_ID=1"},
		{"PMI_RANK=%d PMI_SIZE=2 MPI_LOCALRANKID=%d MPI_LOCALNRANKS=2 PMI_JOBID=1",
			"PMI_RANK=%d PMI_SIZE=2 MPI_LOCALRANKID=%d MPI_LOCALNRANKS=2 PMI_JOBID=2"},
	};
	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		char text[3][512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		for (int r = 0; r < 2; r++)
			snprintf(text[r], sizeof(text[r]), jobs[i][0], r, r);
		snprintf(text[2], sizeof(text[2]), jobs[i][1], 0, 0);
#pragma GCC diagnostic pop
		const struct collet_launch first = read_ok(text[0], NULL), second = read_ok(text[1], NULL),
					   other = read_ok(text[2], NULL);
		assert_string_equal(first.store, second.store);
		assert_string_equal(first.job, second.job);
		assert_string_not_equal(first.store, other.store);
	}
}

static void write_secret(const char *path, const char *text, mode_t mode)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	assert_int_equal(chmod(path, mode), 0);
}

static void a_secret_comes_from_a_file_nobody_else_reads(void **state)
{
	char path[128], setting[256];
	struct collet_launch launch;
	const struct collet_launch direct = read_ok("COLLET_SECRET=abc", NULL);
	snprintf(path, sizeof(path), "%s/secret", folder);
	snprintf(setting, sizeof(setting), "COLLET_SECRET_FILE=%s", path);
	write_secret(path, "abc\n", 0600);
	assert_memory_equal(read_ok(setting, NULL).secret, direct.secret, sizeof(direct.secret));
	static const mode_t open_modes[] = { 0604, 0640, 0660, 0644, 0622 };
	for (size_t i = 0; i < sizeof(open_modes) / sizeof(open_modes[0]); i++) {
		write_secret(path, "abc\n", open_modes[i]);
		set_environment(setting);
		assert_int_equal(collet_launch_read(&launch, NULL), COLLET_ERR_CONFIG);
		assert_non_null(strstr(collet_last_error(), "chmod 600"));
	}
	write_secret(path, "\n", 0600);
	set_environment(setting);
	assert_int_equal(collet_launch_read(&launch, NULL), COLLET_ERR_CONFIG);
	snprintf(setting, sizeof(setting), "COLLET_SECRET_FILE=%s", folder);  /* a folder */
	set_environment(setting);
	assert_int_equal(collet_launch_read(&launch, NULL), COLLET_ERR_CONFIG);

	/* Without any setting, the user's own file is used. */
	assert_int_equal(read_ok("", NULL).secret_bytes, 0);
	char home[160];
	snprintf(home, sizeof(home), "%s/collet", folder);
	assert_int_equal(mkdir(home, 0700), 0);
	snprintf(path, sizeof(path), "%s/secret", home);
	write_secret(path, "abc", 0600);
	snprintf(setting, sizeof(setting), "XDG_CONFIG_HOME=%s", folder);
	assert_memory_equal(read_ok(setting, NULL).secret, direct.secret, sizeof(direct.secret));
	unlink(path);
	rmdir(home);
	snprintf(path, sizeof(path), "%s/secret", folder);
	unlink(path);
}

static void the_scan_stays_near_the_port_and_depends_on_the_job(void **state)
{
	static const uint16_t ports[] = { 1, 29500, 65000, 65535 };
	for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
		for (uint32_t a = 0; a < COLLET_SCAN_PORTS; a++) {
			const int port = collet_store_scan_port(ports[i], "job", a), away = abs(port - ports[i]);
			assert_true(away >= 1 && away <= 128 && port >= 1);
			for (uint32_t b = 0; b < a; b++)
				assert_int_not_equal(port, collet_store_scan_port(ports[i], "job", b));
		}
	}
	assert_int_not_equal(collet_store_scan_port(29500, "a", 0), collet_store_scan_port(29500, "b", 0));
}

static int make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_environment_is_understood),
		cmocka_unit_test(options_win_over_the_environment),
		cmocka_unit_test(bad_options_are_the_callers_mistake),
		cmocka_unit_test(ranks_of_one_job_agree_on_its_name_and_jobs_differ),
		cmocka_unit_test(a_secret_comes_from_a_file_nobody_else_reads),
		cmocka_unit_test(the_scan_stays_near_the_port_and_depends_on_the_job),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
