/* Tunings: tables of link costs (tools.h), from which the cost model is computed. */
#ifndef COLLET_SELECTION_TUNING_H
#define COLLET_SELECTION_TUNING_H

#include <stdio.h>

#include <collet/tools.h>

#include "collectives/program.h"

/* Writes the built-in link costs, for machines that were not measured. links has room for COLLET_TUNING_LINKS. Returns
 * how many there are. */
uint32_t collet_tuning_builtin(collet_link_cost *links);

/* True if a built-in link was measured with far cores. Does not parse the tuning, which takes half a millisecond. */
bool collet_tuning_builtin_has_far(void);

/* Returns the link costs for COLLET_DETERMINISTIC. They never change: the same bits must come out on every machine and
 * in every version. */
collet_link_cost collet_tuning_fixed(void);

/* Parses a tuning that was made on `machine` or holds for any. machine NULL accepts all. name is the file's, for error
 * sentences. COLLET_ERR_CONFIG: the sentence names the file and the line. Takes at most 4 KiB of stack with glibc. */
collet_status collet_tuning_parse(const char *text, const char *name, const char *machine,
	collet_link_cost links[COLLET_TUNING_LINKS], uint32_t *count);

/* Writes the text that collet_tuning_parse() reads. */
void collet_tuning_format(FILE *out, const char *machine, const collet_link_cost *links, size_t count);

/* COLLET_ERR_ARGUMENT: a number is out of range; the sentence names it. */
collet_status collet_tuning_check(const collet_link_cost *link);

/* Returns the model, in seconds, of calls with `bytes` in all. oversubscription: the ranks per core, relative to those
 * when the link was measured. Everything takes so many times as long. */
struct collet_cost_model collet_tuning_model(const collet_link_cost *link, uint64_t bytes, double oversubscription);

/* Says how messages are cut. */
struct collet_segmentation {
	uint32_t segment_bytes;
	uint32_t channels;
};

/* Returns the fastest measured segmentation, at the size nearest to bytes. segment_bytes 0: not measured, use the
 * formulas. */
struct collet_segmentation collet_tuning_segmentation(
	const collet_link_cost *link, const struct collet_program *program, uint64_t bytes);

/* Returns how long a byte occupies the network link of a host. Uses the tuning's link "network"; without one, the
 * slowest host's link of `mbps` Mb/s; if that is unknown (0), 1 Gbit/s. */
double collet_tuning_network_byte_ns(const collet_link_cost *links, size_t count, uint32_t mbps);

/* Returns how many ranks share a core, at least 1. cores 0: a core for each rank. */
double collet_tuning_ranks_per_core(uint32_t ranks, uint32_t cores);

/* Returns the world beside the row that collet_tuning_find() has given: if that was measured with more ranks, the next
 * with fewer, and vice versa. Both must have ranks share as many cores. NULL: there is none, or the row is of this
 * world. */
const collet_link_cost *collet_tuning_find_beside(
	const collet_link_cost *rows, size_t count, const collet_link_cost *nearest, uint32_t ranks, uint32_t cores);
/* Returns the measured factor of a program at so many bytes: measured time / the formula's. 1 if no program of its
 * collective was measured. */
double collet_tuning_factor(const collet_link_cost *link, const struct collet_program *program, uint64_t bytes);

#endif
