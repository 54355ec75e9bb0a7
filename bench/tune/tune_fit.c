/* Fits a link's cost to measured points. The library's formulas are linear in a link's numbers. A formula with one
 * number 1 and all others 0 gives that number's weight in a point's time. So the points give a system of linear
 * equations with many more equations than unknowns. The solution minimises the squares of relative errors, with no
 * unknown below 0. Coordinate descent finds it: each unknown in turn is set to its best, the others held. Then it is
 * solved again with outliers weighing less (Huber's weights), since one badly fitting algorithm should not spoil the
 * rest. The bytes that stay in a cache are no linear number, so all plausible sizes are tried. */
#include "tune_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune.h"

enum { UNKNOWNS = 10, ROUNDS = 8, SWEEPS = 2000 };

static const double far_off = 0.25;   /* relative errors above weigh less */

static double *unknown_at(collet_link_cost *link, int i)
{
	switch (i) {
	case 0: return &link->latency_ns;
	case 1: return &link->overhead_ns;
	case 2: case 3: case 4: case 5: return &link->byte_ns[i - 2];
	case 6: return &link->uncached_byte_ns;
	case 7: return &link->reduce_byte_ns;
	case 8: return &link->segment_ns;
	default: return &link->uncached_reduce_byte_ns;
	}
}

/* as_cut: as the point was; else as the link would. */
static collet_status predict(const collet_link_cost *link, const struct tune_point *point, bool as_cut, double *ns)
{
	const collet_call_shape shape = { .collective = point->collective, .ranks = link->ranks, .cores = link->cores,
		.dtype = COLLET_F32, .op = COLLET_SUM, .segment_bytes = as_cut ? point->segment_bytes : 0,
		.channels = as_cut ? point->channels : 0 };
	return collet_cost_predict(&shape, point->algorithm, NULL, link, point->bytes, ns);
}

/* A link of the same cuts with nothing in it. */
static collet_link_cost empty(const collet_link_cost *like)
{
	collet_link_cost link = { .ranks = like->ranks, .cores = like->cores, .cached_bytes = like->cached_bytes,
		.min_segment_bytes = like->min_segment_bytes, .max_segment_bytes = like->max_segment_bytes,
		.channel_ratios = { 1 } };
	memcpy(link.transport, like->transport, sizeof(link.transport));
	return link;
}

/* Each unknown's weight in each point, over its measured time: the right-hand sides are then all 1. */
static collet_status weigh(const collet_link_cost *like, const struct tune_point *points, size_t count,
	double (*weights)[UNKNOWNS])
{
	for (int u = 0; u < UNKNOWNS; u++) {
		collet_link_cost one = empty(like);
		*unknown_at(&one, u) = 1;
		for (size_t i = 0; i < count; i++) {
			double ns;
			const collet_status status = predict(&one, &points[i], true, &ns);
			if (status != COLLET_OK)
				return status;
			/* Over several channels a byte costs something else. */
			weights[i][u] = points[i].channels > 1 ? 0 : ns / points[i].ns;
		}
	}
	return COLLET_OK;
}

static double residual(const double weights[UNKNOWNS], const double x[UNKNOWNS])
{
	double sum = -1;
	for (int u = 0; u < UNKNOWNS; u++)
		sum += weights[u] * x[u];
	return sum;
}

/* The least weighted sum of squares with no x below 0; trust[i] is point i's weight. */
static void solve(double (*weights)[UNKNOWNS], const double *trust, size_t count, double x[UNKNOWNS])
{
	double products[UNKNOWNS][UNKNOWNS] = { { 0 } }, right[UNKNOWNS] = { 0 };
	for (size_t i = 0; i < count; i++) {
		for (int u = 0; u < UNKNOWNS; u++) {
			right[u] += trust[i] * weights[i][u];
			for (int v = 0; v < UNKNOWNS; v++)
				products[u][v] += trust[i] * weights[i][u] * weights[i][v];
		}
	}
	for (int sweep = 0; sweep < SWEEPS * UNKNOWNS; sweep++) {
		const int u = sweep % UNKNOWNS;
		double others = 0;
		for (int v = 0; v < UNKNOWNS; v++)
			others += v == u ? 0 : products[u][v] * x[v];
		const double best = products[u][u] > 0 ? (right[u] - others) / products[u][u] : 0;
		x[u] = best > 0 ? best : 0;
	}
}

