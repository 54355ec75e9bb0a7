/* Reading standings, pairing them, telling the verdicts. */
#include "baseline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/flat_json.h"
#include "sizes.h"

bool bench_baseline_add(struct bench_baseline *baseline, const struct bench_standing *standing)
{
	if (baseline->count == baseline->capacity) {
		const size_t capacity = baseline->capacity > 0 ? 2 * baseline->capacity : 64;
		struct bench_standing *grown = realloc(baseline->standings, capacity * sizeof(*grown));
		if (grown == NULL)
			return false;
		baseline->standings = grown;
		baseline->capacity = capacity;
	}
	baseline->standings[baseline->count++] = *standing;
	return true;
}

void bench_baseline_deinit(struct bench_baseline *baseline)
{
	free(baseline->standings);
	*baseline = (struct bench_baseline){ 0 };
}

/* False: the line is about something else. */
static bool read_standing(const char *line, struct bench_standing *standing)
{
	double ranks, bytes, in_place;
	struct bench_case *at = &standing->at;
	memset(standing, 0, sizeof(*standing));
	(void)bench_flat_text(line, "transport", at->transport, sizeof(at->transport));   /* null: none was given */
	(void)bench_flat_text(line, "cores", at->cores, sizeof(at->cores));
	if (!bench_flat_text(line, "library", standing->peer, sizeof(standing->peer))
		|| !bench_flat_text(line, "collective", at->collective, sizeof(at->collective))
		|| !bench_flat_text(line, "dtype", at->dtype, sizeof(at->dtype))
		|| !bench_flat_text(line, "op", at->op, sizeof(at->op))
		|| !bench_flat_text(line, "collet_buffers", at->buffers, sizeof(at->buffers))
		|| !bench_flat_number(line, "ranks", &ranks) || !bench_flat_number(line, "bytes", &bytes)
		|| !bench_flat_number(line, "in_place", &in_place)
		|| !bench_flat_number(line, "collet_ratio", &standing->ratio.median)
		|| !bench_flat_number(line, "collet_ratio_least", &standing->ratio.least)
		|| !bench_flat_number(line, "collet_ratio_most", &standing->ratio.most))
		return false;
	at->ranks = (uint32_t)ranks;
	at->bytes = (uint64_t)bytes;
	at->in_place = in_place > 0;
	return standing->ratio.median > 0;
}

bool bench_baseline_read(struct bench_baseline *baseline, const char *path)
{
	char *line = NULL;
	size_t capacity = 0;
	bool done = true;
	*baseline = (struct bench_baseline){ 0 };
	FILE *file = fopen(path, "re");
	if (file == NULL) {
		fprintf(stderr, "collet-bench: --baseline %s: %s\n", path, strerror(errno));
		return false;
	}
	while (done && getline(&line, &capacity, file) > 0) {
		struct bench_standing standing;
		if (read_standing(line, &standing))
			done = bench_baseline_add(baseline, &standing);
	}
	free(line);
	fclose(file);
	if (done && baseline->count > 0)
		return true;
	fprintf(stderr, "collet-bench: --baseline %s: %s\n", path,
		done ? "no line tells how collet stood to a peer (compare --json writes such)" : "out of memory");
	bench_baseline_deinit(baseline);
	return false;
}

static bool same_case(const struct bench_case *a, const struct bench_case *b)
{
	return strcmp(a->collective, b->collective) == 0 && strcmp(a->transport, b->transport) == 0
		&& strcmp(a->dtype, b->dtype) == 0 && strcmp(a->op, b->op) == 0 && strcmp(a->buffers, b->buffers) == 0
		&& strcmp(a->cores, b->cores) == 0 && a->ranks == b->ranks
		&& a->bytes == b->bytes && a->in_place == b->in_place;
}

static const struct bench_standing *find(const struct bench_baseline *in, const struct bench_standing *like)
{
	for (size_t i = 0; i < in->count; i++)
		if (strcmp(in->standings[i].peer, like->peer) == 0 && same_case(&in->standings[i].at, &like->at))
			return &in->standings[i];
	return NULL;
}

static bool is_first_of_case(const struct bench_baseline *in, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (same_case(&in->standings[i].at, &in->standings[index].at))
			return false;
	return true;
}

static void tell(FILE *out, const struct bench_case *at, const struct bench_change *change)
{
	char text[24];
	fprintf(out, "# %s, %u ranks%s%s%s%s, %s: %.2f times as long as then, against %zu peers (noise %.2f)%s\n",
		at->collective, at->ranks, at->transport[0] != '\0' ? " over " : "", at->transport,
		at->cores[0] != '\0' ? ", cores " : "", at->cores, bench_bytes_text(at->bytes, text), change->times,
		change->peers, change->noise,
		change->slower ? ": SLOWER" : change->faster ? ": faster" : "");
}

int bench_baseline_compare(const struct bench_baseline *then, const struct bench_baseline *now, FILE *out)
{
	struct bench_ratio *before = calloc(now->count + 1, sizeof(*before));
	struct bench_ratio *after = calloc(now->count + 1, sizeof(*after));
	int slower = 0, judged = 0;
	for (size_t i = 0; before != NULL && after != NULL && i < now->count; i++) {
		size_t pairs = 0;
		if (!is_first_of_case(now, i))
			continue;
		for (size_t k = i; k < now->count; k++) {
			const struct bench_standing *old = same_case(&now->standings[k].at, &now->standings[i].at)
				? find(then, &now->standings[k]) : NULL;
			if (old == NULL)
				continue;
			before[pairs] = old->ratio;
			after[pairs++] = now->standings[k].ratio;
		}
		if (pairs == 0)
			continue;
		const struct bench_change change = bench_judge_change(before, after, pairs);
		tell(out, &now->standings[i].at, &change);
		slower += change.slower;
		judged++;
	}
	free(before);
	free(after);
	if (judged > 0)
		return slower;
	fprintf(stderr, "collet-bench: --baseline: no case and peer in common with this run\n");
	return -1;
}
