#include "option_table.h"

#include <assert.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "closest_name.h"

enum { HELP_COLUMN = 27, FIRST_VALUE = 256 };

bool option_refuse(char problem[OPTION_PROBLEM_BYTES], const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(problem, OPTION_PROBLEM_BYTES, format, arguments);
	va_end(arguments);
	return false;
}

bool option_number(const char *start, const char *end, const char *units, uint64_t *value)
{
	uint64_t number = 0;
	const char *at = start;
	for (; at < end && *at >= '0' && *at <= '9'; at++) {
		const uint64_t digit = (uint64_t)(*at - '0');
		if (number > (UINT64_MAX - digit) / 10)
			return false;
		number = number * 10 + digit;
	}
	if (at == start)
		return false;
	const char *unit = at < end && units != NULL ? strchr(units, *at) : NULL;
	const unsigned shift = unit == NULL ? 0 : 10 * (1 + (unsigned)(unit - units) % 3);
	at += unit != NULL;
	if (at != end || number > UINT64_MAX >> shift)
		return false;
	*value = number << shift;
	return true;
}

/* Stores an integer in a member of 1 (bool), 2, 4 or 8 bytes. */
static void store(void *member, size_t bytes, uint64_t value)
{
	switch (bytes) {
	case sizeof(bool): *(bool *)member = value != 0; break;
	case sizeof(uint16_t): *(uint16_t *)member = (uint16_t)value; break;
	case sizeof(uint32_t): *(uint32_t *)member = (uint32_t)value; break;
	default: assert(bytes == sizeof(uint64_t)); *(uint64_t *)member = value;
	}
}

static bool store_real(void *member, const struct option_row *row, const char *argument)
{
	char *end;
	/* strtof() rounds once; a cast of what strtod() gives would round twice. */
	const bool is_float = row->bytes == sizeof(float);
	const double value = is_float ? (double)strtof(argument, &end) : strtod(argument, &end);
	if (end == argument || *end != '\0' || !(value >= 0 && value <= row->high))
		return false;
	if (is_float)
		*(float *)member = (float)value;
	else
		*(double *)member = value;
	return true;
}

static bool store_choice(void *member, const struct option_row *row, const char *argument)
{
	for (size_t i = 0; row->choices[i] != NULL; i++) {
		if (strcmp(row->choices[i], argument) != 0)
			continue;
		store(member, row->bytes, i);
		return true;
	}
	return false;
}

/* Writes "a, b or c", for between ", " and last " or ". */
static void join(const struct option_row *row, const char *between, const char *last, char *into, size_t bytes)
{
	size_t used = (size_t)snprintf(into, bytes, "%s", row->choices[0]);
	for (size_t i = 1; row->choices[i] != NULL && used < bytes; i++)
		used += (size_t)snprintf(into + used, bytes - used, "%s%s",
			row->choices[i + 1] == NULL ? last : between, row->choices[i]);
}

static bool refuse_argument(
	const struct option_table *table, const struct option_row *row, const char *argument, char *problem)
{
	char made[128];
	if (row->kind == OPTION_CHOICE)
		join(row, ", ", " or ", made, sizeof(made));
	else if (row->kind == OPTION_REAL)
		snprintf(made, sizeof(made), "a number from 0 to %g", row->high);
	else
		snprintf(made, sizeof(made), "a whole number from %" PRIu64 " to %" PRIu64, row->least, row->most);
	return option_refuse(problem, "--%s %s: %s %s", row->name, argument, table->refusal,
		row->expects != NULL ? row->expects : made);
}

static bool take(const struct option_table *table, const struct option_row *row, void *options, char *problem)
{
	void *member = (char *)options + row->offset;
	uint64_t number;
	bool fine = true;
	switch (row->kind) {
	case OPTION_SET: store(member, row->bytes, row->least); break;
	case OPTION_TEXT: *(const char **)member = optarg; break;
	case OPTION_NUMBER:
		fine = option_number(optarg, optarg + strlen(optarg), row->units, &number) && number >= row->least &&
		       number <= row->most;
		if (fine)
			store(member, row->bytes, number);
		break;
	case OPTION_REAL: fine = store_real(member, row, optarg); break;
	case OPTION_CHOICE: fine = store_choice(member, row, optarg); break;
	case OPTION_CALL: return row->parse(options, optarg, problem);
	}
	return fine || refuse_argument(table, row, optarg, problem);
}

