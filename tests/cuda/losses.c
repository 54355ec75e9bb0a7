#include "losses.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>

#include <cmocka.h>

enum { COUNT = 3000, DEATH = 40, LOST = 2 };

void losses_in_graphs(struct gpu *gpu)
{
	struct rank *rank = gpu->rank;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	if (!gpu_make(gpu, &buffer, COUNT, 1))
		return;
	gpu_begin_capture(gpu, 0);
	rank_ok(rank, gpu_allreduce(gpu, 0, &buffer), "captured");
	rank_ok(rank, gpu_allreduce(gpu, 0, &buffer), "captured");
	gpu_end_capture(gpu, 0, &exec);
	for (int i = 0; i < 2 * DEATH; i++) {
		if (rank->rank == LOST && i == DEATH) {
			gpu_synchronize(gpu, 0);
			raise(SIGKILL);
		}
		gpu_launch(gpu, exec, 0);
	}
	gpu_synchronize(gpu, 0);
	rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_PEER_LOST, "the error");
	rank_status(rank, gpu_allreduce(gpu, 0, &buffer), COLLET_ERR_PEER_LOST, "afterwards");
	gpu_launch(gpu, exec, 0);
	gpu_synchronize(gpu, 0);
	rank_destroy(rank);
	(void)gpu->cuda.cuGraphExecDestroy(exec);
	buffer_free(&buffer);
	gpu_end(gpu);
}

void losses_must_spare(const struct ranks_options *options, ranks_body *body, uint32_t lost)
{
	struct ranks *ranks = ranks_start(options, body);
	assert_true(ranks_wait(ranks));
	for (uint32_t r = 0; r < options->size; r++) {
		const struct rank_report *report = ranks_report(ranks, r);
		if (r != lost && (report->failed || report->end != RANK_RETURNED))
			fail_msg("rank %u: %s", r, report->sentence);
	}
	ranks_free(&ranks);
}
