/* Tests tuning files through the public API. Rank 0 alone reads one, all ranks choose by it, and errors name the file
 * and the line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "ranks.h"

static char folder[64], file[128];

/* Writes a tuning by which two ranks, on two cores or on one, choose a tree for a few bytes. No other tuning does. */
static void write_odd(void)
{
	collet_link_cost rows[COLLET_TUNING_LINKS], odd[2];
	collet_algorithm_info algorithms[COLLET_TUNING_ALGORITHMS];
	size_t count, there, tree = 0;
	assert_int_equal(collet_tuning_read(NULL, rows, COLLET_TUNING_LINKS, &count), COLLET_OK);
	assert_int_equal(collet_algorithm_list(NULL, algorithms, COLLET_TUNING_ALGORITHMS, &there), COLLET_OK);
	while (tree < there &&
		(strcmp(algorithms[tree].collective, "allreduce") || strcmp(algorithms[tree].name, "tree")))
		tree++;
	assert_true(tree < there);
	for (uint32_t i = 0; i < 2; i++) {
		const collet_link_cost *found = collet_tuning_find(rows, count, "shm", 2, 2);
		assert_non_null(found);
		odd[i] = *found;
		odd[i].ranks = 2;
		odd[i].cores = 1 + i;
		odd[i].size_count = 1;
		odd[i].size_bytes[0] = 8;
		memset(odd[i].factor, 0, sizeof(odd[i].factor));
		for (size_t a = 0; a < there; a++)
			odd[i].factor[a][0] = a == tree ? 0.01F : 1;
	}
	assert_int_equal(collet_tuning_write(file, odd, 2), COLLET_OK);
}

static char *read_text(void)
{
	static char text[65536];
	FILE *in = fopen(file, "r");
	assert_non_null(in);
	const size_t bytes = fread(text, 1, sizeof(text) - 1, in);
	text[bytes] = '\0';
	fclose(in);
	return text;
}

static void write_text(const char *text)
{
	FILE *out = fopen(file, "w");
	assert_non_null(out);
	fputs(text, out);
	assert_int_equal(fclose(out), 0);
}

/* Lists what rank 0 has in its environment, and what every rank must see. */
struct expected {
	const char *variable, *value;
	bool deterministic;
	enum { ODD, USUAL, FAILS } choice;
	const char *sentence;        /* part of the error of creation */
	bool missing;                /* the file is missing: COLLET_ERR_SYSTEM */
};

static void create_and_look(struct rank *rank)
{
	const struct expected *expected = rank->options->context;
	unsetenv("COLLET_TUNING");
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("HOME");
	if (rank->rank == 0)
		setenv(expected->variable, expected->value, 1);
	if (expected->deterministic)
		setenv("COLLET_DETERMINISTIC", "1", 1);
	if (expected->choice == FAILS) {
		char store[64];
		collet_options options;
		rank_fill_options(rank, 0, &options, store);
		const collet_status status = collet_comm_create(&rank->comm, &options);
		rank_check(rank,
			status == (expected->missing ? COLLET_ERR_SYSTEM : COLLET_ERR_CONFIG) &&
				strstr(collet_last_error(), expected->sentence),
			"%d: %s", (int)status, collet_last_error());
		return;
	}
	if (!rank_create(rank))
		return;
	collet_plan plan;
	if (rank_ok(rank, collet_comm_plan(rank->comm, "allreduce", 2, COLLET_F32, COLLET_SUM, 0, NULL, &plan), "plan"))
		rank_check(rank, (strcmp(plan.algorithm, "tree") == 0) == (expected->choice == ODD), "%s was chosen",
			plan.algorithm);
	const float send[2] = { 1, 2 };
	float recv[2];
	if (rank_ok(rank, collet_allreduce(rank->comm, send, recv, 2, COLLET_F32, COLLET_SUM, NULL), "allreduce"))
		rank_check(rank, recv[0] == 2 && recv[1] == 4, "%g %g", (double)recv[0], (double)recv[1]);
}

static void must(const struct expected expected)
{
	const struct ranks_options options = { .mode = RANKS_PROCESSES, .size = 2, .bare = true, .transport = "shm",
		.context = &expected };
	ranks_must_pass(&options, create_and_look);
}

static void all_choose_by_rank_0s_file(void **state)
{
	write_odd();
	must((struct expected){ "COLLET_TUNING", file, false, ODD, NULL, false });
	must((struct expected){ "COLLET_TUNING", "builtin", false, USUAL, NULL, false });
	must((struct expected){ "XDG_CONFIG_HOME", folder, false, ODD, NULL, false });
	must((struct expected){ "XDG_CONFIG_HOME", "/nowhere", false, USUAL, NULL, false });
}

/* A tuning that also has rows of far cores, by which the same is chosen: whatever the cores are, ranks agree on it. */
static void rows_of_far_cores_are_read(void **state)
{
	collet_link_cost rows[4];
	size_t count;
	write_odd();
	assert_int_equal(collet_tuning_read(file, rows, 2, &count), COLLET_OK);
	assert_int_equal(count, 2);
	memcpy(&rows[2], rows, 2 * sizeof(rows[0]));
	rows[2].is_far = rows[3].is_far = 1;
	assert_int_equal(collet_tuning_write(file, rows, 4), COLLET_OK);
	must((struct expected){ "COLLET_TUNING", file, false, ODD, NULL, false });
}

