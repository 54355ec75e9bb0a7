/* Tests errors as exceptions, what was moved from, and requests that are pending when an exception passes them. */
#include "bodies.h"

#include <poll.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

using std::int32_t;
using std::uint64_t;
using ints = std::vector<int32_t>;

/* More than any ring or socket buffers. */
static const std::size_t LARGE = 300000;

/* ---- Errors ---- */

static void mistakes_are_thrown(struct rank *rank, collet::communicator &comm)
{
	ints two(2), three(3);
	std::vector<float> floats(2);
	const auto refused = [&](const char *words, auto call) { must_throw(rank, COLLET_ERR_ARGUMENT, words, call); };
	refused("allreduce: send has 2 elements of i32, recv has 3 elements of i32; they must have equally many",
		[&] { comm.allreduce(two, three, COLLET_SUM); });
	refused("allreduce: send has 2 elements of i32, recv has 2 elements of f32; give both one type",
		[&] { comm.allreduce(two, floats, COLLET_SUM); });
	refused("a block for each rank", [&] { comm.allgather(two, three); });
	refused("a block for each rank", [&] { comm.reduce_scatter(three, two, COLLET_SUM); });
	refused("is no block for each of 3 ranks", [&] { comm.allgather(two); });
	refused("is no block for each of 3 ranks", [&] { comm.alltoall(two); });
	refused("recv has 0 elements of no type", [&] { comm.reduce(two, {}, COLLET_SUM, comm.rank()); });
	const uint64_t counts[] = { 1, 1, 1 }, displacements[] = { 0, 1, 3 };
	refused("recv has 3 elements of i32; block 2 has 1 from 3 on",
		[&] { comm.allgatherv({ two.data(), 1 }, three, counts, displacements); });
	refused("3 counts and 0 displacements for 3 ranks",
		[&] { comm.allgatherv({ two.data(), 1 }, three, counts, {}); });
	collet_request *request = nullptr;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = &request;
	refused("how.request is set", [&] { comm.barrier(&how); });
	refused("how.request is set", [&] { (void)comm.start().barrier(&how); });
	refused("host: there is no rank 3 of 3", [&] { (void)comm.host(3); });
	must_throw(rank, COLLET_ERR_MEMORY, "allocate", [&] { (void)comm.allocate<double>(SIZE_MAX / 2); });

	/* The library's own, in its own words. */
	must_throw(rank, COLLET_ERR_ARGUMENT, "root", [&] { comm.broadcast(two, 3); });
	must_throw(rank, COLLET_ERR_ARGUMENT, "root", [&] { (void)comm.start().broadcast(two, 3); });
	must_throw(rank, COLLET_ERR_UNSUPPORTED, "collet_comm_shrink", [&] { (void)comm.shrink(); });
	try {
		comm.send(two, 3);
		rank_check(rank, false, "sent to a rank that does not exist");
	} catch (const std::runtime_error &thrown) {
		rank_check(rank, !std::strcmp(thrown.what(), collet_last_error()), "%s", thrown.what());
	}
	/* Nothing has changed. */
	rank_check(rank, comm.status() == COLLET_OK, "a mistake has ended the communicator");
	comm.barrier();
}

static void failures_are_thrown(struct rank *rank, collet::communicator &comm)
{
	ints four(4), two(2);
	if (comm.rank() == 0)
		comm.send(four, 1);
	if (comm.rank() == 1)
		must_throw(rank, COLLET_ERR_TRUNCATED, "", [&] { comm.recv(two, 0); });
	rank_barrier(rank);
	if (comm.rank() == 2)
		comm.abort();
	must_throw(rank, COLLET_ERR_ABORTED, "", [&] { comm.barrier(); });
	rank_check(rank, comm.status() == COLLET_ERR_ABORTED, "status() is %s", collet_status_name(comm.status()));
}

/* ---- Moves ---- */

static void must_hold_nothing(struct rank *rank, collet::communicator &comm)
{
	ints two(2);
	const auto refused = [&](auto call) { must_throw(rank, COLLET_ERR_ARGUMENT, "", call); };
	rank_check(rank, !comm && !comm.get() && comm.rank() == 0 && comm.size() == 0, "it holds a communicator");
	refused([&] { comm.allreduce(two, COLLET_SUM); });
	refused([&] { comm.allgather(two); });
	refused([&] { comm.alltoallv(two, {}, {}, two, {}, {}); });
	refused([&] { comm.barrier(); });
	refused([&] { (void)comm.start().barrier(); });
	refused([&] { (void)comm.split(0); });
	refused([&] { (void)comm.create_group({ 0 }); });
	refused([&] { (void)comm.allocate<int>(1); });
	refused([&] { (void)comm.register_memory(two); });
	refused([&] { (void)comm.stats(); });
	refused([&] { (void)comm.host(0); });
	refused([&] { comm.destroy(); });
	comm.abort();
}

