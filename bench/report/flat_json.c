/* Walks over the members, so that a value that looks like a member is none. */
#include "flat_json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_blanks(const char *at)
{
	while (isspace((unsigned char)*at))
		at++;
	return at;
}

/* Behind the string that starts at a quote; NULL: it does not end. Its text without escapes goes into `into`, as much
 * of it as fits, and *length is how long it is. */
static const char *read_string(const char *at, char *into, size_t bytes, size_t *length)
{
	*length = 0;
	for (at++; *at != '"'; at++) {
		char c = *at;
		if (c == '\\') {
			c = *++at;
			if (c == 'u' && strlen(at) > 4) {
				const char digits[5] = { at[1], at[2], at[3], at[4] };
				c = (char)strtoul(digits, NULL, 16);   /* only control characters are written so */
				at += 4;
			}
		}
		if (*at == '\0')
			return NULL;
		if (*length + 1 < bytes)
			into[*length] = c;
		(*length)++;
	}
	if (bytes > 0)
		into[*length < bytes ? *length : bytes - 1] = '\0';
	return at + 1;
}

/* Returns where the member's value starts; NULL if there is no such member, or the line is no flat object. */
static const char *find(const char *line, const char *member)
{
	const char *at = skip_blanks(line);
	if (*at != '{')
		return NULL;
	at = skip_blanks(at + 1);
	while (*at == '"') {
		char name[64];
		size_t length;
		at = read_string(at, name, sizeof(name), &length);
		if (at == NULL || *(at = skip_blanks(at)) != ':')
			return NULL;
		at = skip_blanks(at + 1);
		if (length < sizeof(name) && strcmp(name, member) == 0)
			return at;
		if (*at == '[')
			at += strcspn(at, "]");   /* of numbers */
		at = *at == '"' ? read_string(at, NULL, 0, &length) : at + strcspn(at, ",}");
		if (at == NULL || *(at = skip_blanks(at)) != ',')
			return NULL;
		at = skip_blanks(at + 1);
	}
	return NULL;
}

bool bench_flat_text(const char *line, const char *member, char *into, size_t bytes)
{
	const char *at = find(line, member);
	size_t length;
	return at != NULL && *at == '"' && read_string(at, into, bytes, &length) != NULL && length < bytes;
}

bool bench_flat_number(const char *line, const char *member, double *value)
{
	const char *at = find(line, member);
	char *end;
	if (at == NULL)
		return false;
	if (strncmp(at, "true", 4) == 0 || strncmp(at, "false", 5) == 0) {
		*value = *at == 't';
		return true;
	}
	*value = strtod(at, &end);
	return end != at;
}