/* A full tuning without a row of the transport in use: the built-in rows are added to it. */
static void a_full_file_of_another_transport_is_read(void **state)
{
	static collet_link_cost rows[COLLET_TUNING_LINKS];
	size_t count;
	assert_int_equal(collet_tuning_read(NULL, rows, COLLET_TUNING_LINKS, &count), COLLET_OK);
	const collet_link_cost *tcp = collet_tuning_find(rows, count, "tcp", 2, 2);
	assert_non_null(tcp);
	rows[0] = *tcp;
	for (uint32_t i = 1; i < COLLET_TUNING_LINKS; i++) {
		rows[i] = rows[0];
		rows[i].ranks = 2 + i;
	}
	assert_int_equal(collet_tuning_write(file, rows, COLLET_TUNING_LINKS), COLLET_OK);
	must((struct expected){ "COLLET_TUNING", file, false, USUAL, NULL, false });
}

static void the_home_folder_is_looked_in(void **state)
{
	char home[128], from[192];
	write_odd();
	snprintf(home, sizeof(home), "%s/home", folder);
	snprintf(from, sizeof(from), "%s/home/.config", folder);
	assert_int_equal(mkdir(home, 0700), 0);
	assert_int_equal(symlink(folder, from), 0);
	must((struct expected){ "HOME", home, false, ODD, NULL, false });
	unlink(from);
	rmdir(home);
}

static void deterministic_choices_read_no_file(void **state)
{
	write_odd();
	must((struct expected){ "COLLET_TUNING", file, true, USUAL, NULL, false });
	write_text("rubbish\n");
	must((struct expected){ "COLLET_TUNING", file, true, USUAL, NULL, false });
}

/* A bad file that the user named is an error. A bad file at the default path is a warning, and is not used. */
static void what_is_wrong_is_said(void **state)
{
	char other_machine[65536], line[200];
	write_odd();
	const char *text = read_text();
	const char *rest = strchr(strchr(text, '\n') + 1, '\n');
	snprintf(other_machine, sizeof(other_machine), "collet-tuning 2\nmachine 3 cores, of another kind%s", rest);
	const struct {
		const char *text, *sentence;
	} rows[] = {
		{ "rubbish\n", ":1: this is no tuning" },
		{ "collet-tuning 1\n", ":1: a tuning of format 1" },
		{ other_machine, ":2: made on another machine: 3 cores, of another kind" },
		{ "collet-tuning 2\nmachine", ":2: " },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		write_text(rows[i].text);
		snprintf(line, sizeof(line), "%s%s", file, rows[i].sentence);
		must((struct expected){ "COLLET_TUNING", file, false, FAILS, line, false });
		must((struct expected){ "XDG_CONFIG_HOME", folder, false, USUAL, NULL, false });
	}
	must((struct expected){
		"COLLET_TUNING", "/nowhere/at-all", false, FAILS, "/nowhere/at-all: No such file", true});
}

/* Lists how many messages the sender needs for so many bytes, with this limit in rank 0's tuning. */
struct limited {
	uint32_t eager_bytes, bytes;
	uint64_t messages;
};

static void send_and_count(struct rank *rank)
{
	const struct limited *row = rank->options->context;
	if (!rank_create_tuned(rank, file))
		return;
	unsigned char *data = calloc(1, row->bytes);
	const collet_status status =
		rank->rank == 0 ? collet_send(rank->comm, data, row->bytes, COLLET_U8, 1, 3, NULL)
				: collet_recv(rank->comm, data, row->bytes, COLLET_U8, 0, 3, NULL, NULL);
	if (rank_ok(rank, status, "a message") && rank->rank == 0) {
		const uint64_t messages = rank_sent(rank).messages;
		rank_check(rank, messages == row->messages, "%u bytes, %u at once: %llu messages", row->bytes,
			row->eager_bytes, (unsigned long long)messages);
	}
	free(data);
}

static void limits_are_the_files(void **state)
{
	static const struct limited rows[] = {
		{ 0, 65536, 1 }, { 0, 65537, 2 }, { 4096, 4096, 1 }, { 4096, 4097, 2 },
		{ COLLET_EAGER_BYTES_MAX, COLLET_EAGER_BYTES_MAX, 1 },
		{ COLLET_EAGER_BYTES_MAX, COLLET_EAGER_BYTES_MAX + 1, 2 },
	};
	static const char *const transports[] = { "shm", "tcp" };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		collet_link_cost links[COLLET_TUNING_LINKS];
		size_t count;
		assert_int_equal(collet_tuning_read(NULL, links, COLLET_TUNING_LINKS, &count), COLLET_OK);
		for (size_t l = 0; l < count; l++)
			links[l].eager_bytes = rows[i].eager_bytes;
		assert_int_equal(collet_tuning_write(file, links, count), COLLET_OK);
		for (size_t t = 0; t < 2; t++) {
			const struct ranks_options options = { .mode = RANKS_PROCESSES, .size = 2, .bare = true,
				.transport = transports[t], .context = &rows[i] };
			ranks_must_pass(&options, send_and_count);
		}
	}
}

static int make_folder(void **state)
{
	char inner[96];
	strcpy(folder, "/tmp/collet-test-XXXXXX");
	if (!mkdtemp(folder))
		return 1;
	snprintf(inner, sizeof(inner), "%s/collet", folder);
	snprintf(file, sizeof(file), "%s/tuning", inner);
	return mkdir(inner, 0700);
}

static int remove_folder(void **state)
{
	char inner[96];
	unlink(file);
	snprintf(inner, sizeof(inner), "%s/collet", folder);
	rmdir(inner);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_choose_by_rank_0s_file),
		cmocka_unit_test(rows_of_far_cores_are_read),
		cmocka_unit_test(a_full_file_of_another_transport_is_read),
		cmocka_unit_test(the_home_folder_is_looked_in),
		cmocka_unit_test(deterministic_choices_read_no_file),
		cmocka_unit_test(what_is_wrong_is_said),
		cmocka_unit_test(limits_are_the_files),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
