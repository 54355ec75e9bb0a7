/* Measures the kernels beside memcpy, their upper bound: GB/s of operand bytes read, best of several rounds. Arguments:
 * an operation (default sum) and a number of operands (default 2). */
#include "core/clock.h"
#include "core/types.h"
#include "reduce/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPERANDS = 32 };

static const size_t sizes[] = { 8, 256, 4 << 10, 64 << 10, 512 << 10, 8 << 20 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

struct work {
	const struct collet_reduction *reduction; /* NULL: memcpy of the first operand */
	void *result;
	struct collet_operand operands[MOST_OPERANDS];
	uint32_t operand_count;
};

static void run_once(const struct work *w, size_t bytes)
{
	if (w->reduction)
		collet_reduction_run(w->reduction, w->result, w->operands, w->operand_count,
			bytes / w->reduction->element_bytes, true, NULL);
	else
		memcpy(w->result, w->operands[0].data, bytes);
	__asm__ volatile("" : : "r"(w->result) : "memory"); /* keeps the compiler from merging repeats */
}

static int64_t run_many(const struct work *w, size_t bytes, int64_t repeats)
{
	const int64_t start = collet_clock_ns();
	for (int64_t i = 0; i < repeats; i++)
		run_once(w, bytes);
	return collet_clock_ns() - start;
}

/* Returns the ns of one run, the best of many short rounds: slower ones were disturbed by other processes. */
static double measure(const struct work *w, size_t bytes)
{
	enum { ROUNDS = 40, ROUND_NS = 500000 };
	double best = 1e30;
	int64_t repeats = 1;
	while (run_many(w, bytes, repeats) < ROUND_NS)
		repeats *= 2;
	for (int round = 0; round < ROUNDS; round++) {
		const double each = (double)run_many(w, bytes, repeats) / (double)repeats;
		best = each < best ? each : best;
	}
	return best;
}

static void print_row(const char *what, const char *isa, const struct work *w)
{
	printf("%-8s %-7s", what, isa);
	for (int i = 0; i < SIZES; i++)
		printf(" %9.1f", (double)(sizes[i] * w->operand_count) / measure(w, sizes[i]));
	printf("\n");
	fflush(stdout);
}

static bool find_op(const char *name, collet_op *op)
{
	for (int i = 0; i < COLLET_USER; i++) {
		if (strcmp(name, collet_op_name((collet_op)i)) != 0)
			continue;
		*op = (collet_op)i;
		return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	collet_op op = COLLET_SUM;
	const long operand_count = argc > 2 ? strtol(argv[2], NULL, 10) : 2;
	if ((argc > 1 && !find_op(argv[1], &op)) || operand_count < 1 || operand_count > MOST_OPERANDS) {
		fprintf(stderr, "usage: bench_reduce [OPERATION, as in sum or premul_sum] [OPERANDS, 1 to %d]\n",
			MOST_OPERANDS);
		return 2;
	}
	struct work w = { .operand_count = (uint32_t)operand_count };
	const size_t room = sizes[SIZES - 1] + 64;
	unsigned char *memory = aligned_alloc(64, room * ((size_t)operand_count + 1));
	if (!memory) {
		fprintf(stderr, "bench_reduce: no memory\n");
		return 1;
	}
	memset(memory, 0, room * ((size_t)operand_count + 1));
	w.result = memory;
	for (uint32_t k = 0; k < w.operand_count; k++)
		w.operands[k] = (struct collet_operand){ memory + room * (k + 1), true };
	printf("GB/s read, %s of %ld operands\n%-16s", collet_op_name(op), operand_count, "bytes each");
	for (int i = 0; i < SIZES; i++)
		printf(" %9zu", sizes[i]);
	printf("\n");
	struct work floor = w;
	floor.operand_count = 1;
	print_row("memcpy", "", &floor);
	for (int d = 0; d < COLLET_DTYPE_COUNT; d++) {
		for (enum collet_isa isa = COLLET_ISA_PLAIN; isa < COLLET_ISA_COUNT; isa++) {
			struct collet_reduction r;
			if (!collet_op_supports(op, (collet_dtype)d) || !collet_isa_available(isa))
				continue;
			if (collet_reduction_init(&r, (collet_dtype)d, op, NULL, 1, 2, isa) != COLLET_OK)
				continue;
			w.reduction = &r;
			print_row(collet_dtype_name((collet_dtype)d), collet_isa_name(isa), &w);
		}
	}
	free(memory);
	return 0;
}
