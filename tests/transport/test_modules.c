/* Tests transports from modules. Unusable ones are skipped with a line that says why, or are an error where they are
 * requested by name. The others are used.
 *
 * Usage: test_modules FOLDER, with the modules of modules/kinds.c and the skeleton. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/arena.h"
#include "transport/registry.h"

static const char *modules;

struct rank_side {
	struct collet_peer_info peer_info;
	struct collet_log log;
	struct collet_wake wake;
	struct collet_transport_set set;
};

static collet_status open_set(struct rank_side *side, const char *text, enum collet_log_level level)
{
	*side = (struct rank_side){ .peer_info = { .rank = 3, .host = "here" }, .log = { .level = level, .rank = 3 } };
	const struct collet_device_config config = { .services = &collet_transport_services, .log = &side->log,
		.self = &side->peer_info, .wake = &side->wake, .job_id = 1 };
	return collet_transports_open(&side->set, text, &config, &side->peer_info);
}

/* Does the same, and captures what is logged meanwhile. */
static collet_status open_logged(
	struct rank_side *side, const char *text, enum collet_log_level level, char *logged, size_t bytes)
{
	const int file = memfd_create("log", 0), before = dup(STDERR_FILENO);
	assert_true(file >= 0 && before >= 0 && dup2(file, STDERR_FILENO) >= 0);
	const collet_status status = open_set(side, text, level);
	dup2(before, STDERR_FILENO);
	const ssize_t got = pread(file, logged, bytes - 1, 0);
	logged[got > 0 ? got : 0] = '\0';
	close(before);
	close(file);
	return status;
}

static void assert_says(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in: %s", part, text);
}

static const struct {
	const char *name;
	collet_status status;
	const char *why;
} rows[] = {
	{ "version", COLLET_ERR_CONFIG, "is for version 99 of the transport contract, this library has version 2" },
	{ "short", COLLET_ERR_CONFIG, "its table has" },
	{ "name", COLLET_ERR_CONFIG, "its table is named \"other\"" },
	{ "head", COLLET_ERR_CONFIG, "less than struct collet_endpoint" },
	{ "gap", COLLET_ERR_CONFIG, "post_recv is missing" },
	{ "half", COLLET_ERR_CONFIG, "device_close is missing" },
	{ "try", COLLET_ERR_CONFIG, "try_recv is missing" },
	{ "reach", COLLET_ERR_CONFIG, "memory_register is missing" },
	{ "symbol", COLLET_ERR_CONFIG, "does not export collet_transport_module" },
	{ "unresolved", COLLET_ERR_CONFIG, "collet_no_such_function" },
	{ "device", COLLET_ERR_UNSUPPORTED, "no adapter of this kind in /sys/class/adapters" },
	{ "data", COLLET_ERR_TRANSPORT, "bytes of peer data, but only" },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void requested_unusable_modules_are_errors(void **state)
{
	setenv("COLLET_TRANSPORT_PATH", modules, 1);
	for (unsigned i = 0; i < ROWS; i++) {
		struct rank_side side;
		char text[64];
		for (unsigned variant = 0; variant < 3; variant++) {
			static const char *const before[] = { "", "tcp,", "faulty:" };
			snprintf(text, sizeof(text), "%s%s", before[variant], rows[i].name);
			assert_int_equal(open_set(&side, text, COLLET_LOG_NONE), rows[i].status);
			assert_int_equal(side.set.count, 0);
			assert_says(collet_last_error(), rows[i].why);
			assert_says(collet_last_error(), rows[i].name);
		}
	}
}

static void other_unusable_modules_are_passed_over(void **state)
{
	static char logged[1 << 16];
	struct rank_side side;
	setenv("COLLET_TRANSPORT_PATH", modules, 1);
	assert_int_equal(open_logged(&side, NULL, COLLET_LOG_INFO, logged, sizeof(logged)), COLLET_OK);
	for (unsigned i = 0; i < ROWS; i++) {
		char line[100];
		snprintf(line, sizeof(line), "transport module %s is passed over: ", rows[i].name);
		assert_says(logged, line);
		assert_says(strstr(logged, line), rows[i].why);
		assert_null(collet_transports_find(&side.set, rows[i].name, NULL));
	}
	/* Best first, and the peer info lists the same transports. */
	static const char *const wanted[] = { "longer", "shm", "tcp", "skeleton" };
	uint32_t last = 0, at;
	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		if (!collet_transports_find(&side.set, wanted[i], &at)) {
			assert_true(i == 1 || i == 2);  /* a build may leave these out */
			continue;
		}
		assert_true(at > last);
		last = at;
		assert_string_equal(side.peer_info.transports[at - 1].name, wanted[i]);
		assert_true(collet_peer_info_offers(&side.peer_info, wanted[i]));
	}
	size_t bytes;
	const uint8_t *data = collet_peer_info_data(&side.peer_info, "skeleton", &bytes);
	assert_true(data && bytes == 1 && *data == 1);
	assert_null(collet_peer_info_data(&side.peer_info, "skelet", &bytes));
	assert_null(collet_peer_info_data(&side.peer_info, "skeletons", &bytes));
	assert_false(collet_peer_info_offers(&side.peer_info, "device"));
	collet_transports_close(&side.set, false);

	/* A missing device is the usual case, and no warning. */
	assert_int_equal(open_logged(&side, NULL, COLLET_LOG_WARN, logged, sizeof(logged)), COLLET_OK);
	assert_null(strstr(logged, "transport module device"));
	assert_says(logged, "transport module version is passed over");
	collet_transports_close(&side.set, false);
}