/* Solves, trusts less what is far off, solves again. Returns the mean of the errors, those far off counted linearly. */
static double fit_robustly(double (*weights)[UNKNOWNS], double *trust, size_t count, double x[UNKNOWNS])
{
	double mean = 0;
	for (size_t i = 0; i < count; i++) {
		trust[i] = 0;   /* a point with no weights says nothing */
		for (int u = 0; u < UNKNOWNS; u++)
			if (weights[i][u] > 0)
				trust[i] = 1;
	}
	memset(x, 0, UNKNOWNS * sizeof(x[0]));
	for (int round = 0; round < ROUNDS; round++) {
		solve(weights, trust, count, x);
		mean = 0;
		for (size_t i = 0; i < count; i++) {
			if (trust[i] == 0)
				continue;
			const double off = fabs(residual(weights[i], x));
			trust[i] = off > far_off ? far_off / off : 1;
			mean += off > far_off ? off - far_off / 2 : off * off / (2 * far_off);
		}
	}
	return mean / (double)count;
}

/* Does any point depend on it? */
static bool is_told(double (*weights)[UNKNOWNS], size_t count, int unknown)
{
	for (size_t i = 0; i < count; i++)
		if (weights[i][unknown] > 0)
			return true;
	return false;
}

collet_status tune_fit(collet_link_cost *link, const struct tune_point *points, size_t count)
{
	double (*weights)[UNKNOWNS] = calloc(count + 1, sizeof(weights[0]));
	double *trust = calloc(count + 1, sizeof(trust[0]));
	double x[UNKNOWNS], least = INFINITY;
	collet_status status = weights != NULL && trust != NULL ? COLLET_OK : COLLET_ERR_MEMORY;
	collet_link_cost best = *link;
	for (uint64_t near = 128 << 10; status == COLLET_OK && near <= 64 << 20; near *= 2) {
		collet_link_cost tried = empty(link);
		tried.cached_bytes = near;
		status = weigh(&tried, points, count, weights);
		const double error = status == COLLET_OK ? fit_robustly(weights, trust, count, x) : INFINITY;
		if (error >= least)
			continue;
		least = error;
		best.cached_bytes = near;
		for (int u = 0; u < UNKNOWNS; u++)
			*unknown_at(&best, u) = x[u];
		/* No message was so long: as the longest there were. */
		for (int b = 1; b < 4; b++)
			if (!is_told(weights, count, 2 + b))
				best.byte_ns[b] = best.byte_ns[b - 1];
	}
	free(weights);
	free(trust);
	if (status != COLLET_OK)
		return status;
	/* Messages were too short to tell what a byte costs: as it was. */
	if (best.byte_ns[0] + best.byte_ns[1] + best.byte_ns[2] + best.byte_ns[3] <= 0)
		memcpy(best.byte_ns, link->byte_ns, sizeof(best.byte_ns));
	/* A link's messages take some time. */
	if (best.latency_ns + best.overhead_ns <= 0)
		best.overhead_ns = 1;
	*link = best;
	return COLLET_OK;
}

static bool same_call(const struct tune_point *a, const struct tune_point *b)
{
	return a->size == b->size && strcmp(a->collective, b->collective) == 0;
}