static void what_was_moved_from_holds_nothing(struct rank *rank, collet::communicator &comm)
{
	collet::communicator part = comm.split(0, comm.size() - comm.rank()), moved = std::move(part);
	must_hold_nothing(rank, part);
	rank_check(rank, moved.size() == 3 && moved.rank() == 2 - comm.rank(), "split by keys");
	collet::communicator empty;
	must_hold_nothing(rank, empty);
	collet::communicator none = comm.split(comm.rank() == 0 ? COLLET_NO_COLOR : 1);
	rank_check(rank, !none == (comm.rank() == 0), "COLLET_NO_COLOR");
	if (comm.rank() != 0) {
		const collet::communicator group = comm.create_group({ 2, 1 });
		rank_check(rank, group.size() == 2 && group.rank() == 2 - comm.rank(), "a group");
	}

	/* A communicator may move while it has requests. */
	int32_t one = 1;
	collet::request request = moved.start().allreduce(collet::one(one), COLLET_SUM);
	collet::communicator again = std::move(moved);
	collet::request other = std::move(request);
	rank_check(rank, !request && request.test() && other, "a request that was moved from");
	request.wait();
	other.wait();
	rank_check(rank, !other && one == 3, "the sum is %d", one);
	again.destroy();
	must_hold_nothing(rank, again);

	/* Assignment ends what was held: the sum is there. */
	ints large(LARGE, 1);
	request = comm.start().allreduce(large, COLLET_SUM);
	request = comm.start().barrier();
	rank_check(rank, large[LARGE - 1] == 3, "the sum is %d", large[LARGE - 1]);
	request.wait();
	part = comm.split(0);
	part = collet::communicator();
	rank_check(rank, !part, "assigned");
}

static void memory_frees_itself(struct rank *rank, collet::communicator &comm)
{
	collet::memory<float> floats = comm.allocate<float>(1000), none;
	bool is_zero = floats.size() == 1000;
	for (float &value : floats) {
		is_zero &= value == 0;
		value = 1;
	}
	comm.allreduce(floats, COLLET_SUM);
	collet::memory<float> moved = std::move(floats);
	rank_check(rank, is_zero && moved[999] == 3 && !floats.data() && floats.size() == 0, "memory");
	floats = std::move(moved);
	floats = std::move(none);
	rank_check(rank, floats.begin() == floats.end(), "assigned");

	ints own(100000, 1);
	collet::registration kept = comm.register_memory(own), other = std::move(kept);
	rank_check(rank, !kept.data() && other.data() == own.data(), "registration");
	comm.allreduce(own, COLLET_SUM);
	kept = std::move(other);
	other = collet::registration();
	kept = collet::registration();
	must_throw(rank, COLLET_ERR_ARGUMENT, "",
		[&] { collet::check(collet_mem_deregister(comm.get(), own.data())); });

	bool has_transport = false;
	for (const collet_stat &row : comm.stats())
		has_transport |= row.kind == COLLET_STAT_TRANSPORT && row.messages_sent > 0;
	rank_check(rank, has_transport && !comm.host(0).empty() && comm.local_size() == 3, "statistics and hosts");
	rank_check(rank, comm.local_rank() == comm.rank(), "local rank");
}

/* ---- Requests ---- */

struct left_early {};

static void destructors_wait(struct rank *rank, collet::communicator &comm)
{
	ints large(LARGE, 1);
	try {
		const collet::request request = comm.start().allreduce(large, COLLET_SUM);
		throw left_early();
	} catch (const left_early &) {
		/* So its buffer may be freed now. */
		rank_check(rank, large[0] == 3 && large[LARGE - 1] == 3, "the request has not ended");
	}
	{
		const collet::request dropped = comm.start().allreduce(large, COLLET_SUM);
	}
	rank_check(rank, large[0] == 9 && large[LARGE - 1] == 9, "the dropped request has not ended");
	comm.barrier();
}

/* Ends a request that no other rank would end: an abort before its destructor. */
static void destructors_end_by_abort(struct rank *rank, collet::communicator &comm)
{
	struct aborts_at_end {
		const collet::communicator &of;
		~aborts_at_end()
		{
			of.abort();
		}
	};
	int32_t never = 7;
	collet::communicator part = comm.split(0);
	try {
		const collet::request request = part.start().recv(collet::one(never), (comm.rank() + 1) % 3);
		const aborts_at_end aborts{ part };
		rank_barrier(rank); /* an abort comes to all: all have started */
		throw left_early();
	} catch (const left_early &) {
		rank_check(rank, part.status() == COLLET_ERR_ABORTED, "it ended by %s",
			collet_status_name(part.status()));
	}
	rank_check(rank, never == 7, "something was received");
	comm.barrier();
}

