/* Lists the candidates of a size: its algorithms, and how their messages are cut. */
#include <string.h>

#include "tune.h"
#include "tune_fit.h"
#include "tune_sweep.h"

enum {
	MOST_CHANNELS = 4,
	CHANNELS_FROM_BYTES = 1 << 20   /* of a call */
};

const void *tune_plan(struct collet_library *collet, const struct bench_work *work, uint64_t count,
	const char *algorithm, uint32_t segment_bytes, uint32_t channels)
{
	collet->segment_bytes = segment_bytes;
	collet->channels = channels;
	return collet_library_plan(collet, work, count, algorithm);
}

static uint32_t fitting(uint32_t segment_bytes, uint32_t most)
{
	return segment_bytes < most ? segment_bytes : most;
}

/* Adds a candidate: `like` with another cut; it runs from the next pass on. */
static struct tune_candidate *add_candidate(
	struct tune_call *call, const struct tune_candidate *like, uint32_t segment_bytes, uint32_t channels)
{
	if (call->count == TUNE_CANDIDATES)
		return NULL;
	struct tune_candidate *candidate = &call->candidate[call->count++];
	*candidate = (struct tune_candidate){ .algorithm = like->algorithm, .bytes = like->bytes,
		.predicted_ns = like->predicted_ns, .segment_bytes = segment_bytes, .channels = channels,
		.most_segment_bytes = like->most_segment_bytes };
	memcpy(candidate->calls, like->calls, sizeof(candidate->calls));
	return candidate;
}

void tune_list_candidates(struct tune_sweep *s, const struct bench_work *work, uint64_t count, struct tune_call *call)
{
	const enum bench_collective collective = (enum bench_collective)work->collective;
	tune_plan(&s->collet, work, count, NULL, 0, 0);
	const collet_plan chosen = s->collet.plan;
	s->cores = chosen.cores;
	s->shared_memory = strcmp(chosen.transport, "shm") == 0;
	s->any_memory = strcmp(chosen.transport, "tcp") == 0;
	call->count = 0;
	for (size_t a = 0; a < s->algorithm_count[collective]; a++) {
		const collet_algorithm_info *info = &s->algorithms[collective][a];
		tune_plan(&s->collet, work, count, info->name, 0, 0);
		const collet_plan own = s->collet.plan;
		if (own.algorithm == NULL || own.predicted_ns < 0)
			continue;
		const bool is_chosen = chosen.algorithm != NULL && strcmp(chosen.algorithm, info->name) == 0;
		const bool is_usual = own.channels == 1
			&& own.segment_bytes == fitting(TUNE_USUAL_SEGMENT, own.max_segment_bytes);
		const uint64_t bytes = bench_bytes(work, s->collet.library.size, count);
		struct tune_candidate *usual = &call->candidate[call->count++];
		*usual = (struct tune_candidate){ .algorithm = info,
			.bytes = bytes,
			.predicted_ns = own.predicted_ns,
			.segment_bytes = TUNE_USUAL_SEGMENT,
			.channels = 1,
			.most_segment_bytes = own.max_segment_bytes };
		const bool is_cut = bytes > TUNE_MIN_SEGMENT;
		usual->chosen = is_chosen && (is_usual || !is_cut);
		if (!is_chosen || is_usual || !is_cut)
			continue;
		const bool is_whole = own.segment_bytes == fitting(TUNE_USUAL_SEGMENT, own.max_segment_bytes);
		struct tune_candidate *other =
			add_candidate(call, usual, is_whole ? TUNE_USUAL_SEGMENT : own.segment_bytes, own.channels);
		if (other != NULL)
			other->chosen = true;
	}
	for (size_t i = 0; i < call->count; i++) {
		if (!call->candidate[i].chosen || call->count == TUNE_CANDIDATES)
			continue;
		struct tune_candidate *repeat = &call->candidate[call->count++];
		*repeat = call->candidate[i];
		repeat->chosen = false;
		repeat->repeat = true;
		break;
	}
}

/* Half as long as usual; less, where there is no room for the usual ones. */
static uint32_t shorter_segment(const struct tune_candidate *candidate)
{
	uint32_t segment = TUNE_USUAL_SEGMENT / 2;
	while (segment >= candidate->most_segment_bytes)
		segment /= 2;
	return segment;
}

/* Are messages of this call cut otherwise by it? */
static bool differs(const struct tune_candidate *candidate, uint32_t segment_bytes)
{
	const uint32_t cut = segment_bytes < TUNE_USUAL_SEGMENT ? segment_bytes : TUNE_USUAL_SEGMENT;
	return cut < candidate->bytes && segment_bytes <= candidate->most_segment_bytes &&
	       segment_bytes >= TUNE_MIN_SEGMENT;
}

void tune_extend(struct tune_call *call, size_t best)
{
	struct tune_candidate *of = &call->candidate[best];
	const uint32_t segment =
		of->channels == 1 ? tune_further_segment(of->segment_bytes, of->most_segment_bytes) : 0;
	for (size_t i = 0; i < call->count; i++)
		if (call->candidate[i].algorithm == of->algorithm && call->candidate[i].segment_bytes == segment)
			return;
	if (segment > 0 && add_candidate(call, of, segment, 1) != NULL)
		of->eliminated = false;
}

void tune_add_candidates(const struct tune_sweep *s, struct tune_call *call)
{
	const size_t usual = call->count;
	for (size_t i = 0; i < usual; i++) {
		const struct tune_candidate *p = &call->candidate[i];
		/* The library's own choice, if it is another, is there already. */
		const struct tune_candidate *own =
			i + 1 < usual && p[1].algorithm == p->algorithm && !p[1].repeat ? p + 1 : NULL;
		if (p->eliminated || p->repeat || p->segment_bytes != TUNE_USUAL_SEGMENT || p->channels != 1
			|| p->bytes <= TUNE_MIN_SEGMENT)
			continue;
		const uint32_t segments[] = { shorter_segment(p), 2 * TUNE_USUAL_SEGMENT };
		for (size_t k = 0; k < sizeof(segments) / sizeof(segments[0]); k++)
			if (differs(p, segments[k])
				&& !(own != NULL && own->segment_bytes == segments[k] && own->channels == 1))
				add_candidate(call, p, segments[k], 1);
		for (uint32_t channels = 2; p->algorithm->segmented && !s->shared_memory && channels <= MOST_CHANNELS;
			channels *= 2)
			if (p->bytes >= CHANNELS_FROM_BYTES &&
				!(own != NULL && own->segment_bytes == TUNE_USUAL_SEGMENT && own->channels == channels))
				add_candidate(call, p, TUNE_USUAL_SEGMENT, channels);
	}
}
