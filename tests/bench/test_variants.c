/* Which variants of the peers a run asks for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "peers/variants.h"
#include "work.h"

static void each_variant_is_there_once_and_libraries_stand_together(void **state)
{
	for (size_t a = 0; a < bench_peer_variant_count; a++)
		for (size_t b = a + 1; b < bench_peer_variant_count; b++) {
			const struct peer_variant *x = &bench_peer_variants[a], *y = &bench_peer_variants[b];
			const bool same_transport = x->transport == NULL || y->transport == NULL
				? x->transport == y->transport : strcmp(x->transport, y->transport) == 0;
			assert_false(same_transport && strcmp(x->library, y->library) == 0
				&& strcmp(x->name, y->name) == 0);
			if (strcmp(x->library, y->library) == 0)
				for (size_t between = a; between < b; between++)
					assert_string_equal(bench_peer_variants[between].library, x->library);
		}
}

/* A missing one is installed by its library's group; a launcher with a slash is not looked for in PATH. */
static void each_variant_says_how_it_is_installed_and_started(void **state)
{
	static const struct {
		const char *library, *group;
		bool launched, in_path;
	} rows[] = { { "openmpi", "peers", true, true }, { "mpich", "peers", true, true },
		{ "gloo", "peers", false, false }, { "impi", "peers-new", true, false },
		{ "openmpi5", "peers-new", true, false }, { "mpich5", "peers-new", true, false } };
	for (size_t v = 0; v < bench_peer_variant_count; v++) {
		const struct peer_variant *variant = &bench_peer_variants[v];
		size_t i = 0;
		while (i < sizeof(rows) / sizeof(rows[0]) && strcmp(rows[i].library, variant->library) != 0)
			i++;
		assert_true(i < sizeof(rows) / sizeof(rows[0]));
		assert_string_equal(variant->group, rows[i].group);
		assert_int_equal(variant->launcher != NULL, rows[i].launched);
		if (rows[i].launched)
			assert_int_equal(strchr(variant->launcher, '/') == NULL, rows[i].in_path);
		/* Else it is cut: a list ends with NULL. */
		assert_null(variant->settings[PEER_SETTINGS_MAX - 1]);
		assert_null(variant->arguments[PEER_ARGUMENTS_MAX - 1]);
	}
}

static const struct peer_variant *find(const char *library, const char *name, const char *transport)
{
	for (size_t v = 0; v < bench_peer_variant_count; v++) {
		const struct peer_variant *variant = &bench_peer_variants[v];
		if (strcmp(variant->library, library) == 0 && strcmp(variant->name, name) == 0
			&& (variant->transport == NULL ? transport == NULL
				: transport != NULL && strcmp(variant->transport, transport) == 0))
			return variant;
	}
	fail_msg("no %s:%s over %s", library, name, transport != NULL ? transport : "its own choice");
	return NULL;
}