/* A deadline ends it as well: a receive that nobody meets alone, a collective with the communicator. */
static void destructors_end_by_deadline(struct rank *rank, collet::communicator &comm)
{
	int32_t never = 7;
	collet::communicator part = comm.split(0);
	collet_how how = COLLET_HOW_DEFAULT;
	how.timeout_ns = 1000000;
	rank_barrier(rank); /* all have split */
	if (comm.rank() == 0) {
		(void)part.start().recv(collet::one(never), 1, 0, nullptr, &how);
		collet_status status = part.status();
		rank_check(rank, status == COLLET_OK, "it ended by %s", collet_status_name(status));
		(void)part.start().barrier(&how);
		status = part.status();
		rank_check(rank, status == COLLET_ERR_TIMEOUT, "it ended by %s", collet_status_name(status));
	}
	rank_barrier(rank);
	rank_check(rank, never == 7, "something was received");
}

static void waits_end_all(struct rank *rank, collet::communicator &comm)
{
	const uint32_t right = (comm.rank() + 1) % 3, left = (comm.rank() + 2) % 3;
	const ints sent(4, 5);
	ints two(2), four(4);
	int32_t sum = 1;
	collet::request requests[] = {
		comm.start().send(sent, right, 1),
		comm.start().send(sent, right, 2),
		comm.start().recv(two, left, 1),
		comm.start().recv(four, left, 2),
		comm.start().allreduce(collet::one(sum), COLLET_SUM),
		collet::request(),
	};
	must_throw(rank, COLLET_ERR_TRUNCATED, "", [&] { collet::wait_all(requests); });
	for (collet::request &request : requests)
		rank_check(rank, !request && request.test(), "a request is left");
	rank_check(rank, four == sent && sum == 3, "the other requests");

	std::vector<collet::request> some(3);
	some[1] = comm.start().barrier();
	rank_check(rank, collet::wait_any(some) == 1 && !some[1], "the only request");
	rank_check(rank, collet::wait_any(some) == 3, "no request");
	some[0] = comm.start().barrier();
	some[2] = comm.start().allreduce(collet::one(sum), COLLET_SUM);
	const std::size_t first = collet::wait_any(some);
	rank_check(rank, first == 0 || first == 2, "request %zu", first);
	rank_check(rank, !some[first] && some[2 - first], "one request has ended, the other one has not");
	while (!some[2 - first].test()) {
	}
	rank_check(rank, sum == 9, "the sum is %d", sum);

	/* To C and back. */
	collet::request request = comm.start().barrier();
	collet_request *handle = request.release();
	rank_check(rank, !request && handle, "released");
	collet::request(handle).wait();
}

/* ---- Creation ---- */

static void create(struct rank *rank)
{
	try {
		collet_options options;
		char store[64];
		rank_fill_options(rank, 0, &options, store);
		collet::communicator comm = collet::communicator::create(options);
		int32_t sum = 1;
		comm.allreduce(collet::one(sum), COLLET_SUM);
		rank_check(rank, sum == 3, "the sum is %d", sum);
		options.rank = 3;
		must_throw(rank, COLLET_ERR_ARGUMENT, "rank", [&] { (void)collet::communicator::create(options); });
	} catch (const std::exception &thrown) {
		rank_check(rank, false, "thrown: %s", thrown.what());
	}
}

static void communicators_are_created(void **)
{
	struct ranks_options options = {};
	options.size = 3;
	options.bare = true;
	ranks_must_pass(&options, create);
}

/* Rank 0 is late: others wait for a time, and then by the descriptor. */
static void waits_are_for_a_time(struct rank *rank, collet::communicator &comm)
{
	using std::chrono::milliseconds;
	ints values(LARGE, 1);
	if (rank->rank == 0)
		rank_await(rank, 0, rank->size - 1);
	collet::request sum = comm.start().allreduce(values, COLLET_SUM);
	if (rank->rank != 0) {
		rank_check(rank, !sum.wait_for(milliseconds(-1)) && !sum.wait_for(milliseconds(2)) && sum,
			"a late rank's sum has ended");
		rank_check(rank, !comm.progress(milliseconds(1)), "something has ended");
		rank_post(rank, 0);
	}
	struct pollfd polled = { comm.descriptor(), POLLIN, 0 };
	while (!sum.test())
		if (!comm.progress(milliseconds(0)))
			rank_check(rank, poll(&polled, 1, 20000) == 1, "not readable");
	rank_check(rank, values.back() == static_cast<int32_t>(rank->size), "the sum is %d", values.back());
	rank_check(rank, sum.wait_for(milliseconds(0)), "an ended request goes on");
}

template <cxx_body *Body> void test(void **)
{
	must_pass<Body>();
}

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(communicators_are_created),
		cmocka_unit_test(test<mistakes_are_thrown>),
		cmocka_unit_test(test<failures_are_thrown>),
		cmocka_unit_test(test<what_was_moved_from_holds_nothing>),
		cmocka_unit_test(test<memory_frees_itself>),
		cmocka_unit_test(test<destructors_wait>),
		cmocka_unit_test(test<destructors_end_by_abort>),
		cmocka_unit_test(test<destructors_end_by_deadline>),
		cmocka_unit_test(test<waits_end_all>),
		cmocka_unit_test(test<waits_are_for_a_time>),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
