/* The libraries that collet is compared with, and the settings each is run with. */
#ifndef BENCH_PEERS_VARIANTS_H
#define BENCH_PEERS_VARIANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { PEER_ARGUMENTS_MAX = 8, PEER_SETTINGS_MAX = 20 };

struct peer_variant {
	const char *library;       /* "openmpi": what --with takes */
	const char *name;          /* "default", or what is tuned: --with LIBRARY:NAME */
	const char *transport;     /* the --transport it is for; NULL: for none given */
	const char *program;       /* the driver's file name */
	const char *launcher;      /* the program that starts its ranks; NULL: they are started one by one */
	const char *group;         /* what scripts/install-deps installs it by */
	const char *arguments[PEER_ARGUMENTS_MAX];   /* of the launcher, before "-n N PROGRAM" */
	const char *settings[PEER_SETTINGS_MAX];     /* "NAME=value": all that is tuned, in its environment */
	bool oversubscribed_only;         /* only of use where ranks outnumber cores */
	bool own_memory_only;      /* only of use with --buffers alloc: it gives the buffers */
	uint32_t collectives;      /* a bit for each it is for, by enum bench_collective; 0: all */
};

/* All of them; a library's variants stand together. */
extern const struct peer_variant bench_peer_variants[];
extern const size_t bench_peer_variant_count;

/* The variants that a run asks for. */
struct peer_filter {
	const char *with;          /* "openmpi,mpich:ucx"; NULL: every library */
	const char *transport;     /* NULL: none given; the ranks share a host, so what is tuned for shm serves */
	bool tuned;                /* else the default of each library only, unless it is named */
	bool oversubscribed;              /* ranks outnumber cores */
	bool own_memory;           /* --buffers alloc */
	uint32_t collectives;      /* a bit for each, by enum bench_collective */
};

/* Does the run want this variant? One that is named is wanted in any case, where its transport fits. */
bool bench_peer_matches(const struct peer_variant *variant, const struct peer_filter *filter);
/* Does the list name the library, with or without a variant? NULL names all. */
bool bench_peer_library_named(const char *with, const char *library);
/* Returns the first item of the list that names no library and no variant, and its *length; NULL: all are known. */
const char *bench_peer_unknown(const char *with, size_t *length);

/* All variants with their settings, for people. */
void bench_peer_list(FILE *out);

/* "openmpi", "openmpi:ucx". Returns into. */
const char *bench_peer_variant_name(const struct peer_variant *variant, char into[64]);

#endif
