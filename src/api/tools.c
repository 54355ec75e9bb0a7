/* Implements collet/tools.h: what collet-bench and similar tools ask the library. */
#include <collet/tools.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/call.h"
#include "api/named_algorithm.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/suggestion.h"
#include "core/types.h"
#include "engine/comm_state.h"
#include "engine/recorder.h"
#include "engine/task.h"
#include "selection/choice.h"
#include "selection/tuning.h"
#include "transport/registry.h"

/* ---- Lists ---- */

static bool find_collective(const char *name, enum collet_collective *collective)
{
	for (uint32_t c = 0; name && c < COLLET_COLLECTIVE_COUNT; c++) {
		if (strcmp(collet_collective_name((enum collet_collective)c), name) == 0) {
			*collective = (enum collet_collective)c;
			return true;
		}
	}
	return false;
}

static collet_status unknown_collective(const char *function, const char *name)
{
	char known[200] = "";
	for (uint32_t c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		strncat(known, c ? ", " : "", sizeof(known) - strlen(known) - 1);
		strncat(known, collet_collective_name((enum collet_collective)c), sizeof(known) - strlen(known) - 1);
	}
	return collet_fail(COLLET_ERR_ARGUMENT, "%s: there is no collective \"%s\"%s; there are %s", function,
		name ? name : "(NULL)", collet_suggest(name ? collet_collective_closest(name) : NULL).text, known);
}

collet_status collet_algorithm_list(const char *collective, collet_algorithm_info *rows, size_t capacity, size_t *count)
{
	if (!count || (!rows && capacity))
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_algorithm_list: an argument is NULL");
	enum collet_collective only = COLLET_COLLECTIVE_COUNT;
	*count = 0;
	if (collective && !find_collective(collective, &only))
		return unknown_collective("collet_algorithm_list", collective);
	for (uint32_t c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		if (collective && c != only)
			continue;
		size_t programs;
		const struct collet_program *const *list = collet_programs((enum collet_collective)c, &programs);
		for (size_t p = 0; p < programs; p++) {
			if (*count < capacity)
				rows[*count] = (collet_algorithm_info){
					.collective = collet_collective_name((enum collet_collective)c),
					.name = list[p]->name,
					.summary = list[p]->summary,
					.source = list[p]->source,
					.rank_ordered = list[p]->rank_ordered,
					.segmented = list[p]->segmented,
				};
			++*count;
		}
	}
	return COLLET_OK;
}

collet_status collet_transport_list(collet_transport_info *rows, size_t capacity, size_t *count)
{
	static const struct {
		const char *name, *summary;
		bool module;
	} known[] = {
		{ "self", "a rank and itself: memcpy", false },
		{ "shm", "ranks of one host: rings in shared memory, reads of the peer's arena", false },
		{ "verbs", "hosts with RDMA adapters: InfiniBand and RoCE, by reliable connections", true },
		{ "tcp", "any two ranks: a socket a channel, scatter and gather", false },
	};
	if (!count || (!rows && capacity))
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_transport_list: an argument is NULL");
	uint32_t modules;
	char (*module)[COLLET_TRANSPORT_NAME_BYTES] = collet_module_names(&modules);
	*count = sizeof(known) / sizeof(known[0]);
	for (size_t i = 0; i < *count && i < capacity; i++) {
		rows[i] = (collet_transport_info){
			.name = known[i].name, .summary = known[i].summary, .is_module = known[i].module };
		for (uint32_t t = 0; collet_transports[t]; t++)
			rows[i].built |= strcmp(collet_transports[t]->name, known[i].name) == 0;
		for (uint32_t m = 0; m < modules; m++)
			rows[i].built |= strcmp(module[m], known[i].name) == 0;
	}
	free(module);
	return COLLET_OK;
}

/* ---- Costs ---- */

/* A call whose time is to be predicted. */
struct modeled_call {
	enum collet_collective collective;
	size_t element_bytes;
	bool commutes;
	collet_link_cost link, beside; /* beside: transport is empty if there is none */
	struct collet_choice_inputs inputs;
};

