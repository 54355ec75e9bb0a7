/* Reads and writes tunings as text. Each line holds one name and its numbers, so that people can read, compare and edit
 * tunings. The parser refuses every line that it does not understand: half a tuning would lead to bad choices without a
 * warning. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "selection/tuning.h"
#include "core/number.h"
#include "core/status.h"
#include "selection/tuning.h"

enum { FORMAT = 2, MIN_LIMIT = 1024, LINE_BYTES = 512, WORDS = COLLET_TUNING_SIZES + 4, WHY_BYTES = 256 };

struct tuning_parser {
	const char *machine;
	uint32_t line;
	collet_link_cost *links;
	uint32_t count;
	uint32_t seen; /* bit i: this link has had fields[i] */
	bool has_version, has_machine, has_end;
	char why[WHY_BYTES]; /* what is wrong with the line */
};

/* Lists the lines of a link that set plain members. */
enum kind { DOUBLES, UINT32S, UINT64S };
static const struct number_line {
	const char *word;
	enum kind kind;
	size_t offset;
	uint32_t count;
	bool is_optional; /* 0: the default holds, and no line is written */
} fields[] = {
	{"latency", DOUBLES, offsetof(collet_link_cost, latency_ns), 1},
	{"message", DOUBLES, offsetof(collet_link_cost, overhead_ns), 1},
	{"piece", DOUBLES, offsetof(collet_link_cost, segment_ns), 1},
	{"byte", DOUBLES, offsetof(collet_link_cost, byte_ns), 4},
	{"far_byte", DOUBLES, offsetof(collet_link_cost, uncached_byte_ns), 1},
	{"reduce_byte", DOUBLES, offsetof(collet_link_cost, reduce_byte_ns), 1},
	{"far_reduce_byte", DOUBLES, offsetof(collet_link_cost, uncached_reduce_byte_ns), 1},
	{"near", UINT64S, offsetof(collet_link_cost, cached_bytes), 1},
	{"pieces", UINT32S, offsetof(collet_link_cost, min_segment_bytes), 2},
	{"channels", DOUBLES, offsetof(collet_link_cost, channel_ratios), COLLET_TUNING_CHANNELS},
	{"eager", UINT32S, offsetof(collet_link_cost, eager_bytes), 1, .is_optional = true},
	{"inline", UINT32S, offsetof(collet_link_cost, fast_path_bytes), 1, .is_optional = true},
};
enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

