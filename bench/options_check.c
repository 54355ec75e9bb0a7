#include "options_check.h"

#include <string.h>

#include <collet/tools.h>

#include "names.h"
#include "option_table.h"

static bool any_combines(uint32_t collectives)
{
	for (int c = 0; c < BENCH_COLLECTIVES; c++)
		if ((collectives >> c & 1) != 0 && bench_collective_combines((enum bench_collective)c))
			return true;
	return false;
}

/* Refuses a transport that tune cannot measure. */
static bool check_tuned_transport(const struct bench_options *o, char problem[256])
{
	struct bench_names names = { 0 };
	collet_transport_info rows[16];
	char hint[BENCH_NAMES_TEXT];
	size_t count;
	if (o->command != BENCH_COMMAND_TUNE || o->transport == NULL ||
		collet_transport_list(rows, 16, &count) != COLLET_OK)
		return true;
	for (size_t i = 0; i < count && i < 16; i++) {
		if (strcmp(rows[i].name, o->transport) == 0 && strcmp(rows[i].name, "self") != 0)
			return true;
		if (strcmp(rows[i].name, "self") != 0)
			bench_names_add(&names, rows[i].name);
	}
	return option_refuse(problem, "--transport %s: tune takes one transport; %s", o->transport,
		bench_names_hint(&names, o->transport, hint));
}

/* Refuses an algorithm that none of the named collectives has. */
static bool check_algorithm(const struct bench_options *o, char problem[256])
{
	struct bench_names names = { 0 };
	char hint[BENCH_NAMES_TEXT];
	if (o->algorithm == NULL || o->collectives == 0)
		return true;
	bench_names_add_algorithms(&names, o->collectives);
	for (size_t i = 0; i < names.count; i++)
		if (strcmp(names.name[i], o->algorithm) == 0)
			return true;
	const bool one = (o->collectives & (o->collectives - 1)) == 0;
	const char *who = one ? bench_collective_name((enum bench_collective)o->work.collective)
			      : "none of these collectives";
	if (names.count == 0)
		return option_refuse(problem, "--algorithm %s: %s has no algorithms to choose from", o->algorithm, who);
	return option_refuse(problem, "--algorithm %s: %s has %s algorithm; %s", o->algorithm, who,
		one ? "no such" : "this", bench_names_hint(&names, o->algorithm, hint));
}

static bool check_combination(const struct bench_options *o, char problem[256])
{
	if (o->command == BENCH_COMMAND_TUNE && o->sizes.count > COLLET_TUNING_SIZES)
		return option_refuse(problem, "--sizes: tune takes up to %d", COLLET_TUNING_SIZES);
	if (o->command == BENCH_COMMAND_TUNE && o->ranks == 1)
		return option_refuse(problem, "-n 1: one rank has nothing to tune");
	const bool asks_for_choice = o->command == BENCH_COMMAND_TUNE || o->command == BENCH_COMMAND_EXPLAIN;
	if (asks_for_choice && o->collectives == UINT32_C(1) << BENCH_SENDRECV)
		return option_refuse(
			problem, "sendrecv has no algorithms to choose from; its limit is one of tune limits");
	if (o->ranks > 0 && o->work.root >= o->ranks)
		return option_refuse(problem, "--root %u: the ranks are 0 to %u", o->work.root, o->ranks - 1);
	if (any_combines(o->collectives) && !bench_op_fits((collet_op)o->work.op, (collet_dtype)o->work.dtype))
		return option_refuse(problem, "--op %s is not measured for --dtype %s",
			collet_op_name((collet_op)o->work.op), collet_dtype_name((collet_dtype)o->work.dtype));
	if (o->command == BENCH_COMMAND_FAULTS && o->ranks == 1)
		return option_refuse(problem, "-n 1: faults kills one rank, and asks the others");
	if (o->mode.device && o->command == BENCH_COMMAND_LIMITS && o->transport != NULL)
		return option_refuse(problem, "--transport: with --device cuda, limits are the GPU's");
	if (o->mode.calling != BENCH_BLOCKING && (!o->mode.device || o->command != BENCH_COMMAND_MEASURE))
		return option_refuse(problem, "--stream and --graph are for a collective with --device cuda");
	if (o->mode.calling != BENCH_BLOCKING && o->mode.sync)
		return option_refuse(problem, "--sync: calls on a stream are not waited for one by one");
	if (o->mode.device && o->mode.buffers != BENCH_MALLOC)
		return option_refuse(problem, "--buffers %s: with --device cuda they are the GPU's",
			bench_buffer_kind_name(o->mode.buffers));
	if (o->mode.device && o->mode.rewrite)
		return option_refuse(problem, "--rewrite: the host writes no GPU's buffers");
	if (o->work.in_place && (o->collectives >> BENCH_SENDRECV & 1) != 0)
		return option_refuse(problem, "sendrecv has no in-place form");
	if (o->plot != NULL && (o->collectives & (o->collectives - 1)) != 0)
		return option_refuse(problem, "--plot draws one collective");
	return true;
}

bool bench_options_check(const struct bench_options *options, char problem[256])
{
	return check_combination(options, problem) && check_algorithm(options, problem) &&
		check_tuned_transport(options, problem);
}