static bool same_algorithm(const struct tune_point *a, const struct tune_point *b)
{
	return same_call(a, b) && strcmp(a->algorithm, b->algorithm) == 0;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Returns the cost of a byte of this point relative to one channel. It compares the excess over the time of bytes
 * alone with that of `one`. */
static collet_status part_of(
	const collet_link_cost *link, const struct tune_point *point, const struct tune_point *one, double *part)
{
	collet_link_cost bytes = empty(link);
	double ns;
	memcpy(bytes.byte_ns, link->byte_ns, sizeof(bytes.byte_ns));
	bytes.uncached_byte_ns = link->uncached_byte_ns;
	bytes.overhead_ns = 1e-6;  /* some time it must take */
	const collet_status status = predict(&bytes, one, true, &ns);
	if (status == COLLET_OK)
		*part = 1 + (point->ns - one->ns) / (ns > 0 ? ns : one->ns);
	return status;
}

collet_status tune_fit_channels(collet_link_cost *link, const struct tune_point *points, size_t count)
{
	double *parts = calloc(count + 1, sizeof(parts[0]));
	collet_status status = parts != NULL ? COLLET_OK : COLLET_ERR_MEMORY;
	link->channel_ratios[0] = 1;
	for (int c = 1; c < COLLET_TUNING_CHANNELS; c++) {
		size_t told = 0;
		link->channel_ratios[c] = 0;
		for (size_t i = 0; i < count && status == COLLET_OK; i++) {
			const struct tune_point *one = &points[i];
			if (points[i].channels != 1u << c)
				continue;
			while (one > points && same_algorithm(one - 1, &points[i]))
				one--;
			if (one->channels == 1 && one->segment_bytes == points[i].segment_bytes)
				status = part_of(link, &points[i], one, &parts[told++]);
		}
		if (told == 0)
			continue;
		qsort(parts, told, sizeof(parts[0]), by_value);
		const double middle = parts[told / 2];
		link->channel_ratios[c] = middle < 0.05 ? 0.05 : middle > 100 ? 100 : middle;
	}
	free(parts);
	return status;
}

/* The algorithm's place in collet_algorithm_list(NULL, ...). */
static size_t number_of(const struct tune_point *point, const collet_algorithm_info *rows, size_t count)
{
	size_t i = 0;
	while (i < count
		&& (strcmp(rows[i].collective, point->collective) != 0
			|| strcmp(rows[i].name, point->algorithm) != 0))
		i++;
	return i;
}

static uint8_t log2_of(uint32_t value)
{
	uint8_t log = 0;
	for (; value > 1; value /= 2)
		log++;
	return log;
}

/* Returns the best candidate among the points of one algorithm and size. */
static const struct tune_point *best_candidate(const struct tune_point *first, const struct tune_point *end)
{
	const struct tune_point *best = first;
	for (const struct tune_point *p = first + 1; p < end && same_algorithm(p, first); p++)
		if (p->ns < best->ns && p->ns <= first->ns * TUNE_GAIN)
			best = p;
	return best;
}

uint32_t tune_further_segment(uint32_t segment_bytes, uint32_t most)
{
	if (segment_bytes < TUNE_USUAL_SEGMENT)
		return segment_bytes / 2 >= TUNE_MIN_SEGMENT ? segment_bytes / 2 : 0;
	const uint32_t longer = segment_bytes * 2;
	return segment_bytes > TUNE_USUAL_SEGMENT && longer <= TUNE_MAX_SEGMENT && longer <= most ? longer : 0;
}

void tune_fit_segments(collet_link_cost *link, const struct tune_point *points, size_t count)
{
	link->min_segment_bytes = link->max_segment_bytes = TUNE_USUAL_SEGMENT;
	for (size_t i = 0; i < count; i++) {
		if (i > 0 && same_algorithm(&points[i - 1], &points[i]))
			continue;
		const uint32_t segment = best_candidate(&points[i], points + count)->segment_bytes;
		link->min_segment_bytes = segment < link->min_segment_bytes ? segment : link->min_segment_bytes;
		link->max_segment_bytes = segment > link->max_segment_bytes ? segment : link->max_segment_bytes;
	}
}

collet_status tune_set_factors(collet_link_cost *link, const struct tune_point *points, size_t count)
{
	collet_algorithm_info rows[COLLET_TUNING_ALGORITHMS];
	size_t there;
	collet_status status = collet_algorithm_list(NULL, rows, COLLET_TUNING_ALGORITHMS, &there);
	memset(link->factor, 0, sizeof(link->factor));
	memset(link->segment_log2, 0, sizeof(link->segment_log2));
	memset(link->channels_log2, 0, sizeof(link->channels_log2));
	for (size_t i = 0; status == COLLET_OK && i < count; i++) {
		const size_t number = number_of(&points[i], rows, there);
		const uint32_t size = points[i].size;
		double ns;
		if (number >= COLLET_TUNING_ALGORITHMS || size >= COLLET_TUNING_SIZES
			|| (i > 0 && same_algorithm(&points[i - 1], &points[i])))
			continue;
		const struct tune_point *best = best_candidate(&points[i], points + count);
		collet_link_cost plain = *link;
		plain.size_count = 0; /* without factors */
		status = predict(&plain, best, true, &ns);
		if (status != COLLET_OK || ns <= 0)
			continue;
		link->factor[number][size] = (float)(best->ns / ns);
		if (best->bytes <= link->min_segment_bytes)
			continue;   /* nothing is cut */
		link->segment_log2[number][size] = log2_of(best->segment_bytes);
		link->channels_log2[number][size] = log2_of(best->channels);
	}
	return status;
}

/* Marks which of the points of one call, first to end, the link would choose. */
static collet_status mark_choice(const collet_link_cost *link, struct tune_point *first, const struct tune_point *end)
{
	const collet_call_shape shape = { .collective = first->collective, .ranks = link->ranks, .cores = link->cores,
		.dtype = COLLET_F32, .op = COLLET_SUM };
	collet_choice rows[64];
	size_t count, at = 0;
	const collet_status status = collet_choice_list(&shape, NULL, link, rows, 64, &count);
	if (status != COLLET_OK)
		return status;
	while (at + 1 < count && at + 1 < 64 && rows[at].last_bytes < first->bytes)
		at++;
	struct tune_point *chosen = NULL;
	for (struct tune_point *p = first; p < end; p++) {
		if (strcmp(p->algorithm, rows[at].algorithm) != 0)
			continue;
		if (chosen == NULL || (p->segment_bytes == rows[at].segment_bytes && p->channels == rows[at].channels))
			chosen = p;
	}
	if (chosen != NULL)
		chosen->chosen = true;
	return COLLET_OK;
}

collet_status tune_predict(const collet_link_cost *link, struct tune_point *points, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const collet_status status = predict(link, &points[i], true, &points[i].predicted_ns);
		if (status != COLLET_OK)
			return status;
		points[i].chosen = false;
	}
	for (size_t i = 0, end; i < count; i = end) {
		for (end = i + 1; end < count && same_call(&points[i], &points[end]);)
			end++;
		const collet_status status = mark_choice(link, &points[i], points + end);
		if (status != COLLET_OK)
			return status;
	}
	return COLLET_OK;
}

