#include "closest_name.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_LETTERS = 63, FAR = MOST_LETTERS + 1 };

/* Copies a word in lower case, with "_" for "-". Returns its length; FAR if it is too long. */
static size_t normalize(char normal[MOST_LETTERS + 1], const char *word)
{
	const size_t length = strlen(word);
	if (length > MOST_LETTERS)
		return FAR;
	for (size_t i = 0; i <= length; i++)
		normal[i] = word[i] == '-' ? '_' : (char)tolower((unsigned char)word[i]);
	return length;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Returns how many edits make one word the other. Row i of the table has the edits for the first i letters of a. */
static size_t edits(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[3][MOST_LETTERS + 2];
	for (size_t j = 0; j <= b_length; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
		row[0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			const bool is_same = a[i - 1] == b[j - 1];
			row[j] = least(above[j - 1] + !is_same, least(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], two_above[j - 2] + 1);
		}
	}
	return rows[a_length % 3][b_length];
}

const char *collet_closest_name(const char *word, const char *const *names, size_t count)
{
	char normal_word[MOST_LETTERS + 1], normal_name[MOST_LETTERS + 1];
	const size_t length = normalize(normal_word, word);
	if (length == FAR || length == 0)
		return NULL;
	size_t fewest = (length <= 4 ? 1 : length <= 9 ? 2 : 3) + 1;
	const char *closest = NULL;
	for (size_t i = 0; i < count; i++) {
		const size_t name_length = normalize(normal_name, names[i]);
		if (name_length == FAR)
			continue;
		const size_t distance = edits(normal_word, length, normal_name, name_length);
		if (distance < fewest && distance < length) {
			fewest = distance;
			closest = names[i];
		}
	}
	return closest;
}
