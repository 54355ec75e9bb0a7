/* Tests every call of collet.hpp, blocking and as a request, on buffers of all kinds. */
#include "bodies.h"

#include <array>
#include <type_traits>
#include <vector>

using std::int32_t;
using std::uint64_t;
using ints = std::vector<int32_t>;

/* ---- What compiles ---- */

template <class T> constexpr collet_dtype deduced = collet::dtype_of<T>::value;
static_assert(deduced<float> == COLLET_F32 && deduced<double> == COLLET_F64, "floats");
static_assert(deduced<std::int8_t> == COLLET_I8 && deduced<std::uint8_t> == COLLET_U8, "8 bits");
static_assert(deduced<std::int16_t> == COLLET_I16 && deduced<std::uint16_t> == COLLET_U16, "16 bits");
static_assert(deduced<std::int32_t> == COLLET_I32 && deduced<std::uint32_t> == COLLET_U32, "32 bits");
static_assert(deduced<std::int64_t> == COLLET_I64 && deduced<std::uint64_t> == COLLET_U64, "64 bits");
static_assert(deduced<long long> == COLLET_I64 && deduced<unsigned long long> == COLLET_U64, "by size, not by name");
static_assert(deduced<std::byte> == COLLET_U8 && deduced<bool> == COLLET_BOOL, "bytes");

/* A type of the program's own: bits of a 16-bit float. */
struct half {
	std::uint16_t bits;
};
template <> struct collet::dtype_of<half> {
	static constexpr collet_dtype value = COLLET_F16;
};

template <class From> constexpr bool is_written = std::is_constructible_v<collet::buffer, From>;
template <class From> constexpr bool is_read = std::is_constructible_v<collet::const_buffer, From>;
static_assert(is_written<ints &> && is_read<const ints &> && !is_written<const ints &>, "vectors");
static_assert(is_written<int (&)[3]> && is_read<const int (&)[3]> && !is_written<const int (&)[3]>, "arrays");
static_assert(is_written<std::vector<half> &> && is_read<std::string>, "types of one's own, and others' containers");
static_assert(!is_read<std::vector<bool>> && !is_read<int> && !is_read<int *>, "what has no size");
static_assert(std::is_convertible_v<collet::buffer, collet::const_buffer>, "what is written can be read");
static_assert(!std::is_convertible_v<collet::const_buffer, collet::buffer>, "what is read may not be written");

template <class T> constexpr bool is_move_only = std::is_nothrow_move_constructible_v<T> &&
	std::is_nothrow_move_assignable_v<T> && !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(is_move_only<collet::communicator> && is_move_only<collet::request>, "handles");
static_assert(is_move_only<collet::memory<float>> && is_move_only<collet::registration>, "memory");

/* ---- Calls ---- */

/* Makes a call block. */
struct blocking {
	const collet::communicator &comm;
	template <class Call> void operator()(Call call) const
	{
		call(static_cast<const collet::calls<void> &>(comm));
	}
};

/* Starts a request, and waits for it. */
struct started {
	const collet::communicator &comm;
	template <class Call> void operator()(Call call) const
	{
		const collet::calls<collet::request> starts = comm.start();
		collet::request request = call(starts);
		request.wait();
	}
};

/* What a row knows of its rank. */
struct place {
	struct rank *rank;
	uint32_t self, size;
	int32_t own, sum; /* rank + 1, and the sum of all ranks' */

	void expect(const ints &got, const ints &wanted) const
	{
		std::string text;
		for (int32_t value : got)
			text += std::to_string(value) + " ";
		rank_check(rank, got == wanted, "got %s", text.c_str());
	}
};

template <class Run> void allreduce(const place &at, Run run)
{
	const ints send{ at.own, 10 * at.own };
	ints recv(2);
	run([&](const auto &calls) { return calls.allreduce(send, recv, COLLET_SUM); });
	at.expect(recv, { at.sum, 10 * at.sum });
	run([&](const auto &calls) { return calls.allreduce(recv, COLLET_AVERAGE); });
	at.expect(recv, { at.sum, 10 * at.sum });
	double one = at.own;
	run([&](const auto &calls) { return calls.allreduce(collet::one(one), COLLET_MAX); });
	rank_check(at.rank, one == at.size, "got %g", one);
	std::array<float, 3> floats{ 1, 2, 3 };
	run([&](const auto &calls) { return calls.allreduce({ floats.data() + 1, 2 }, COLLET_PRODUCT); });
	rank_check(at.rank, floats[0] == 1 && floats[1] == 8 && floats[2] == 27, "(pointer, count)");
	half halves[2] = { { 0x3c00 }, { 0x4000 } };
	run([&](const auto &calls) { return calls.allreduce(halves, COLLET_SUM); });
	rank_check(at.rank, halves[0].bits == 0x4200 && halves[1].bits == 0x4600, "a dtype of one's own");
	std::uint16_t raw = 0x3c00;
	run([&](const auto &calls) { return calls.allreduce({ &raw, 1, COLLET_F16 }, COLLET_SUM); });
	rank_check(at.rank, raw == 0x4200, "(pointer, count, dtype)");
}