static collet_status take_builtin(const char *function, const collet_call_shape *shape, const char *transport,
	struct modeled_call *modeled)
{
	if (!transport)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: transport is NULL", function);
	collet_link_cost *links = calloc(COLLET_TUNING_LINKS, sizeof(*links));
	if (!links)
		return collet_fail(COLLET_ERR_MEMORY, "%s: no memory", function);
	const uint32_t count = collet_tuning_builtin(links);
	const collet_link_cost *found = collet_tuning_find(links, count, transport, shape->ranks, shape->cores);
	const collet_link_cost *beside =
		collet_tuning_find_beside(links, count, found, shape->ranks, shape->cores);
	if (found)
		modeled->link = *found;
	if (beside)
		modeled->beside = *beside;
	free(links);
	return found ? COLLET_OK
		     : collet_fail(COLLET_ERR_ARGUMENT, "%s: the built-in tuning has no link of \"%s\"", function,
			       transport);
}

static collet_status model_call(const char *function, const collet_call_shape *shape, const char *transport,
	const collet_link_cost *cost, struct modeled_call *modeled)
{
	if (!shape)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: shape is NULL", function);
	if (!find_collective(shape->collective, &modeled->collective))
		return unknown_collective(function, shape->collective);
	modeled->element_bytes = collet_dtype_bytes(shape->dtype);
	if (!modeled->element_bytes || !shape->ranks || shape->root >= shape->ranks)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: dtype, ranks or root makes no sense", function);
	modeled->commutes = !shape->is_noncommutative;
	collet_status status = COLLET_OK;
	modeled->beside.transport[0] = '\0';
	if (cost)
		modeled->link = *cost;
	else
		status = take_builtin(function, shape, transport, modeled);
	if (status == COLLET_OK &&
		(!modeled->link.ranks || !modeled->link.min_segment_bytes ||
			modeled->link.max_segment_bytes < modeled->link.min_segment_bytes))
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: the cost has no ranks or segments", function);
	modeled->inputs = (struct collet_choice_inputs){
		.size = shape->ranks,
		.host_count = 1,
		.cores_per_host = shape->cores,
		.local = &modeled->link,
		.remote = &modeled->link,
		.beside = modeled->beside.transport[0] ? &modeled->beside : NULL,
		.scratch_bytes = COLLET_SCRATCH_BYTES,
	};
	return status;
}

/* Returns the count of a call of so many bytes, as collet-bench counts them. */
static uint64_t count_of(const struct modeled_call *modeled, uint32_t ranks, uint64_t bytes)
{
	struct collet_shape one = collet_shape_of(modeled->collective, 0, ranks, 0, 1);
	const uint64_t unit = collet_shape_bytes(modeled->collective, &one, modeled->element_bytes);
	return unit ? bytes / unit : 0;
}

collet_status collet_cost_predict(const collet_call_shape *shape, const char *algorithm, const char *transport,
	const collet_link_cost *cost, uint64_t bytes, double *ns)
{
	struct modeled_call modeled;
	collet_status status = model_call("collet_cost_predict", shape, transport, cost, &modeled);
	if (status != COLLET_OK)
		return status;
	const struct collet_program *program = NULL;
	if (!algorithm || !ns)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_cost_predict: algorithm or ns is NULL");
	status = collet_named_find("collet_cost_predict", modeled.collective, algorithm, &program);
	if (status != COLLET_OK)
		return status;
	const struct collet_shape call = collet_shape_of(modeled.collective, 0, shape->ranks, shape->root,
		count_of(&modeled, shape->ranks, bytes));
	status = collet_named_check("collet_cost_predict", program, &call, modeled.commutes);
	if (status != COLLET_OK)
		return status;
	const struct collet_decision cut =
		collet_choose_segmentation(&modeled.inputs, program, &call, modeled.element_bytes);
	const struct collet_segmentation segmentation = { shape->segment_bytes ? (uint32_t)shape->segment_bytes
									       : cut.segment_bytes,
		shape->channels ? shape->channels : cut.channels };
	*ns = collet_choice_cost(&modeled.inputs, program, &call, modeled.element_bytes, segmentation) * 1e9;
	return COLLET_OK;
}

