/* Tunings: the numbers that the cost model is made of, as text and as link costs (tools.h). */
#ifndef COLLET_SELECTION_TUNING_H
#define COLLET_SELECTION_TUNING_H

#include <stdio.h>

#include <collet/tools.h>

#include "collectives/program.h"

/* Until a machine has been measured. links has room for COLLET_TUNING_LINKS; returns how many there are. */
uint32_t collet_tuning_builtin(collet_link_cost *links);

/* What is chosen by when bits must be the same on any machine, and from version to version: never fitted again. */
collet_link_cost collet_tuning_fixed(void);

/* Reads a tuning made on `machine` (NULL: on whichever), or that says that it holds for any. name is the file's, for
 * sentences: COLLET_ERR_CONFIG with its line. */
collet_status collet_tuning_parse(const char *text, const char *name, const char *machine,
	collet_link_cost links[COLLET_TUNING_LINKS], uint32_t *count);

/* The text that parses to it. */
void collet_tuning_format(FILE *out, const char *machine, const collet_link_cost *links, size_t count);

/* COLLET_ERR_ARGUMENT: some number is out of all reason; a sentence says which. */
collet_status collet_tuning_check(const collet_link_cost *link);

/* The numbers for calls of `bytes` in all: times in seconds; in_crowd: ranks on cores that they share take longer by
 * this factor than those that the link was measured with. */
struct collet_cost_model collet_tuning_model(const collet_link_cost *link, uint64_t bytes, double in_crowd);

/* How messages are cut. */
struct collet_way {
	uint32_t piece_bytes;
	uint32_t channels;
};

/* The way that was measured to be the fastest at the size nearest to bytes; piece_bytes 0: the formulas say. */
struct collet_way collet_tuning_way(
	const collet_link_cost *link, const struct collet_program *program, uint64_t bytes);

/* What a byte holds the link between a host and others for: by the link "network"; else by the slowest host's link, of
 * so many Mb/s; else (0, not known) as Ethernet of 1 Gbit/s. */
double collet_tuning_network_byte_ns(const collet_link_cost *links, size_t count, uint32_t mbps);

/* How many ranks share a core, at least 1; cores 0: nobody shares. */
double collet_tuning_share(uint32_t ranks, uint32_t cores);

/* The measured factor for a program at so many bytes; 1 if its collective has none. */
double collet_tuning_factor(const collet_link_cost *link, const struct collet_program *program, uint64_t bytes);

#endif