static void built_in_transports_load_no_module(void **state)
{
	static char logged[4096];
	struct rank_side side;
	setenv("COLLET_TRANSPORT_PATH", modules, 1);
	assert_int_equal(open_logged(&side, "self", COLLET_LOG_DEBUG, logged, sizeof(logged)), COLLET_OK);
	assert_int_equal(side.set.count, 1);
	assert_string_equal(logged, "");
	assert_string_equal(side.peer_info.transports[0].name, "");
	collet_transports_close(&side.set, false);
}

/* ---- Folders ------------------------------------------------------------------------------------------------ */

static void write_file(const char *folder, const char *name, const void *data, size_t bytes)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
	assert_true(file >= 0);
	assert_int_equal(write(file, data, bytes), bytes);
	close(file);
}

static void remove_all(const char *folder, const char *const *names)
{
	char path[PATH_MAX];
	for (; *names; names++) {
		snprintf(path, sizeof(path), "%s/%s", folder, *names);
		assert_int_equal(remove(path), 0);
	}
	assert_int_equal(rmdir(folder), 0);
}

static void files_that_are_no_modules(void **state)
{
	static const char *const files[] = { "libcollet-transport-text.so", "libcollet-transport-empty.so",
		"libcollet-transport-folder.so", "libcollet-transport-.so", "libcollet-transport-UPPER.so",
		"libcollet-transport-tcp.so", "libcollet-transport-later.so.1", "notes.txt", NULL };
	static char logged[1 << 14];
	char folder[] = "/tmp/collet-modules-XXXXXX", path[PATH_MAX];
	struct rank_side side;
	assert_non_null(mkdtemp(folder));
	for (unsigned i = 0; files[i]; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
		if (strstr(files[i], "folder"))
			assert_int_equal(mkdir(path, 0700), 0);
		else
			write_file(folder, files[i], "no module\n", strstr(files[i], "empty") ? 0 : 10);
	}
	setenv("COLLET_TRANSPORT_PATH", folder, 1);
	static const char *const named[] = { "text", "empty", "folder" };
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(open_set(&side, named[i], COLLET_LOG_NONE), COLLET_ERR_CONFIG);
		assert_says(collet_last_error(), "cannot be loaded");
		assert_says(collet_last_error(), folder);
	}
	assert_int_equal(open_logged(&side, NULL, COLLET_LOG_WARN, logged, sizeof(logged)), COLLET_OK);
	for (unsigned i = 0; i < 3; i++)
		assert_says(logged, named[i]);
	assert_null(strstr(logged, "UPPER"));
	assert_null(strstr(logged, "-tcp"));  /* built-in transports are not replaced */
	assert_null(strstr(logged, "later"));
	collet_transports_close(&side.set, false);
	remove_all(folder, files);
}

