/* Who has not come to a rendezvous: told to those who wait, and in the sentence that ends it. */
#include <stdio.h>
#include <string.h>

#include "bootstrap/meet/root.h"

void collet_absent_describe(const struct collet_meet_host *host, char *text, size_t bytes)
{
	const struct collet_launch *launch = host->meeting->launch;
	const uint32_t missing = launch->size - host->members_count;
	size_t used = (size_t)snprintf(text, bytes, "rank%s ", missing == 1 ? "" : "s");
	uint32_t told = 0;
	for (uint32_t r = 1; r < launch->size; r++) {
		if (host->members[r])
			continue;
		uint32_t last = r;
		while (last + 1 < launch->size && !host->members[last + 1])
			last++;
		/* the rest of the sentence matters more than the last of a thousand ranks */
		if (used + 64 > bytes / 2) {
			used += (size_t)snprintf(text + used, bytes - used, ", ... (%u in all)", missing);
			break;
		}
		used += (size_t)snprintf(
			text + used, bytes - used, last > r ? "%s%u-%u" : "%s%u", told ? ", " : "", r, last);
		told += last - r + 1;
		r = last;
	}
	snprintf(text + used, bytes - used, " of %u ha%s not come to %s, job '%s'%s%s", launch->size,
		missing == 1 ? "s" : "ve", collet_store_describe(launch), launch->job,
		host->turned_away[0] ? "; turned away: " : "", host->turned_away);
}

void collet_absent_describe_silent(const struct collet_meet_host *host, char *text, size_t bytes)
{
	uint32_t rank = 1;
	while (rank + 1 < host->meeting->launch->size && !collet_sites_asked(&host->sites, rank))
		rank++;
	snprintf(text, bytes,
		"rank %u has not said how its host %s is built, which hwloc reads from /sys; is it stopped?", rank,
		host->meeting->bootstrap->cards[rank].host);
}

void collet_absent_tell(struct collet_meet_host *host)
{
	char sentence[COLLET_ERROR_BYTES];
	if (host->news_count == host->members_count || !collet_deadline_passed(host->news_at))
		return;
	collet_absent_describe(host, sentence, sizeof(sentence));
	collet_log(host->meeting->log, COLLET_LOG_INFO, "rendezvous: %s", sentence);
	const struct collet_frame frame = { .kind = COLLET_FRAME_NEWS, .bytes = (uint32_t)strlen(sentence) };
	for (uint32_t r = 1; r < host->meeting->launch->size; r++)
		if (host->members[r] && collet_link_send(&host->members[r]->link, &frame, sentence) != COLLET_OK)
			collet_reception_drop(host, host->members[r]);
	host->news_count = host->members_count;
	host->news_at = collet_deadline_after((int64_t)COLLET_NEWS_EVERY_MS * 1000000);
}
