/* The libraries that collet is compared with, and the settings each is run with. */
#ifndef BENCH_PEERS_VARIANTS_H
#define BENCH_PEERS_VARIANTS_H

#include <stddef.h>

struct peer_variant {
	const char *library;       /* "openmpi": what --with takes */
	const char *name;          /* "default", or what is tuned */
	const char *transport;     /* the --transport it is for; NULL: for none given */
	const char *program;       /* the driver's file name */
	const char *launcher;      /* the program that starts its ranks; NULL: they are started one by one */
	const char *arguments[16]; /* of the launcher, before "-n N PROGRAM" */
	const char *environment[8];
};

/* All of them; a library's variants stand together. */
extern const struct peer_variant bench_peer_variants[];
extern const size_t bench_peer_variant_count;

#endif