/* The first folder with a usable file is used. */
static void folders_are_searched_in_order(void **state)
{
	static const char *const files[] = { "libcollet-transport-skeleton.so", NULL };
	static char logged[1 << 14];
	char folder[] = "/tmp/collet-modules-XXXXXX", path[PATH_MAX];
	struct rank_side side;
	assert_non_null(mkdtemp(folder));
	write_file(folder, files[0], "no module\n", 10);
	snprintf(path, sizeof(path), "/nowhere::%s:%s", folder, modules);
	setenv("COLLET_TRANSPORT_PATH", path, 1);
	assert_int_equal(open_logged(&side, "skeleton", COLLET_LOG_INFO, logged, sizeof(logged)), COLLET_OK);
	assert_says(logged, folder);
	assert_non_null(collet_transports_find(&side.set, "skeleton", NULL));
	collet_transports_close(&side.set, false);

	/* If there is none, the sentence lists the searched folders. */
	setenv("COLLET_TRANSPORT_PATH", "/nowhere", 1);
	assert_int_equal(open_set(&side, "skeleton", COLLET_LOG_NONE), COLLET_ERR_CONFIG);
	assert_says(collet_last_error(), "there is no transport \"skeleton\"");
	assert_says(collet_last_error(), "/nowhere");
	assert_says(collet_last_error(), "libcollet-transport-skeleton.so");
	remove_all(folder, files);
}

static void a_misspelt_transport_gets_a_suggestion(void **state)
{
	static const char *const misspelt[][2] = {
		{ "selv", "there is no transport \"selv\" (did you mean \"self\"?)" },
		{ "skeletton", "there is no transport \"skeletton\" (did you mean \"skeleton\"?)" },
		{ "faulty:selv", "there is no transport \"selv\" (did you mean \"self\"?)" },
		{ "carrier-pigeon", "there is no transport \"carrier-pigeon\": " },
	};
	setenv("COLLET_TRANSPORT_PATH", modules, 1);
	for (size_t i = 0; i < sizeof(misspelt) / sizeof(misspelt[0]); i++) {
		struct rank_side side;
		assert_int_equal(open_set(&side, misspelt[i][0], COLLET_LOG_NONE), COLLET_ERR_CONFIG);
		assert_says(collet_last_error(), misspelt[i][1]);
	}
}

static void names_cannot_leave_the_folder(void **state)
{
	static const char *const names[] = { "", "tcp,", "../skeleton", "SKELETON", "no:tcp", ":tcp", "faulty:",
		"a-name-that-is-longer-than-any", "tcp;skeleton" };
	struct rank_side side;
	setenv("COLLET_TRANSPORT_PATH", modules, 1);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (open_set(&side, names[i], COLLET_LOG_NONE) != COLLET_ERR_CONFIG)
			fail_msg("\"%s\" was taken", names[i]);
		assert_int_equal(side.set.count, 0);
	}
}

/* ---- Memory ------------------------------------------------------------------------------------------------- */

static void devices_register_memory(void **state)
{
	struct rank_side side;
	setenv("COLLET_TRANSPORT_PATH", modules, 1);
	assert_int_equal(open_set(&side, "memory,skeleton,faulty:memory", COLLET_LOG_NONE), COLLET_OK);
	const struct collet_transport_instance *instance = collet_transports_find(&side.set, "memory", NULL);
	const unsigned *known = dlsym(instance->module, "memory_known_count");
	assert_non_null(known);
	static char page[2][4096];
	struct collet_memory memory = {
		.base = page[0], .bytes = 4096, .kind = COLLET_MEMORY_HOST, .gpu = -1, .dmabuf = -1 };
	assert_int_equal(collet_transports_register(&side.set, &side.log, &memory), COLLET_OK);
	assert_int_equal(*known, 2);  /* a wrapper forwards registrations */
	memory.base = page[1];
	memory.bytes = 100;
	assert_int_equal(collet_transports_register(&side.set, &side.log, &memory), COLLET_OK);
	assert_int_equal(*known, 2);
	memory.kind = COLLET_MEMORY_GPU;
	assert_int_equal(collet_transports_register(&side.set, &side.log, &memory), COLLET_ERR_UNSUPPORTED);
	assert_int_equal(*known, 2);
	collet_transports_deregister(&side.set, page[1]);
	collet_transports_deregister(&side.set, page[0] + 1);
	assert_int_equal(*known, 2);
	collet_transports_deregister(&side.set, page[0]);
	assert_int_equal(*known, 0);
	memory = (struct collet_memory){ .base = page[0], .bytes = 4096, .gpu = -1, .dmabuf = -1 };
	assert_int_equal(collet_transports_register(&side.set, &side.log, &memory), COLLET_OK);
	collet_transports_close(&side.set, false);  /* deregisters what is left */
}

