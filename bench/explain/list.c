/* Prints what the library has: algorithms and transports. */
#include "list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/wrap.h"

static int complain(const char *what)
{
	fprintf(stderr, "collet-bench: %s: %s\n", what, collet_last_error());
	return 1;
}

collet_algorithm_info *bench_list_algorithms(const char *collective, size_t *count)
{
	*count = 0;
	if (collet_algorithm_list(collective, NULL, 0, count) != COLLET_OK)
		return NULL;
	collet_algorithm_info *rows = calloc(*count + 1, sizeof(rows[0]));
	if (rows != NULL && collet_algorithm_list(collective, rows, *count, count) != COLLET_OK) {
		free(rows);
		rows = NULL;
	}
	return rows;
}

static int list_algorithms(void)
{
	size_t count;
	collet_algorithm_info *rows = bench_list_algorithms(NULL, &count);
	if (rows == NULL)
		return complain("the algorithms");
	printf("%-15s %-18s %s\n", "collective", "algorithm", "");
	for (size_t i = 0; i < count; i++) {
		const bool is_same = i > 0 && strcmp(rows[i].collective, rows[i - 1].collective) == 0;
		const int column = printf("%-15s %-18s ", is_same ? "" : rows[i].collective, rows[i].name);
		bench_wrap(stdout, column, column, rows[i].summary);
		putchar('\n');
	}
	free(rows);
	return 0;
}

static int list_transports(void)
{
	collet_transport_info rows[16];
	size_t count;
	if (collet_transport_list(rows, 16, &count) != COLLET_OK)
		return complain("the transports");
	printf("\n%-15s\n", "transport");
	for (size_t i = 0; i < count && i < 16; i++) {
		const int column = printf("%-15s ", rows[i].name);
		const int at = bench_wrap(stdout, column, column, rows[i].summary);
		bench_wrap(stdout, column, at,
			rows[i].is_module ? rows[i].built ? "(a module, found)" : "(a module, not found)"
			: rows[i].built ? "" : "(not in this build)");
		putchar('\n');
	}
	return 0;
}

int bench_list(const struct bench_options *options)
{
	return list_algorithms() || list_transports();
}
