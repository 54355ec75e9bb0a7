/* Explains calls on GPU buffers. Their path depends on which ranks share a GPU, and on what the driver can map. So
 * ranks are started, and their communicator is asked. */
#include "explain_device.h"

#include "measure/session.h"
#include "ranks/device.h"

static int print_row(const struct bench_session *session, uint64_t bytes)
{
	const struct bench_options *o = session->options;
	const uint64_t count = bench_count(&o->work, session->collet.library.size, bytes);
	collet_plan plan;
	char text[24];
	if (collet_comm_plan(session->collet.comm, bench_session_collective(session), count,
		    (collet_dtype)o->work.dtype, (collet_op)o->work.op, o->work.root, o->algorithm,
		    &plan) != COLLET_OK)
		return bench_session_complain("a plan");
	if (plan.gpu_path == NULL) {
		printf("  %12s %-12s no call that a GPU has buffers of\n", bench_bytes_text(bytes, text), "-");
		return 0;
	}
	/* -1: not known. */
	const double to_us = plan.gpu_ns > 0 ? 1e-3 : -1;
	const double times[] = {plan.gpu_ns, plan.gpu_copies_ns, plan.gpu_memory_ns, plan.gpu_messages_ns};
	printf("  %12s %-12s %-18s", bench_bytes_text(bytes, text), plan.gpu_path, plan.gpu_algorithm);
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		bench_table_number(stdout, to_us > 0 ? times[i] * to_us : -1, 11);
	puts(plan.gpu_ns <= 0 ? "" : plan.gpu_measured ? "  measured" : "  not measured");
	return 0;
}

static int print_table(const struct bench_session *session)
{
	const struct bench_options *o = session->options;
	printf("# %s of %u ranks on GPUs' memory: by which path, by the order of which algorithm, and the model's "
	       "time\n"
	       "# in us, beside what it would be of each link alone: copies to page-locked memory and back, the GPU's\n"
	       "# own memory, messages. Not measured: of a GPU by data sheets, which no GPU has confirmed\n"
	       "  %12s %-12s %-18s %11s %11s %11s %11s\n",
		bench_session_collective(session), session->collet.library.size, "bytes", "path", "algorithm", "time",
		"copies", "memory", "messages");
	for (size_t i = 0; i < o->sizes.count; i++)
		if (print_row(session, o->sizes.bytes[i]))
			return 1;
	return 0;
}

int bench_explain_device(const struct bench_options *options)
{
	struct bench_session session = { .options = options };
	struct bench_device device;
	int status = 1;
	const collet_options comm_options = { .transport = options->transport };
	if (bench_device_open_for_rank(&device, &comm_options)) {
		status = bench_session_begin(&session, options, 1);
		if (status == 0)
			status = bench_session_end(&session, session.table != NULL ? print_table(&session) : 0);
	}
	bench_device_close(&device);
	return status;
}
