#include "session.h"

#include "pin.h"
#include "preflight.h"

int bench_session_complain(const char *what)
{
	bench_progress_clear();
	fprintf(stderr, "collet-bench: %s: %s\n", what, collet_last_error());
	return 1;
}

int bench_session_begin(struct bench_session *session, const struct bench_options *options, uint32_t sets)
{
	bool failed = false;
	session->options = options;
	if (collet_library_init(&session->collet, options->transport) != COLLET_OK)
		return bench_session_complain("creating the communicator");
	int status = bench_preflight(&session->collet, options, sets);
	if (status == 0 && session->collet.library.rank == 0) {
		session->json = bench_json_open(options->json, &failed);
		session->table = session->json == stdout ? NULL : stdout;
		status = failed;
	}
	if (status != 0)
		collet_library_deinit(&session->collet);
	return status;
}

int bench_session_end(struct bench_session *session, int status)
{
	if (!bench_json_close(session->json))
		status = 1;
	collet_library_deinit(&session->collet);
	return status;
}

int bench_session_prepare(struct bench_session *session, struct bench_run *run, uint64_t bytes)
{
	const struct bench_options *o = session->options;
	const struct bench_library *library = &session->collet.library;
	const uint64_t count = bench_count(&o->work, library->size, bytes);
	session->collet.segment_bytes = o->segment_bytes;
	session->collet.channels = o->channels;
	const void *how = collet_library_plan(&session->collet, &o->work, count, o->algorithm);
	const int refused = bench_preflight_algorithm(&session->collet, o->algorithm, bytes);
	if (refused != 0)
		return refused;
	const char *problem = bench_run_init(run, library, &o->work, count, o->mode.buffers, o->mode.cold, how);
	if (problem != NULL)
		fprintf(stderr, "collet-bench: %llu bytes: %s\n", (unsigned long long)bytes, problem);
	return problem != NULL;
}

const char *bench_session_collective(const struct bench_session *session)
{
	return bench_collective_name((enum bench_collective)session->options->work.collective);
}

const char *bench_session_transport(const struct bench_session *session)
{
	const char *planned = session->collet.plan.transport, *asked = session->options->transport;
	return planned[0] != '\0' ? planned : asked != NULL ? asked : "?";
}

uint64_t bench_session_bytes(const struct bench_session *session, const struct bench_run *run)
{
	return bench_bytes(&session->options->work, session->collet.library.size, run->count);
}

void bench_session_json(const struct bench_session *session, const struct bench_run *run)
{
	bench_json_begin(session->json);
	fprintf(session->json, ",\"collective\":\"%s\",\"transport\":", bench_session_collective(session));
	bench_json_string(session->json, bench_session_transport(session));
	fprintf(session->json, ",\"ranks\":%u,\"bytes\":%llu", session->collet.library.size,
		(unsigned long long)bench_session_bytes(session, run));
}

/* A rank that shares its core waits for its neighbour, and not for others. Differences of clocks may be below 0. */
int bench_session_judge(struct bench_session *session, const struct bench_load_mark *before,
	const struct bench_load_mark *after, enum bench_disturbance *disturbance)
{
	const struct collet_library *collet = &session->collet;
	const bool has_core = bench_is_pinned() && collet->plan.cores >= collet->library.size;
	struct bench_load load = bench_load_between(before, after, has_core);
	const double mine[4] = { load.own_ns, load.waited_ns, load.helpers_ns, (double)load.starts };
	double all[4];
	if (collet_allreduce(collet->comm, mine, all, 4, COLLET_F64, COLLET_SUM, NULL) != COLLET_OK)
		return bench_session_complain("collecting the load");
	load.own_ns = all[0];
	load.waited_ns = all[1];
	load.helpers_ns = all[2];
	load.starts = (uint64_t)all[3];
	*disturbance = !collet->library.one_host ? BENCH_NOT_JUDGED
		: bench_is_disturbed(&load)      ? BENCH_DISTURBED
						 : BENCH_UNDISTURBED;
	return 0;
}