struct tune_quality tune_judge(const struct tune_point *points, size_t count)
{
	struct tune_quality q = { .worst_choice = 1 };
	double *errors = calloc(count + 1, sizeof(errors[0]));
	for (size_t i = 0; errors != NULL && i < count; i++) {
		errors[i] = fabs(points[i].predicted_ns / points[i].ns - 1);
		if (errors[i] > q.worst_error) {
			q.worst_error = errors[i];
			q.worst_error_at = i;
		}
	}
	if (errors != NULL && count > 0) {
		qsort(errors, count, sizeof(errors[0]), by_value);
		q.median_error = errors[count / 2];
	}
	free(errors);
	for (size_t i = 0, end; i < count; i = end) {
		size_t best = i, chosen = count;
		for (end = i; end < count && same_call(&points[i], &points[end]); end++) {
			best = points[end].ns < points[best].ns ? end : best;
			chosen = points[end].chosen ? end : chosen;
		}
		if (chosen == count)
			continue;
		const double ratio = points[chosen].ns / points[best].ns;
		q.choices++;
		q.bad_choices += ratio > TUNE_BAD_CHOICE;
		if (ratio > q.worst_choice) {
			q.worst_choice = ratio;
			q.worst_choice_at = chosen;
		}
	}
	return q;
}

static bool has_call(const struct tune_point *points, size_t count, const struct tune_point *of)
{
	for (size_t i = 0; i < count; i++)
		if (same_call(&points[i], of))
			return true;
	return false;
}

static const struct tune_point *find_same(const struct tune_point *points, size_t count, const struct tune_point *as)
{
	for (const struct tune_point *p = points; p < points + count; p++)
		if (same_algorithm(p, as) && p->segment_bytes == as->segment_bytes && p->channels == as->channels)
			return p;
	return NULL;
}

size_t tune_merge(struct tune_point *points, size_t count, size_t most, const struct tune_point *more,
	size_t more_count)
{
	size_t left = 0;
	for (size_t i = 0; i < count; i++) {
		struct tune_point merged = points[i];
		const struct tune_point *same = find_same(more, more_count, &merged);
		if (same != NULL) {
			const uint32_t sweeps = merged.sweeps + same->sweeps;
			merged.ns = exp((merged.sweeps * log(merged.ns) + same->sweeps * log(same->ns)) / sweeps);
			merged.sweeps = sweeps;
		} else if (has_call(more, more_count, &merged)) {
			continue;
		}
		points[left++] = merged;
	}
	const size_t both = left;
	for (size_t i = 0; i < more_count && left < most; i++)
		if (!has_call(points, both, &more[i]))
			points[left++] = more[i];
	return left;
}

bool tune_point_read(const char *line, struct tune_point *point)
{
	unsigned long long bytes;
	unsigned chosen;
	memset(point, 0, sizeof(*point));
	if (sscanf(line, "point %23s %31s %u %llu %u %u %lf %lf %u", point->collective, point->algorithm, &point->size,
			&bytes, &point->segment_bytes, &point->channels, &point->ns, &point->predicted_ns, &chosen)
		!= 9)
		return false;
	point->bytes = bytes;
	point->chosen = chosen != 0;
	point->sweeps = 1;
	return point->ns > 0 && point->segment_bytes > 0 && point->channels > 0;
}
