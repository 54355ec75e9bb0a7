/* Compares what must be the same on all ranks, and reads and spreads the tuning. */
#include "api/agreement.h"

#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "core/clock.h"
#include "core/status.h"
#include "selection/tuning_file.h"

/* Fails with the first line in which two ranks' settings differ. */
static collet_status compare_settings(const struct collet_peer_info *a, const struct collet_peer_info *b)
{
	const char *left = a->settings, *right = b->settings;
	while (*left || *right) {
		const size_t left_bytes = strcspn(left, "\n"), right_bytes = strcspn(right, "\n");
		if (left_bytes != right_bytes || memcmp(left, right, left_bytes) != 0)
			return collet_fail(COLLET_ERR_CONFIG,
				"ranks differ in a setting that must be the same: rank %u on %s has "
				"%.*s, rank %u on %s has %.*s",
				a->rank, a->host, (int)left_bytes, left, b->rank, b->host, (int)right_bytes, right);
		left += left_bytes + (left[left_bytes] != '\0');
		right += right_bytes + (right[right_bytes] != '\0');
	}
	return COLLET_OK;
}

/* Returns the mean time of a flag from this rank's core to those of a few other ranks of the host; 0: not known. */
static double mean_core_latency_ns(const struct collet_peer_info *peer_infos, uint32_t size)
{
	enum { CORES_MOST = 4 };
	double sum_ns = 0;
	uint32_t measured = 0;
	for (uint32_t i = 1; i < size && measured < CORES_MOST; i++) {
		const struct collet_peer_info *peer = &peer_infos[i];
		if (peer->host_id != peer_infos[0].host_id || !peer->cpu || !peer_infos[0].cpu ||
			peer->cpu == peer_infos[0].cpu)
			continue;
		const double ns = collet_core_latency_ns(peer_infos[0].cpu - 1, peer->cpu - 1);
		if (!(ns > 0))
			return 0;
		sum_ns += ns;
		measured++;
	}
	return measured ? sum_ns / measured : 0;
}

/* True if this rank's core is far from those of its host's other ranks. Measures only if the tuning distinguishes
 * distances. What cannot be measured counts as near. */
static bool are_cores_far(const struct collet_context *context, const struct collet_peer_info *peer_infos,
	uint32_t size, const collet_link_cost *links, uint32_t count)
{
	bool matters = !count && collet_tuning_builtin_has_far();
	for (uint32_t i = 0; i < count; i++)
		matters |= links[i].is_far;
	if (!matters)
		return false;
	const double ns = mean_core_latency_ns(peer_infos, size);
	const bool is_far = ns >= COLLET_FAR_CORES_NS;
	if (ns > 0)
		collet_log(&context->engine.log, COLLET_LOG_INFO,
			"a flag takes %.0f ns from core to core: they count as %s", ns, is_far ? "far" : "near");
	else
		collet_log(&context->engine.log, COLLET_LOG_INFO,
			"the distance between cores cannot be measured: they count as near");
	return is_far;
}

collet_status collet_agreement_decide(
	void *of, const struct collet_peer_info *peer_infos, uint32_t size, void **blob, size_t *bytes)
{
	for (uint32_t i = 1; i < size; i++) {
		const collet_status status = compare_settings(&peer_infos[0], &peer_infos[i]);
		if (status != COLLET_OK)
			return status;
	}
	const struct collet_context *context = of;
	const size_t most = sizeof(struct collet_agreement) + COLLET_TUNING_LINKS * sizeof(collet_link_cost);
	struct collet_agreement *agreement = calloc(1, most);
	if (!agreement)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the ranks' agreement");
	agreement->session = ((uint64_t)collet_clock_ns() << 16) ^ peer_infos[0].process_id;
	if (!context->deterministic) {
		collet_link_cost *links = (collet_link_cost *)(void *)(agreement + 1);
		const collet_status status =
			collet_tuning_load(&context->engine.log, links, &agreement->link_count);
		if (status != COLLET_OK) {
			free(agreement);
			return status;
		}
		agreement->are_cores_far = are_cores_far(context, peer_infos, size, links, agreement->link_count);
	}
	*blob = agreement;
	*bytes = sizeof(*agreement) + agreement->link_count * sizeof(collet_link_cost);
	return COLLET_OK;
}

static const collet_link_cost *find_link(const struct collet_context *context, const char *transport)
{
	return collet_tuning_find(context->links, context->link_count, transport, context->launch.size, 0);
}

collet_status collet_agreement_receive(struct collet_context *context)
{
	static const char *const needed[] = { "shm", "tcp" };
	const struct collet_bootstrap *bootstrap = &context->bootstrap;
	if (bootstrap->blob_bytes >= sizeof(context->agreement))
		memcpy(&context->agreement, bootstrap->blob, sizeof(context->agreement));
	const uint32_t links = context->agreement.link_count;
	if (links > COLLET_TUNING_LINKS ||
		bootstrap->blob_bytes != sizeof(context->agreement) + links * sizeof(collet_link_cost))
		return collet_fail(
			COLLET_ERR_RENDEZVOUS, "rank 0 sent an agreement of another size; do versions differ?");
	collet_link_cost *builtin = calloc(COLLET_TUNING_LINKS, sizeof(*builtin));
	if (!builtin)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the tuning");
	const uint32_t count = collet_tuning_builtin(builtin);
	context->links = calloc(links + count, sizeof(*context->links));
	if (!context->links) {
		free(builtin);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the tuning");
	}
	memcpy(context->links, (const char *)bootstrap->blob + sizeof(context->agreement),
		links * sizeof(*context->links));
	context->link_count = links;
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (find_link(context, needed[i]))
			continue;
		for (uint32_t b = 0; b < count; b++)
			if (strcmp(builtin[b].transport, needed[i]) == 0)
				context->links[context->link_count++] = builtin[b];
	}
	free(builtin);
	context->fixed_link = collet_tuning_fixed();
	return COLLET_OK;
}