collet_status collet_choice_list(const collet_call_shape *shape, const char *transport, const collet_link_cost *cost,
	collet_choice *rows, size_t capacity, size_t *count)
{
	if (!count || (!rows && capacity))
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_choice_list: an argument is NULL");
	*count = 0;
	struct modeled_call modeled;
	const collet_status status = model_call("collet_choice_list", shape, transport, cost, &modeled);
	if (status != COLLET_OK)
		return status;
	struct collet_choice_table table;
	collet_choice_table_init(&table, &modeled.inputs);
	const struct collet_choice_rows *rows_of_kind = collet_choice_table_rows(&table, modeled.collective,
		modeled.commutes ? COLLET_CHOICE_COMMUTATIVE : COLLET_CHOICE_RANK_ORDERED);
	const struct collet_choice_row *row = rows_of_kind->row;
	const uint32_t listed = rows_of_kind->count;
	uint64_t first = 0;
	for (uint32_t i = 0; i < listed; i++) {
		size_t programs;
		const struct collet_program *program = collet_programs(modeled.collective, &programs)[row[i].program];
		const struct collet_shape call = collet_shape_of(modeled.collective, 0, shape->ranks, shape->root,
			count_of(&modeled, shape->ranks, first));
		if (*count < capacity)
			rows[*count] = (collet_choice){ .first_bytes = first,
				.last_bytes = row[i].max_bytes,
				.algorithm = program->name,
				.first_ns = collet_choice_cost(&modeled.inputs, program, &call, modeled.element_bytes,
						    row[i].segmentation) *
					    1e9,
				.segment_bytes = row[i].segmentation.segment_bytes,
				.channels = row[i].segmentation.channels,
				.measured = row[i].measured };
		++*count;
		first = row[i].max_bytes == UINT64_MAX ? UINT64_MAX : row[i].max_bytes + 1;
	}
	return COLLET_OK;
}

/* ---- A communicator's plan ---- */

/* Lists the transports by which this rank reaches its peers, open or not. */
static void name_transports(const collet_comm *comm, char *text, size_t capacity)
{
	const struct collet_peer_info *peer_infos = comm->context->bootstrap.peer_infos;
	const struct collet_peer_info *self = &peer_infos[collet_comm_state_world_rank(&comm->state, comm->state.rank)];
	const struct collet_transport_set *set = &comm->context->transports;
	uint32_t used = 0;
	for (uint32_t r = 0; r < comm->state.size; r++) {
		const struct collet_peer_info *peer = &peer_infos[collet_comm_state_world_rank(&comm->state, r)];
		if (r == comm->state.rank && comm->state.size > 1)
			continue;
		for (uint32_t t = 0; t < set->count; t++) {
			if (collet_transport_instance_reaches(set->instances[t], self, peer)) {
				used |= (uint32_t)1 << t;
				break;
			}
		}
	}
	text[0] = '\0';
	for (uint32_t t = 0; t < set->count; t++) {
		if (!(used >> t & 1))
			continue;
		strncat(text, text[0] ? "," : "", capacity - strlen(text) - 1);
		strncat(text, set->instances[t]->name, capacity - strlen(text) - 1);
	}
}

static bool can_run(const struct collet_program *program, const struct collet_shape *shape, size_t element)
{
	return collet_program_fits(program, shape) &&
		collet_program_max_scratch(program, *shape) <= COLLET_SCRATCH_BYTES / element;
}