/* Keeps the sentence. collet_tuning_parse() raises the error when the frames below it have ended, which saves stack. */
static collet_status fail_at(struct tuning_parser *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static collet_status fail_at(struct tuning_parser *r, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(r->why, sizeof r->why, format, arguments);
	va_end(arguments);
	return COLLET_ERR_CONFIG;
}

static bool read_double(const char *word, double *value)
{
	return collet_number_read(word, value) && *value >= 0;
}

static bool read_integer(const char *word, uint64_t most, uint64_t *value)
{
	char *end;
	errno = 0;
	*value = strtoull(word, &end, 10);
	return *word >= '0' && *word <= '9' && *end == '\0' && errno == 0 && *value <= most;
}

static collet_status read_field(struct tuning_parser *r, const struct number_line *field, char **words, uint32_t count)
{
	char *at = (char *)&r->links[r->count - 1] + field->offset;
	if (count != field->count + 1)
		return fail_at(r, "\"%s\" takes %u numbers, not %u", field->word, field->count, count - 1);
	for (uint32_t i = 0; i < field->count; i++) {
		uint64_t integer = 0;
		double value = 0;
		const bool good = field->kind == DOUBLES
					  ? read_double(words[i + 1], &value)
					  : read_integer(words[i + 1], field->kind == UINT32S ? UINT32_MAX : UINT64_MAX,
						    &integer);
		if (!good)
			return fail_at(r, "\"%s\" is no number for \"%s\"", words[i + 1], field->word);
		if (field->kind == DOUBLES)
			((double *)(void *)at)[i] = value;
		else if (field->kind == UINT32S)
			((uint32_t *)(void *)at)[i] = (uint32_t)integer;
		else
			((uint64_t *)(void *)at)[i] = integer;
	}
	const uint32_t bit = (uint32_t)1 << (field - fields);
	if (r->seen & bit)
		return fail_at(r, "\"%s\" is there twice", field->word);
	r->seen |= bit;
	return COLLET_OK;
}

static collet_status read_sizes(struct tuning_parser *r, char **words, uint32_t count)
{
	collet_link_cost *link = &r->links[r->count - 1];
	if (count - 1 > COLLET_TUNING_SIZES || link->size_count > 0)
		return fail_at(r, "\"sizes\" comes once for a link, with up to %d sizes", COLLET_TUNING_SIZES);
	for (uint32_t i = 1; i < count; i++) {
		uint64_t *size = &link->size_bytes[i - 1];
		if (!read_integer(words[i], UINT64_MAX, size) || (i > 1 && *size <= size[-1]))
			return fail_at(r, "\"%s\" is no size that follows the one before", words[i]);
	}
	link->size_count = count - 1;
	return COLLET_OK;
}

/* Parses a word of a row: one algorithm at one size. False: the word is malformed. */
typedef bool read_cell(collet_link_cost *link, uint32_t index, uint32_t size, char *word);

static bool read_factor(collet_link_cost *link, uint32_t index, uint32_t size, char *word)
{
	uint64_t percent;
	if (!read_integer(word, 100000, &percent) || percent == 0)
		return false;
	link->factor[index][size] = (float)percent / 100;
	return true;
}

static bool read_log2(const char *word, uint64_t most, uint8_t *log)
{
	uint64_t value;
	if (!read_integer(word, most, &value) || value == 0 || value & (value - 1))
		return false;
	for (*log = 0; value > 1; value /= 2)
		++*log;
	return true;
}

static bool read_segmentation(collet_link_cost *link, uint32_t index, uint32_t size, char *word)
{
	char *separator = strchr(word, 'x');
	if (!separator)
		return false;
	*separator = '\0';
	const bool good = read_log2(word, (uint64_t)1 << 30, &link->segment_log2[index][size]) &&
			  link->segment_log2[index][size] > 0 &&
			  read_log2(separator + 1, COLLET_CHANNELS_MAX, &link->channels_log2[index][size]);
	*separator = 'x';
	return good;
}

/* Lists the lines with a word for each size of the link. "-" means not measured. */
static const struct cell_line {
	const char *word;
	read_cell *read;
	const char *meant;
} rows[] = {
	{"factor", read_factor, "factor in percent (1 to 100000, or -)"},
	{"way", read_segmentation, "way to cut: powers of two are meant, as in 65536x1, or -"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Parses a line like "factor allreduce ring 110 - 95". */
static collet_status read_row(struct tuning_parser *r, const struct cell_line *row, char **words, uint32_t count)
{
	collet_link_cost *link = &r->links[r->count - 1];
	const struct collet_program *program = NULL;
	for (uint32_t c = 0; count > 2 && c < COLLET_COLLECTIVE_COUNT; c++)
		if (strcmp(collet_collective_name((enum collet_collective)c), words[1]) == 0)
			program = collet_program_find((enum collet_collective)c, words[2]);
	if (!program)
		return fail_at(r, "\"%s\" names no algorithm of this version; tune again", row->word);
	if (count - 3 != link->size_count)
		return fail_at(r, "\"%s\" takes as many numbers as there are sizes, %u, not %u", row->word,
			link->size_count, count - 3);
	const uint32_t index = collet_program_index(program);
	if (index >= COLLET_TUNING_ALGORITHMS)
		return fail_at(r, "there are more algorithms than a tuning holds");
	for (uint32_t i = 0; i < link->size_count; i++)
		if (strcmp(words[i + 3], "-") != 0 && !row->read(link, index, i, words[i + 3]))
			return fail_at(r, "\"%s\" is no %s", words[i + 3], row->meant);
	return COLLET_OK;
}

/* 0 means the default. */
static bool is_limit(uint32_t bytes, uint32_t most)
{
	return bytes == 0 || (bytes >= MIN_LIMIT && bytes <= most);
}

static bool refuse(char why[WHY_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(char why[WHY_BYTES], const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(why, WHY_BYTES, format, arguments);
	va_end(arguments);
	return false;
}

/* True if the cost model can compute with this link. Otherwise writes the reason. */
static bool is_sound(const collet_link_cost *link, char why[WHY_BYTES])
{
	double bytes = link->uncached_byte_ns + link->reduce_byte_ns + link->uncached_reduce_byte_ns;
	for (int i = 0; i < COLLET_COST_CLASSES; i++)
		bytes += link->byte_ns[i];
	if (!link->transport[0] || !memchr(link->transport, '\0', sizeof link->transport) || link->ranks == 0 ||
		link->cores == 0)
		return refuse(why, "a link without transport, ranks or cores");
	if (link->is_far > 1)
		return refuse(why, "is_far is %u; 0 or 1 is meant", link->is_far);
	if (!(link->latency_ns >= 0 && link->overhead_ns >= 0 && link->latency_ns + link->overhead_ns > 0 &&
		    link->latency_ns + link->overhead_ns < 1e10 && bytes > 0 && bytes < 1e6))
		return refuse(why, "times of %s, %u ranks, that cannot be", link->transport, link->ranks);
	if (link->min_segment_bytes < 1024 || link->max_segment_bytes < link->min_segment_bytes)
		return refuse(why, "pieces of %u to %u bytes; from 1024 up is meant", link->min_segment_bytes,
			link->max_segment_bytes);
	if (!is_limit(link->eager_bytes, COLLET_EAGER_BYTES_MAX))
		return refuse(why, "messages of up to %u bytes at once; %u to %u is meant", link->eager_bytes,
			MIN_LIMIT, COLLET_EAGER_BYTES_MAX);
	if (!is_limit(link->fast_path_bytes, COLLET_FAST_PATH_BYTES_MAX))
		return refuse(why, "calls of up to %u bytes inline; %u to %u is meant", link->fast_path_bytes,
			MIN_LIMIT, COLLET_FAST_PATH_BYTES_MAX);
	if (link->channel_ratios[0] != 1)
		return refuse(why, "the part for 1 channel is not 1");
	for (int i = 1; i < COLLET_TUNING_CHANNELS; i++)
		if (!(link->channel_ratios[i] >= 0 && link->channel_ratios[i] < 1e3))
			return refuse(why, "the part for %d channels is not from 0 to 1000", 1 << i);
	if (link->size_count > COLLET_TUNING_SIZES)
		return refuse(why, "%u sizes are more than %d", link->size_count, COLLET_TUNING_SIZES);
	return true;
}

/* Checks that the link which ends here is complete and sound. */
static collet_status end_link(struct tuning_parser *r)
{
	if (r->count == 0)
		return COLLET_OK;
	const collet_link_cost *link = &r->links[r->count - 1];
	for (uint32_t i = 0; i < FIELDS; i++)
		if (!(r->seen >> i & 1) && !fields[i].is_optional)
			return fail_at(r, "the link before this line has no \"%s\"", fields[i].word);
	char why[WHY_BYTES];
	return is_sound(link, why) ? COLLET_OK : fail_at(r, "the link before this line: %s", why);
}

/* Parses a line like "link shm 4 2" or "link shm 4 2 far": transport, ranks, cores, their distance. */
static collet_status start_link(struct tuning_parser *r, char **words, uint32_t count)
{
	uint64_t ranks, cores;
	const collet_status status = end_link(r);
	if (status != COLLET_OK)
		return status;
	if (r->count == COLLET_TUNING_LINKS)
		return fail_at(r, "more than %d links", COLLET_TUNING_LINKS);
	const bool is_far = count == 5 && strcmp(words[4], "far") == 0;
	if ((count != 4 && !is_far) || strlen(words[1]) >= sizeof r->links->transport ||
		!read_integer(words[2], UINT32_MAX, &ranks) || !read_integer(words[3], UINT32_MAX, &cores) ||
		ranks == 0 || cores == 0)
		return fail_at(r,
			"\"link\" takes a transport, a number of ranks, one of cores, and \"far\" or nothing");
	collet_link_cost *link = &r->links[r->count++];
	memset(link, 0, sizeof *link);
	strcpy(link->transport, words[1]);
	link->ranks = (uint32_t)ranks;
	link->cores = (uint32_t)cores;
	link->is_far = is_far;
	r->seen = 0;
	return COLLET_OK;
}

static collet_status read_version(struct tuning_parser *r, char **words, uint32_t count)
{
	uint64_t version;
	if (count != 2 || strcmp(words[0], "collet-tuning") != 0 || !read_integer(words[1], UINT32_MAX, &version))
		return fail_at(r, "this is no tuning: its first line is not \"collet-tuning %d\"", FORMAT);
	if (version != FORMAT)
		return fail_at(r, "a tuning of format %llu; this version reads %d. Run collet-bench tune again",
			(unsigned long long)version, FORMAT);
	r->has_version = true;
	return COLLET_OK;
}

static collet_status read_words(struct tuning_parser *r, char **words, uint32_t count)
{
	if (r->has_end)
		return fail_at(r, "something follows \"end\"");
	if (!r->has_version)
		return read_version(r, words, count);
	if (strcmp(words[0], "link") == 0)
		return start_link(r, words, count);
	if (strcmp(words[0], "end") == 0) {
		r->has_end = true;
		return end_link(r);
	}
	if (r->count == 0)
		return fail_at(r, "\"%s\" before the first \"link\"", words[0]);
	if (strcmp(words[0], "sizes") == 0)
		return read_sizes(r, words, count);
	for (uint32_t i = 0; i < ROWS; i++)
		if (strcmp(rows[i].word, words[0]) == 0)
			return read_row(r, &rows[i], words, count);
	for (uint32_t i = 0; i < FIELDS; i++)
		if (strcmp(fields[i].word, words[0]) == 0)
			return read_field(r, &fields[i], words, count);
	return fail_at(r, "\"%.40s\" means nothing in a tuning", words[0]);
}

/* Not inlined: its buffers must be off the stack when collet_tuning_parse() raises the error. */
__attribute__((noinline)) static collet_status read_line(struct tuning_parser *r, const char *line, size_t length)
{
	static const char machine[] = "machine ", any[] = "any";
	char copy[LINE_BYTES], *words[WORDS], *rest = copy;
	uint32_t count = 0;
	if (length >= sizeof copy)
		return fail_at(r, "the line is longer than %d characters", LINE_BYTES - 1);
	memcpy(copy, line, length);
	copy[length] = '\0';
	if (r->has_version && strncmp(copy, machine, sizeof machine - 1) == 0) {
		r->has_machine = true;
		const char *of = copy + sizeof machine - 1;
		if (r->machine && strcmp(of, any) != 0 && strcmp(of, r->machine) != 0)
			return fail_at(r, "made on another machine: %.100s, not %.100s. Run collet-bench tune here", of,
				r->machine);
		return COLLET_OK;
	}
	for (char *word; (word = strtok_r(rest, " \t\r", &rest)) && *word != '#'; words[count++] = word)
		if (count == WORDS)
			return fail_at(r, "more than %d words", WORDS);
	return count > 0 ? read_words(r, words, count) : COLLET_OK;
}

static collet_status read_text(struct tuning_parser *r, const char *text)
{
	for (const char *from = text; *from;) {
		const size_t length = strcspn(from, "\n");
		r->line++;
		const collet_status status = read_line(r, from, length);
		if (status != COLLET_OK)
			return status;
		from += length + (from[length] == '\n');
	}
	if (!r->has_version)
		return fail_at(r, "this is no tuning: it has no line \"collet-tuning %d\"", FORMAT);
	if (!r->has_end)
		return fail_at(r, "it ends without \"end\": it was cut off");
	if (!r->has_machine || r->count == 0)
		return fail_at(r, "it has no %s", r->has_machine ? "link" : "line \"machine\"");
	return COLLET_OK;
}

collet_status collet_tuning_parse(const char *text, const char *name, const char *machine,
	collet_link_cost links[COLLET_TUNING_LINKS], uint32_t *count)
{
	struct tuning_parser r = { .machine = machine, .links = links };
	const collet_status status = read_text(&r, text);
	if (status != COLLET_OK)
		return collet_fail(status, "%s:%u: %s", name, r.line, r.why);
	*count = r.count;
	return COLLET_OK;
}

collet_status collet_tuning_check(const collet_link_cost *link)
{
	char why[WHY_BYTES];
	return is_sound(link, why) ? COLLET_OK : collet_fail(COLLET_ERR_ARGUMENT, "%s", why);
}

/* True if an optional field, one 32-bit number, is not 0. */
static bool is_set(const struct number_line *field, const collet_link_cost *link)
{
	return *(const uint32_t *)(const void *)((const char *)link + field->offset) != 0;
}

static void format_field(FILE *out, const struct number_line *field, const collet_link_cost *link)
{
	const char *at = (const char *)link + field->offset;
	char index[COLLET_NUMBER_BYTES];
	fputs(field->word, out);
	for (uint32_t i = 0; i < field->count; i++) {
		if (field->kind == DOUBLES)
			fprintf(out, " %s", collet_number_write(index, 5, ((const double *)(const void *)at)[i]));
		else if (field->kind == UINT32S)
			fprintf(out, " %u", ((const uint32_t *)(const void *)at)[i]);
		else
			fprintf(out, " %llu", (unsigned long long)((const uint64_t *)(const void *)at)[i]);
	}
	fputc('\n', out);
}

static void format_segmentations(
	FILE *out, const collet_link_cost *link, uint32_t index, const char *collective, const char *name)
{
	bool any = false;
	for (uint32_t i = 0; i < link->size_count; i++)
		any |= link->segment_log2[index][i] > 0;
	if (!any)
		return;
	fprintf(out, "way %s %s", collective, name);
	for (uint32_t i = 0; i < link->size_count; i++) {
		if (link->segment_log2[index][i])
			fprintf(out, " %ux%u", 1u << link->segment_log2[index][i], 1u << link->channels_log2[index][i]);
		else
			fputs(" -", out);
	}
	fputc('\n', out);
}

static void format_factors(FILE *out, const collet_link_cost *link)
{
	for (uint32_t c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		const struct collet_program *const *programs = collet_programs((enum collet_collective)c, &count);
		for (size_t p = 0; p < count; p++) {
			const uint32_t index = collet_program_index(programs[p]);
			const float *factor = index < COLLET_TUNING_ALGORITHMS ? link->factor[index] : NULL;
			bool any = false;
			for (uint32_t i = 0; factor && i < link->size_count; i++)
				any |= factor[i] > 0;
			if (!any)
				continue;
			fprintf(out, "factor %s %s", collet_collective_name((enum collet_collective)c),
				programs[p]->name);
			for (uint32_t i = 0; i < link->size_count; i++) {
				const long percent = lround((double)factor[i] * 100);
				if (factor[i] > 0)
					fprintf(out, " %ld", percent < 1 ? 1 : percent > 100000 ? 100000 : percent);
				else
					fputs(" -", out);
			}
			fputc('\n', out);
			format_segmentations(out, link, index, collet_collective_name((enum collet_collective)c),
				programs[p]->name);
		}
	}
}

void collet_tuning_format(FILE *out, const char *machine, const collet_link_cost *links, size_t count)
{
	fprintf(out, "collet-tuning %d\nmachine %s\n", FORMAT, machine);
	for (size_t l = 0; l < count; l++) {
		fprintf(out, "link %s %u %u%s\n", links[l].transport, links[l].ranks, links[l].cores,
			links[l].is_far ? " far" : "");
		for (uint32_t i = 0; i < FIELDS; i++)
			if (!fields[i].is_optional || is_set(&fields[i], &links[l]))
				format_field(out, &fields[i], &links[l]);
		if (links[l].size_count > 0) {
			fputs("sizes", out);
			for (uint32_t i = 0; i < links[l].size_count; i++)
				fprintf(out, " %llu", (unsigned long long)links[l].size_bytes[i]);
			fputc('\n', out);
			format_factors(out, &links[l]);
		}
	}
	fputs("end\n", out);
}