/* Refuses an option with two dashes that is none, or that several begin with. Offers what the help has. */
static bool refuse_name(const struct option_table *table, const char *argument, char *problem)
{
	char word[64];
	const char *names[OPTION_ROWS_MAX], *first = NULL;
	size_t count = 0;
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
	for (size_t i = 0; i < table->count; i++) {
		const char *name = table->rows[i].name;
		const bool begins = strncmp(name, word, strlen(word)) == 0;
		if (begins && first != NULL)
			return option_refuse(problem, "--%s: ambiguous option: --%s or --%s", word, first, name);
		first = begins ? name : first;
		if (table->rows[i].help != NULL)
			names[count++] = name;
	}
	const char *closest = collet_closest_name(word, names, count);
	if (closest != NULL)
		return option_refuse(problem, "--%s: unknown option; did you mean --%s?", word, closest);
	return option_refuse(problem, "--%s: unknown option; see %s --help", word, table->program);
}

/* Names the argument that getopt has refused, and why. */
static bool refuse_option(const struct option_table *table, int why, char **argv, char *problem)
{
	const char *argument = argv[optind - 1];
	const bool is_short = optopt > 0 && optopt < FIRST_VALUE && strncmp(argument, "--", 2) != 0;
	const char letter[3] = { '-', is_short ? (char)optopt : '\0', '\0' };
	const char *name = is_short ? letter : argument;
	if (why == ':')
		return option_refuse(problem, "%s: a value is missing; see %s --help", name, table->program);
	if (optopt >= FIRST_VALUE)
		return option_refuse(problem, "%s: this option takes no value", name);
	if (!is_short)
		return refuse_name(table, argument, problem);
	return option_refuse(problem, "%s: unknown option; see %s --help", name, table->program);
}

int option_table_parse(const struct option_table *table, int argc, char **argv, void *options, uint64_t *given,
	char problem[OPTION_PROBLEM_BYTES])
{
	struct option longs[OPTION_ROWS_MAX + 1] = { 0 };
	char shorts[3 + 2 * OPTION_ROWS_MAX], *end = stpcpy(shorts, table->stops_at_word ? "+:" : ":");
	assert(table->count <= OPTION_ROWS_MAX);
	for (size_t i = 0; i < table->count; i++) {
		const struct option_row *row = &table->rows[i];
		const bool valued = row->kind != OPTION_SET;
		longs[i] = (struct option){ row->name, valued ? required_argument : no_argument, NULL,
			FIRST_VALUE + (int)i };
		if (row->letter != '\0')
			end += sprintf(end, "%c%s", row->letter, valued ? ":" : "");
	}
	opterr = 0;
	optind = 0; /* getopt may have been used before: start over */
	int option;
	while ((option = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (option == '?' || option == ':') {
			refuse_option(table, option, argv, problem);
			return -1;
		}
		size_t i = option >= FIRST_VALUE ? (size_t)(option - FIRST_VALUE) : 0;
		while (option < FIRST_VALUE && table->rows[i].letter != option)
			i++;
		if (!take(table, &table->rows[i], options, problem))
			return -1;
		if (given != NULL)
			*given |= UINT64_C(1) << i;
		if (table->rows[i].ends)
			break;
	}
	return optind;
}

static void print_row(const struct option_row *row, FILE *file)
{
	char choices[64] = "", shorts[5] = "";
	if (row->kind == OPTION_CHOICE && row->argument == NULL)
		join(row, "|", "|", choices, sizeof(choices));
	const char *argument = row->argument != NULL ? row->argument : choices;
	if (row->letter != '\0')
		snprintf(shorts, sizeof(shorts), "-%c, ", row->letter);
	const int width = fprintf(file, "  %s--%s%s%s", shorts, row->name, *argument ? " " : "", argument);
	const bool fits = width < HELP_COLUMN;
	fprintf(file, "%s%*s", fits ? "" : "\n", fits ? HELP_COLUMN - width : HELP_COLUMN, "");
	for (const char *line = row->help; line != NULL;) {
		const int length = (int)strcspn(line, "\n");
		fprintf(file, "%.*s\n", length, line);
		line = line[length] == '\n' ? line + length + 1 : NULL;
		if (line != NULL)
			fprintf(file, "%*s", HELP_COLUMN, "");
	}
}

void option_table_print_rows(const struct option_table *table, uint32_t scope, FILE *file)
{
	for (size_t i = 0; i < table->count; i++) {
		const struct option_row *row = &table->rows[i];
		if (row->help != NULL && (row->scope == 0 || (row->scope & scope) != 0))
			print_row(row, file);
	}
}

void option_table_print(const struct option_table *table, FILE *file)
{
	fputs(table->intro, file);
	option_table_print_rows(table, UINT32_MAX, file);
	fputs(table->outro, file);
}