template <class Run> void reduce(const place &at, Run run)
{
	const ints send{ at.own };
	ints recv(at.self == 1 ? 1 : 0);
	run([&](const auto &calls) { return calls.reduce(send, recv, COLLET_SUM, 1); });
	at.expect(recv, at.self == 1 ? ints{ at.sum } : ints{});
	ints both{ at.own };
	run([&](const auto &calls) { return calls.reduce(both, COLLET_SUM, 2); });
	if (at.self == 2)
		at.expect(both, { at.sum });
}

template <class Run> void broadcast(const place &at, Run run)
{
	ints both{ at.own, at.own };
	run([&](const auto &calls) { return calls.broadcast(both, 2); });
	at.expect(both, { 3, 3 });
	const ints send{ 4, 5 };
	const collet::const_buffer given = at.self == 0 ? collet::const_buffer(send) : collet::const_buffer();
	run([&](const auto &calls) { return calls.broadcast(given, both, 0); });
	at.expect(both, { 4, 5 });
}

template <class Run> void barrier(const place &, Run run)
{
	run([&](const auto &calls) { return calls.barrier(); });
}

template <class Run> void allgather(const place &at, Run run)
{
	const ints send{ at.own, -at.own };
	ints recv(6), both(3);
	run([&](const auto &calls) { return calls.allgather(send, recv); });
	at.expect(recv, { 1, -1, 2, -2, 3, -3 });
	both[at.self] = at.own;
	run([&](const auto &calls) { return calls.allgather(both); });
	at.expect(both, { 1, 2, 3 });
}

template <class Run> void allgatherv(const place &at, Run run)
{
	const ints send(at.self + 1, at.own);
	ints recv(7, -1);
	const std::vector<uint64_t> counts{ 1, 2, 3 };
	const uint64_t displacements[] = { 6, 0, 3 };
	run([&](const auto &calls) { return calls.allgatherv(send, recv, counts, displacements); });
	at.expect(recv, { 2, 2, -1, 3, 3, 3, 1 });
}

template <class Run> void reduce_scatter(const place &at, Run run)
{
	ints send{ at.own, 10 * at.own, 100 * at.own }, recv(1);
	run([&](const auto &calls) { return calls.reduce_scatter(send, recv, COLLET_SUM); });
	const int32_t wanted[] = { at.sum, 10 * at.sum, 100 * at.sum };
	at.expect(recv, { wanted[at.self] });
	run([&](const auto &calls) { return calls.reduce_scatter(send, COLLET_SUM); });
	at.expect({ send[at.self] }, { wanted[at.self] });
}

template <class Run> void reduce_scatterv(const place &at, Run run)
{
	const ints send{ -1, 10 * at.own, 20 * at.own, at.own, 30 * at.own, 40 * at.own, 50 * at.own };
	ints recv(at.self + 1);
	const std::vector<uint64_t> counts{ 1, 2, 3 };
	const uint64_t displacements[] = { 3, 1, 4 };
	run([&](const auto &calls) { return calls.reduce_scatterv(send, counts, displacements, recv, COLLET_SUM); });
	const ints wanted[] = { { at.sum }, { 10 * at.sum, 20 * at.sum },
		{ 30 * at.sum, 40 * at.sum, 50 * at.sum } };
	at.expect(recv, wanted[at.self]);
}

template <class Run> void gather(const place &at, Run run)
{
	const ints send{ at.own };
	ints recv(at.self == 1 ? 3 : 0);
	run([&](const auto &calls) { return calls.gather(send, recv, 1); });
	at.expect(recv, at.self == 1 ? ints{ 1, 2, 3 } : ints{});
}

template <class Run> void gatherv(const place &at, Run run)
{
	const ints send(at.self + 1, at.own);
	ints recv(6);
	const std::array<uint64_t, 3> counts{ 1, 2, 3 }, displacements{ 5, 3, 0 };
	if (at.self == 0)
		run([&](const auto &calls) { return calls.gatherv(send, recv, counts, displacements, 0); });
	else
		run([&](const auto &calls) { return calls.gatherv(send, {}, {}, {}, 0); });
	at.expect(recv, at.self == 0 ? ints{ 3, 3, 3, 2, 2, 1 } : ints(6));
}

template <class Run> void scatter(const place &at, Run run)
{
	const ints send{ 7, 8, 9 };
	ints recv(1);
	const collet::const_buffer given = at.self == 2 ? collet::const_buffer(send) : collet::const_buffer();
	run([&](const auto &calls) { return calls.scatter(given, recv, 2); });
	at.expect(recv, { 7 + (int32_t)at.self });
}

