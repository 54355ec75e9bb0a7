/* Reports which ranks are missing: to the clients that wait, and in the error when the time is over. */
#include <stdio.h>
#include <string.h>

#include "bootstrap/meet/root.h"

void collet_missing_describe(const struct collet_bootstrap_root *root, char *text, size_t bytes)
{
	const struct collet_launch *launch = root->state->launch;
	const uint32_t missing = launch->size - root->registered_count;
	size_t used = (size_t)snprintf(text, bytes, "rank%s ", missing == 1 ? "" : "s");
	uint32_t listed = 0;
	for (uint32_t r = 1; r < launch->size; r++) {
		if (root->registered[r])
			continue;
		uint32_t last = r;
		while (last + 1 < launch->size && !root->registered[last + 1])
			last++;
		/* The list may fill half of the text: the rest of the sentence matters more than the last ranks. */
		if (used + 64 > bytes / 2) {
			used += (size_t)snprintf(text + used, bytes - used, ", ... (%u in all)", missing);
			break;
		}
		used += (size_t)snprintf(
			text + used, bytes - used, last > r ? "%s%u-%u" : "%s%u", listed ? ", " : "", r, last);
		listed += last - r + 1;
		r = last;
	}
	snprintf(text + used, bytes - used, " of %u ha%s not connected to %s, job '%s'%s%s", launch->size,
		missing == 1 ? "s" : "ve", collet_store_describe(launch), launch->job,
		root->last_rejected[0] ? "; rejected: " : "", root->last_rejected);
}

void collet_missing_describe_topology(const struct collet_bootstrap_root *root, char *text, size_t bytes)
{
	uint32_t rank = 1;
	while (rank + 1 < root->state->launch->size && !collet_host_table_is_asked(&root->hosts, rank))
		rank++;
	snprintf(text, bytes,
		"rank %u has not sent the topology of its host %s, which hwloc reads from /sys; is it stopped?", rank,
		root->state->bootstrap->peer_infos[rank].host);
}

void collet_missing_report(struct collet_bootstrap_root *root)
{
	char error_text[COLLET_ERROR_BYTES];
	if (root->reported_count == root->registered_count || !collet_deadline_passed(root->report_at))
		return;
	collet_missing_describe(root, error_text, sizeof(error_text));
	collet_log(root->state->log, COLLET_LOG_INFO, "bootstrap: %s", error_text);
	const struct collet_frame frame = { .kind = COLLET_FRAME_MISSING_RANKS, .bytes = (uint32_t)strlen(error_text) };
	for (uint32_t r = 1; r < root->state->launch->size; r++)
		if (root->registered[r] &&
			collet_framed_socket_send(&root->registered[r]->connection, &frame, error_text) != COLLET_OK)
			collet_root_drop_client(root, root->registered[r]);
	root->reported_count = root->registered_count;
	root->report_at = collet_deadline_after((int64_t)COLLET_MISSING_REPORT_MS * 1000000);
}