collet_status collet_comm_plan(collet_comm *comm, const char *collective, uint64_t count, collet_dtype dtype,
	collet_op op, uint32_t root, const char *algorithm, collet_plan *plan)
{
	enum collet_collective which;
	if (!comm || !plan)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_comm_plan: comm or plan is NULL");
	if (!find_collective(collective, &which))
		return unknown_collective("collet_comm_plan", collective);
	const size_t element = collet_dtype_bytes(dtype);
	if (!element || root >= comm->state.size)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_comm_plan: dtype or root makes no sense");
	struct collet_shape shape = collet_shape_of(which, comm->state.rank, comm->state.size, root, count);
	collet_layout_by_host(comm, &shape, op != COLLET_USER);
	const struct collet_program *forced = comm->context->forced[which];
	const bool combines = collet_collective_is_reduction(which);
	struct collet_path_query query = {
		.collective = which, .op = combines ? op : COLLET_OP_COUNT, .dtype = dtype, .shape = &shape
	};
	const struct collet_choice_basis basis = collet_call_choice_basis(comm, &query, false);
	struct collet_decision decision = collet_call_choose(&basis, &query, op != COLLET_USER);
	if (!forced && basis.is_hierarchical)
		decision = collet_choose_segmentation(
			&comm->inputs, collet_program_find(which, "hierarchical"), &shape, element);
	if (algorithm) {
		collet_status status = collet_named_find("collet_comm_plan", which, algorithm, &forced);
		if (status == COLLET_OK)
			status = collet_named_check_scratch("collet_comm_plan", forced, &shape, true, element);
		if (status != COLLET_OK)
			return status;
	}
	query.algorithm_named = forced && can_run(forced, &shape, element);
	if (query.algorithm_named)
		decision = collet_choose_segmentation(basis.inputs, forced, &shape,
			collet_message_element_bytes(forced, &shape, dtype, query.op));
	const size_t sent = collet_message_element_bytes(decision.program, &shape, dtype, query.op);
	memset(plan, 0, sizeof(*plan));
	query.program = decision.program;
	plan->algorithm = decision.program->name;
	const struct collet_segmentation cut = {decision.segment_bytes, decision.channels};
	plan->predicted_ns = collet_choice_cost(basis.inputs, decision.program, &shape, sent, cut) * 1e9;
	if (comm->gpu)
		collet_offload->plan(comm, &query, cut, plan);
	const uint32_t fan_in = collet_program_fan_in(decision.program, &shape);
	plan->max_segment_bytes =
		(uint32_t)(sent * collet_segment_elements(UINT32_MAX,
					  collet_slot_segments(decision.program->collective, fan_in), sent));
	plan->segment_bytes =
		decision.segment_bytes < plan->max_segment_bytes ? decision.segment_bytes : plan->max_segment_bytes;
	plan->channels = decision.program->segmented ? decision.channels : 1;
	plan->cores = comm->context->bootstrap.peer_infos[collet_comm_state_world_rank(&comm->state, 0)].host_cores;
	name_transports(comm, plan->transport, sizeof(plan->transport));
	return COLLET_OK;
}

/* ---- Flight recorder ---- */

static collet_status write_line(int fd, const char *line, size_t bytes)
{
	while (bytes) {
		const ssize_t written = write(fd, line, bytes);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return collet_fail(COLLET_ERR_SYSTEM, "collet_comm_dump: writing: %s", strerror(errno));
		line += written;
		bytes -= (size_t)written;
	}
	return COLLET_OK;
}

/* Writes the records of one recorder. kind says what its calls are, if they are numbered out of band. */
static collet_status dump_recorder(
	const collet_comm *comm, const struct collet_recorder *recorder, const char *kind, int fd)
{
	const uint64_t calls = collet_recorder_count(recorder);
	const int64_t now = collet_clock_ns();
	for (uint64_t call = calls > COLLET_RECORDS ? calls - COLLET_RECORDS : 0; call < calls; call++) {
		struct collet_record record;
		if (!collet_recorder_find(recorder, call, &record))
			continue;
		char what[160], line[320];
		collet_call_describe(&record.call, what, sizeof(what));
		char lasted[40] = "took no time worth measuring";
		if (record.ended_ns != record.started_ns)
			snprintf(lasted, sizeof(lasted), "%s %.1f us", record.ended_ns ? "took" : "so far",
				(double)((record.ended_ns ? record.ended_ns : now) - record.started_ns) * 1e-3);
		const int bytes =
			snprintf(line, sizeof(line), "rank %u %s%s: started %.6f s ago, %s, %llu pieces, %s\n",
				comm->state.rank, what, kind, (double)(now - record.started_ns) * 1e-9, lasted,
				(unsigned long long)record.finished_items,
				record.status == COLLET_PENDING ? "under way" : collet_status_name(record.status));
		const collet_status status =
			write_line(fd, line, (size_t)(bytes < (int)sizeof(line) ? bytes : (int)sizeof(line) - 1));
		if (status != COLLET_OK)
			return status;
	}
	return COLLET_OK;
}

collet_status collet_comm_dump(collet_comm *comm, int fd)
{
	if (!comm)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_comm_dump: the communicator is NULL");
	const struct collet_recorder *out_of_band = comm->gpu ? collet_offload->recorder(comm) : NULL;
	const collet_status status = dump_recorder(comm, &comm->state.recorder, "", fd);
	return status == COLLET_OK && out_of_band
		       ? dump_recorder(comm, out_of_band, ", among kernels of the rank's own", fd)
		       : status;
}
