/* Parses a command line from a table of options, over getopt_long(), and prints the table as help. */
#ifndef COMMON_OPTION_TABLE_H
#define COMMON_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { OPTION_PROBLEM_BYTES = 256, OPTION_ROWS_MAX = 64 };

enum option_kind {
	OPTION_SET,    /* takes no argument; stores least in an integer, enum or bool */
	OPTION_TEXT,   /* stores the argument in a const char *, which points into argv */
	OPTION_NUMBER, /* stores an integer from least to most */
	OPTION_REAL,   /* stores a float or double from 0 to high */
	OPTION_CHOICE, /* stores the argument's index among choices in an enum or bool */
	OPTION_CALL,   /* calls parse with the argument */
};

/* Describes one option. A member's offset and size come from OPTION_MEMBER. */
struct option_row {
	const char *name;     /* without its dashes */
	const char *argument; /* its name in the help; NULL: that of choices, or none */
	const char *help;     /* lines separated by '\n'; NULL: the help leaves the option out */
	enum option_kind kind;
	size_t offset, bytes; /* of the member that receives the value */
	uint64_t least, most;
	double high;
	const char *const *choices; /* ends with NULL */
	const char *units;          /* letters that may follow a number, see option_number(); NULL: none */
	const char *expects;        /* describes a valid argument; NULL: made from the range or the choices */
	/* Reads argument into the options. Returns false after option_refuse(). */
	bool (*parse)(void *options, const char *argument, char problem[OPTION_PROBLEM_BYTES]);
	char letter;    /* the short form; 0: none */
	bool ends;      /* parsing ends here, as after --help */
	uint32_t scope; /* the program's own, as bits; 0: the row has none */
};

#define OPTION_MEMBER(type, member) offsetof(type, member), sizeof(((type *)0)->member)

struct option_table {
	const char *program;
	const char *refusal; /* precedes what an argument should be: "expected", or "not" */
	const struct option_row *rows;
	size_t count;              /* at most OPTION_ROWS_MAX */
	bool stops_at_word;        /* the first word that is no option ends the options */
	const char *intro, *outro; /* of the help, around the rows */
};

/* Stores the options of argv in *options. Returns the index of the first word that is no option, or -1 after a
 * mistake, which problem names. Words move behind the options unless stops_at_word. Sets the bit of each given row's
 * index in *given, which may be NULL. */
int option_table_parse(const struct option_table *table, int argc, char **argv, void *options, uint64_t *given,
	char problem[OPTION_PROBLEM_BYTES]);

/* Prints intro, one entry a row, and outro. */
void option_table_print(const struct option_table *table, FILE *file);
/* Prints the rows that have no scope, or a bit of this one in it. */
void option_table_print_rows(const struct option_table *table, uint32_t scope, FILE *file);

/* Reads digits from start to end, and at most one letter of units behind them. The first letter multiplies by 1024,
 * the second by 1024^2, the third by 1024^3; the next three likewise. Returns false if it is no such number, or
 * needs more than 64 bits. */
bool option_number(const char *start, const char *end, const char *units, uint64_t *value);

/* Fills problem and returns false. */
bool option_refuse(char problem[OPTION_PROBLEM_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