template <class Run> void scatterv(const place &at, Run run)
{
	const ints send{ 1, 2, 2, 3, 3, 3 };
	ints recv(at.self + 1);
	const std::array<uint64_t, 3> counts{ 1, 2, 3 }, displacements{ 0, 1, 3 };
	if (at.self == 0)
		run([&](const auto &calls) { return calls.scatterv(send, counts, displacements, recv, 0); });
	else
		run([&](const auto &calls) { return calls.scatterv({}, {}, {}, recv, 0); });
	at.expect(recv, ints(at.self + 1, at.own));
}

template <class Run> void alltoall(const place &at, Run run)
{
	ints send{ at.own, 10 * at.own, 100 * at.own }, recv(3);
	const int32_t tens[] = { 1, 10, 100 }, ten = tens[at.self];
	run([&](const auto &calls) { return calls.alltoall(send, recv); });
	at.expect(recv, { ten, 2 * ten, 3 * ten });
	run([&](const auto &calls) { return calls.alltoall(send); });
	at.expect(send, { ten, 2 * ten, 3 * ten });
}

template <class Run> void alltoallv(const place &at, Run run)
{
	/* Rank r sends r + 1 elements to each. */
	const ints send(3 * (at.self + 1), at.own);
	ints recv(6);
	const uint64_t each = at.self + 1;
	const std::array<uint64_t, 3> sent{ each, each, each }, sent_from{ 0, each, 2 * each };
	const std::array<uint64_t, 3> counts{ 1, 2, 3 }, displacements{ 0, 1, 3 };
	run([&](const auto &calls) { return calls.alltoallv(send, sent, sent_from, recv, counts, displacements); });
	at.expect(recv, { 1, 2, 2, 3, 3, 3 });
}

template <class Run> void send_and_recv(const place &at, Run run)
{
	const ints send{ at.own };
	ints recv(2);
	collet_received received = {};
	if (at.self == 0)
		run([&](const auto &calls) { return calls.send(send, 1, 5); });
	if (at.self != 1)
		return;
	run([&](const auto &calls) { return calls.recv(recv, COLLET_ANY_SOURCE, 5, &received); });
	at.expect(recv, { 1, 0 });
	rank_check(at.rank, received.source == 0 && received.tag == 5 && received.count == 1, "what was received");
}

template <class Run> void sendrecv(const place &at, Run run)
{
	const ints send{ at.own };
	ints recv(1);
	const uint32_t right = (at.self + 1) % at.size, left = (at.self + at.size - 1) % at.size;
	run([&](const auto &calls) { return calls.sendrecv(send, right, 7, recv, left, 7); });
	at.expect(recv, { (int32_t)left + 1 });
}

template <class Run> void options(const place &at, Run run)
{
	collet_user_op first = {};
	first.combine = [](void *result, const void *left, const void *, std::size_t count, collet_dtype, void *) {
		for (std::size_t i = 0; i < count; i++)
			static_cast<int32_t *>(result)[i] = static_cast<const int32_t *>(left)[i];
	};
	collet_how how = COLLET_HOW_DEFAULT;
	how.user_op = &first;
	how.timeout_ns = 60000000000;
	ints both{ at.own };
	run([&](const auto &calls) { return calls.allreduce(both, COLLET_USER, &how); });
	at.expect(both, { 1 });
}

template <class Run> void all_calls(const place &at, Run run)
{
	const struct {
		const char *name;
		void (*row)(const place &at, Run run);
	} rows[] = {
		{ "allreduce", allreduce },
		{ "reduce", reduce },
		{ "broadcast", broadcast },
		{ "barrier", barrier },
		{ "allgather", allgather },
		{ "allgatherv", allgatherv },
		{ "reduce_scatter", reduce_scatter },
		{ "reduce_scatterv", reduce_scatterv },
		{ "gather", gather },
		{ "gatherv", gatherv },
		{ "scatter", scatter },
		{ "scatterv", scatterv },
		{ "alltoall", alltoall },
		{ "alltoallv", alltoallv },
		{ "send and recv", send_and_recv },
		{ "sendrecv", sendrecv },
		{ "options", options },
	};
	for (const auto &row : rows) {
		rank_doing(at.rank, "%s", row.name);
		row.row(at, run);
	}
}

static void calls_give_what_c_gives(struct rank *rank, collet::communicator &comm)
{
	const place at = { rank, comm.rank(), comm.size(), (int32_t)comm.rank() + 1, 6 };
	all_calls(at, blocking{ comm });
	all_calls(at, started{ comm });
}

static void test_calls(void **)
{
	must_pass<calls_give_what_c_gives>();
}

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