/* ---- Wrappers ----------------------------------------------------------------------------------------------- */

static void wrappers_refuse_invalid_settings(void **state)
{
	static const char *const wrong[] = { "skip=1", "delay=", "delay=2000000", "split", "lose=-1", "delay=5;split=2",
		"drop=x", "lose=", "rank", "speed=3", "delay=5 split=3" };
	static char logged[4096], again[4096];
	struct rank_side side;
	unsetenv("COLLET_FAULTY_SEED");
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		setenv("COLLET_FAULTY", wrong[i], 1);
		if (open_set(&side, "faulty:self", COLLET_LOG_NONE) != COLLET_ERR_CONFIG)
			fail_msg("COLLET_FAULTY=%s was taken", wrong[i]);
		assert_says(collet_last_error(), "COLLET_FAULTY=");
	}
	setenv("COLLET_FAULTY", "delay=5,lose=18446744073709551615,rank=7", 1);
	assert_int_equal(open_logged(&side, "faulty:self", COLLET_LOG_NONE, logged, sizeof(logged)), COLLET_OK);
	assert_says(logged, "COLLET_FAULTY_SEED=1");
	collet_transports_close(&side.set, false);

	/* The seed may choose when a fault comes, and is printed then. */
	setenv("COLLET_FAULTY", "fail,rank=7", 1);
	setenv("COLLET_FAULTY_SEED", "5", 1);
	assert_int_equal(open_logged(&side, "faulty:self", COLLET_LOG_NONE, logged, sizeof(logged)), COLLET_OK);
	collet_transports_close(&side.set, false);
	assert_int_equal(open_logged(&side, "faulty:self", COLLET_LOG_NONE, again, sizeof(again)), COLLET_OK);
	collet_transports_close(&side.set, false);
	const char *drawn = strstr(logged, "COLLET_FAULTY_SEED=5 (lose=0, fail=");
	assert_non_null(drawn);
	assert_in_range(strtoul(strstr(drawn, "fail=") + 5, NULL, 10), 1, 100);
	assert_non_null(strstr(again, drawn));
	setenv("COLLET_FAULTY_SEED", "6", 1);
	assert_int_equal(open_logged(&side, "faulty:self", COLLET_LOG_NONE, again, sizeof(again)), COLLET_OK);
	collet_transports_close(&side.set, false);
	assert_null(strstr(again, strstr(drawn, " (")));
	unsetenv("COLLET_FAULTY");
	setenv("COLLET_FAULTY_SEED", "12x", 1);
	assert_int_equal(open_set(&side, "faulty:self", COLLET_LOG_NONE), COLLET_ERR_CONFIG);
	unsetenv("COLLET_FAULTY_SEED");
	setenv("COLLET_TRACE", "loud", 1);
	assert_int_equal(open_set(&side, "trace:self", COLLET_LOG_NONE), COLLET_ERR_CONFIG);
	assert_says(collet_last_error(), "COLLET_TRACE=loud");
	unsetenv("COLLET_TRACE");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requested_unusable_modules_are_errors),
		cmocka_unit_test(other_unusable_modules_are_passed_over),
		cmocka_unit_test(built_in_transports_load_no_module),
		cmocka_unit_test(files_that_are_no_modules),
		cmocka_unit_test(folders_are_searched_in_order),
		cmocka_unit_test(a_misspelt_transport_gets_a_suggestion),
		cmocka_unit_test(names_cannot_leave_the_folder),
		cmocka_unit_test(devices_register_memory),
		cmocka_unit_test(wrappers_refuse_invalid_settings),
	};
	if (argc != 2)
		return 2;
	modules = argv[1];
	return cmocka_run_group_tests_name("modules", tests, NULL, NULL);
}