static void a_run_gets_the_variants_it_asks_for(void **state)
{
	static const struct {
		const char *library, *name, *transport;   /* the variant */
		struct peer_filter filter;
		bool wanted;
	} rows[] = {
		{ "openmpi", "default", "shm", { NULL, "shm", true }, true },
		{ "openmpi", "default", "shm", { NULL, "shm", false }, true },
		{ "openmpi", "default", "shm", { NULL, "tcp", true }, false },
		{ "openmpi", "default", "shm", { NULL, NULL, true }, false },
		{ "openmpi", "default", NULL, { NULL, NULL, true }, true },
		{ "openmpi", "default", NULL, { NULL, "shm", true }, false },
		{ "openmpi", "ucx", "shm", { NULL, "shm", true }, true },
		{ "openmpi", "ucx", "shm", { NULL, "shm", false }, false },
		{ "openmpi", "ucx", "shm", { NULL, NULL, true }, true },
		{ "openmpi", "ucx", "tcp", { NULL, NULL, true }, false },
		{ "openmpi", "ucx", "shm", { "openmpi", "shm", true }, true },
		{ "openmpi", "ucx", "shm", { "openmpi:ucx", "shm", false }, true },
		{ "openmpi", "ucx", "shm", { "mpich,openmpi:ucx", "shm", true }, true },
		{ "openmpi", "ucx", "tcp", { "openmpi:ucx", "shm", true }, false },
		{ "openmpi", "default", "shm", { "openmpi:ucx", "shm", true }, false },
		{ "openmpi", "default", "shm", { "openmpi:default", "shm", true }, true },
		{ "openmpi", "ucx-doubling", "shm", { "openmpi:ucx", "shm", true }, false },
		{ "openmpi", "default", "shm", { "mpich,gloo", "shm", true }, false },
		{ "mpich", "yield", "shm", { NULL, "shm", true, .oversubscribed = false }, false },
		{ "mpich", "yield", "shm", { NULL, "shm", true, .oversubscribed = true }, true },
		{ "mpich", "yield", "shm", { "mpich:yield", "shm", true, .oversubscribed = false }, true },
		{ "mpich", "alloc", "shm", { NULL, "shm", true, .own_memory = false }, false },
		{ "mpich", "alloc", "shm", { NULL, "shm", true, .own_memory = true }, true },
		{ "impi", "adjust13", "shm", { NULL, "shm", true }, true },
		{ "impi", "adjust13", "shm", { "impi,openmpi5,mpich5", "shm", true }, true },
		{ "impi", "adjust13-pinned", "shm", { "impi", "shm", true }, false },
		{ "openmpi5", "sm", "shm", { "openmpi", "shm", true }, false },
		{ "openmpi", "sm", "shm", { "openmpi5", "shm", true }, false },
		{ "mpich5", "ucx-eager", "shm", { "mpich5", "shm", true }, true },
		{ "mpich5", "default", "shm", { "mpich", "shm", true }, false },
		{ "gloo", "default", "tcp", { NULL, "tcp", true }, true },
		{ "gloo", "default", "tcp", { NULL, NULL, true }, true },
		{ "gloo", "default", "tcp", { NULL, "shm", true }, false },
		{ "gloo", "halving", "tcp", { NULL, "tcp", true, .collectives = 1u << BENCH_ALLREDUCE }, true },
		{ "gloo", "halving", "tcp", { NULL, "tcp", true, .collectives = 1u << BENCH_BROADCAST }, false },
		{ "gloo", "halving", "tcp",
			{ NULL, "tcp", true, .collectives = 1u << BENCH_ALLREDUCE | 1u << BENCH_BARRIER }, true },
		{ "openmpi", "default", "shm", { NULL, "shm,tcp", true }, false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (bench_peer_matches(find(rows[i].library, rows[i].name, rows[i].transport), &rows[i].filter)
			!= rows[i].wanted)
			fail_msg("row %zu, %s:%s: not %s", i, rows[i].library, rows[i].name,
				rows[i].wanted ? "wanted" : "unwanted");
}

static void what_is_no_peer_is_named(void **state)
{
	static const struct {
		const char *with, *unknown;   /* NULL: all are known */
	} rows[] = {
		{ NULL, NULL }, { "openmpi", NULL }, { "openmpi,mpich,gloo", NULL }, { "openmpi:ucx,gloo:ring", NULL },
		{ "impi:p2p,openmpi5,mpich5:cma256k", NULL }, { "mpich:cma256k", "mpich:cma256k" },
		{ "openmip", "openmip" }, { "openmpi6", "openmpi6" }, { "openmpi,nobody", "nobody" },
		{ "openmpi:fast", "openmpi:fast" },
		{ "gloo:ucx,openmpi", "gloo:ucx" }, { "open", "open" }, { "openmpi:", "openmpi:" },
		{ "mpich,,gloo", "" }, { "openmpi:uc", "openmpi:uc" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t length = 99;
		const char *unknown = bench_peer_unknown(rows[i].with, &length);
		if (rows[i].unknown == NULL) {
			assert_null(unknown);
			continue;
		}
		assert_non_null(unknown);
		assert_int_equal(length, strlen(rows[i].unknown));
		assert_memory_equal(unknown, rows[i].unknown, length);
	}
}

static void a_library_is_named_with_or_without_its_variant(void **state)
{
	assert_true(bench_peer_library_named(NULL, "gloo"));
	assert_true(bench_peer_library_named("mpich,gloo", "gloo"));
	assert_true(bench_peer_library_named("gloo:ring", "gloo"));
	assert_false(bench_peer_library_named("mpich,openmpi:ucx", "gloo"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_variant_is_there_once_and_libraries_stand_together),
		cmocka_unit_test(each_variant_says_how_it_is_installed_and_started),
		cmocka_unit_test(a_run_gets_the_variants_it_asks_for),
		cmocka_unit_test(what_is_no_peer_is_named),
		cmocka_unit_test(a_library_is_named_with_or_without_its_variant),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
