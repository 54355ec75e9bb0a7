// The driver of Gloo, over TCP on the loopback device. What it does for collet-bench is in common/driver.h; here is
// only how Gloo spells the calls, by its current interface: gloo_classes.cc has the older one. Started without a
// launcher: RANK and WORLD_SIZE say who it is, COLLET_BENCH_FOLDER is a folder where the ranks can meet.
// COLLET_BENCH_GLOO says which all-reduce: ring or bcube; or, of the older kind, halving or chunked, and behind a comma
// how it waits: sync (blocking sockets) or poll (sockets read in a busy loop).
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include "gloo_classes.h"

extern "C" {
#include "driver.h"
#include "pin.h"
}

namespace {

using Function = void (*)(void *, const void *, const void *, size_t);

// Gloo's options own what they registered of a buffer. They are kept while the arguments stay the same, so that the
// timed loop measures the collective and not their construction: the kinder way for Gloo.
struct Peer {
	std::shared_ptr<gloo::rendezvous::Context> context;
	std::string error;
	gloo::AllreduceOptions::Algorithm algorithm = gloo::AllreduceOptions::Algorithm::UNSPECIFIED;
	std::unique_ptr<ClassAllreduce> classes;   // instead of all below
	bench_call call = {};
	int collective = -1;
	std::unique_ptr<gloo::AllreduceOptions> allreduce;
	std::unique_ptr<gloo::ReduceOptions> reduce;
	std::unique_ptr<gloo::BroadcastOptions> broadcast;
	std::unique_ptr<gloo::AllgatherOptions> allgather;
	std::unique_ptr<gloo::AlltoallOptions> alltoall;
	std::unique_ptr<gloo::GatherOptions> gather;
	std::unique_ptr<gloo::BarrierOptions> barrier;
	std::vector<char> scratch;
};

template <typename T>
Function reduction(collet_op op)
{
	switch (op) {
	case COLLET_SUM: return &gloo::sum<T>;
	case COLLET_PRODUCT: return &gloo::product<T>;
	case COLLET_MIN: return &gloo::min<T>;
	case COLLET_MAX: return &gloo::max<T>;
	default: return nullptr;
	}
}

Function reduction(collet_dtype dtype, collet_op op)
{
	switch (dtype) {
	case COLLET_I8: return reduction<int8_t>(op);
	case COLLET_U8: return reduction<uint8_t>(op);
	case COLLET_I16: return reduction<int16_t>(op);
	case COLLET_U16: return reduction<uint16_t>(op);
	case COLLET_I32: return reduction<int32_t>(op);
	case COLLET_U32: return reduction<uint32_t>(op);
	case COLLET_I64: return reduction<int64_t>(op);
	case COLLET_U64: return reduction<uint64_t>(op);
	case COLLET_F32: return reduction<float>(op);
	case COLLET_F64: return reduction<double>(op);
	default: return nullptr;
	}
}

// Calls f with a null pointer of the C++ type that has the dtype's size: Gloo wants to know only that.
template <typename F>
void with_type(collet_dtype dtype, F f)
{
	switch (collet_dtype_bytes(dtype)) {
	case 1: f(static_cast<uint8_t *>(nullptr)); break;
	case 2: f(static_cast<uint16_t *>(nullptr)); break;
	case 4: f(static_cast<float *>(nullptr)); break;
	default: f(static_cast<double *>(nullptr)); break;
	}
}

template <typename T>
T *input(const bench_call *call)
{
	return static_cast<T *>(const_cast<void *>(call->send));
}

template <typename T>
T *output(const bench_call *call)
{
	return static_cast<T *>(call->recv);
}

bool same(const bench_call &a, const bench_call &b)
{
	return a.send == b.send && a.recv == b.recv && a.count == b.count && a.dtype == b.dtype && a.op == b.op
		&& a.root == b.root && a.in_place == b.in_place;
}

// Runs `build` when the arguments are new, then `go`; C++ exceptions end here.
template <typename Build, typename Go>
int run(void *context, int collective, const bench_call *call, Build build, Go go)
{
	Peer *peer = static_cast<Peer *>(context);
	try {
		if (peer->collective != collective || !same(peer->call, *call)) {
			build(peer);
			peer->collective = collective;
			peer->call = *call;
		}
		go(peer);
		return 0;
	} catch (const std::exception &e) {
		peer->error = e.what();
		return 1;
	}
}

int run_allreduce(void *context, const bench_call *call)
{
	return run(context, BENCH_ALLREDUCE, call, [call](Peer *peer) {
		peer->allreduce.reset(new gloo::AllreduceOptions(peer->context));
		with_type(call->dtype, [&](auto *type) {
			using T = std::remove_pointer_t<decltype(type)>;
			if (!call->in_place)
				peer->allreduce->setInput(input<T>(call), call->count);
			peer->allreduce->setOutput(output<T>(call), call->count);
		});
		peer->allreduce->setReduceFunction(reduction(call->dtype, call->op));
		peer->allreduce->setAlgorithm(peer->algorithm);
	}, [](Peer *peer) { gloo::allreduce(*peer->allreduce); });
}

int run_reduce(void *context, const bench_call *call)
{
	return run(context, BENCH_REDUCE, call, [call](Peer *peer) {
		peer->reduce.reset(new gloo::ReduceOptions(peer->context));
		// Every rank needs an output: Gloo uses it as scratch where it is not the result.
		const bool root = static_cast<uint32_t>(peer->context->rank) == call->root;
		with_type(call->dtype, [&](auto *type) {
			using T = std::remove_pointer_t<decltype(type)>;
			if (!call->in_place)
				peer->reduce->setInput(input<T>(call), call->count);
			peer->scratch.resize(root || call->in_place ? 0 : call->count * sizeof(T));
			T *out = peer->scratch.empty() ? output<T>(call) : reinterpret_cast<T *>(peer->scratch.data());
			peer->reduce->setOutput(out, call->count);
		});
		peer->reduce->setReduceFunction(reduction(call->dtype, call->op));
		peer->reduce->setRoot(static_cast<int>(call->root));
	}, [](Peer *peer) { gloo::reduce(*peer->reduce); });
}

int run_broadcast(void *context, const bench_call *call)
{
	return run(context, BENCH_BROADCAST, call, [call](Peer *peer) {
		const bool root = static_cast<uint32_t>(peer->context->rank) == call->root;
		peer->broadcast.reset(new gloo::BroadcastOptions(peer->context));
		with_type(call->dtype, [&](auto *type) {
			using T = std::remove_pointer_t<decltype(type)>;
			if (root && !call->in_place)
				peer->broadcast->setInput(input<T>(call), call->count);
			peer->broadcast->setOutput(output<T>(call), call->count);
		});
		peer->broadcast->setRoot(static_cast<int>(call->root));
	}, [](Peer *peer) { gloo::broadcast(*peer->broadcast); });
}

int run_barrier(void *context, const bench_call *)
{
	Peer *peer = static_cast<Peer *>(context);
	try {
		gloo::barrier(*peer->barrier);
		return 0;
	} catch (const std::exception &e) {
		peer->error = e.what();
		return 1;
	}
}

int run_allgather(void *context, const bench_call *call)
{
	return run(context, BENCH_ALLGATHER, call, [call](Peer *peer) {
		peer->allgather.reset(new gloo::AllgatherOptions(peer->context));
		with_type(call->dtype, [&](auto *type) {
			using T = std::remove_pointer_t<decltype(type)>;
			if (!call->in_place)
				peer->allgather->setInput(input<T>(call), call->count);
			peer->allgather->setOutput(
				output<T>(call), call->count * static_cast<size_t>(peer->context->size));
		});
	}, [](Peer *peer) { gloo::allgather(*peer->allgather); });
}

int run_alltoall(void *context, const bench_call *call)
{
	return run(context, BENCH_ALLTOALL, call, [call](Peer *peer) {
		const size_t all = call->count * static_cast<size_t>(peer->context->size);
		peer->alltoall.reset(new gloo::AlltoallOptions(peer->context));
		with_type(call->dtype, [&](auto *type) {
			using T = std::remove_pointer_t<decltype(type)>;
			peer->alltoall->setInput(input<T>(call), all);
			peer->alltoall->setOutput(output<T>(call), all);
		});
	}, [](Peer *peer) { gloo::alltoall(*peer->alltoall); });
}

int run_gather(void *context, const bench_call *call)
{
	return run(context, BENCH_GATHER, call, [call](Peer *peer) {
		peer->gather.reset(new gloo::GatherOptions(peer->context));
		with_type(call->dtype, [&](auto *type) {
			using T = std::remove_pointer_t<decltype(type)>;
			peer->gather->setInput(input<T>(call), call->count);
			if (static_cast<uint32_t>(peer->context->rank) == call->root)
				peer->gather->setOutput(
					output<T>(call), call->count * static_cast<size_t>(peer->context->size));
		});
		peer->gather->setRoot(static_cast<int>(call->root));
	}, [](Peer *peer) { gloo::gather(*peer->gather); });
}

const char *error_text(void *context)
{
	return static_cast<Peer *>(context)->error.c_str();
}

// In place is offered where Gloo has it.
bool supports(void *, const bench_work *work, uint64_t)
{
	if (bench_collective_combines(static_cast<bench_collective>(work->collective))
		&& reduction(static_cast<collet_dtype>(work->dtype), static_cast<collet_op>(work->op)) == nullptr)
		return false;
	switch (work->collective) {
	case BENCH_ALLTOALL: case BENCH_GATHER:
		return work->in_place == 0;
	default:
		return true;
	}
}

int run_class_allreduce(void *context, const bench_call *call)
{
	return run(context, BENCH_ALLREDUCE, call, [call](Peer *peer) {
		peer->classes->prepare(*call);
	}, [](Peer *peer) { peer->classes->run(); });
}

int run_class_barrier(void *context, const bench_call *)
{
	Peer *peer = static_cast<Peer *>(context);
	try {
		peer->classes->barrier();
		return 0;
	} catch (const std::exception &e) {
		peer->error = e.what();
		return 1;
	}
}

bool class_supports(void *, const bench_work *work, uint64_t count)
{
	return work->collective == BENCH_BARRIER
		|| (count > 0
			&& ClassAllreduce::supports(
				static_cast<collet_dtype>(work->dtype), static_cast<collet_op>(work->op)));
}

void add_collectives(bench_library *library)
{
	library->run[BENCH_ALLREDUCE] = run_allreduce;
	library->run[BENCH_REDUCE] = run_reduce;
	library->run[BENCH_BROADCAST] = run_broadcast;
	library->run[BENCH_BARRIER] = run_barrier;
	library->run[BENCH_ALLGATHER] = run_allgather;
	library->run[BENCH_ALLTOALL] = run_alltoall;
	library->run[BENCH_GATHER] = run_gather;
	library->supports = supports;
}

// "ring", "halving,sync": see the top of the file. False: it is none of them.
bool choose(Peer *peer, const char *wish, bench_library *library)
{
	const std::string text = wish != nullptr ? wish : "", name = text.substr(0, text.find(',')),
		waiting = name.size() < text.size() ? text.substr(name.size() + 1) : "";
	if (name == "halving" || name == "chunked") {
		if (waiting != "" && waiting != "sync" && waiting != "poll")
			return false;
		peer->classes.reset(
			new ClassAllreduce(peer->context, name == "halving", waiting != "", waiting == "poll"));
		library->run[BENCH_ALLREDUCE] = run_class_allreduce;
		library->run[BENCH_BARRIER] = run_class_barrier;
		library->supports = class_supports;
		return true;
	}
	if (name == "ring")
		peer->algorithm = gloo::AllreduceOptions::Algorithm::RING;
	else if (name == "bcube")
		peer->algorithm = gloo::AllreduceOptions::Algorithm::BCUBE;
	else if (name != "")
		return false;
	peer->barrier.reset(new gloo::BarrierOptions(peer->context));
	add_collectives(library);
	return waiting == "";
}

std::shared_ptr<gloo::rendezvous::Context> connect(uint32_t rank, uint32_t size, const char *folder)
{
	gloo::transport::tcp::attr address("127.0.0.1");
	auto device = gloo::transport::tcp::CreateDevice(address);
	gloo::rendezvous::FileStore store(folder);
	auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank), static_cast<int>(size));
	context->connectFullMesh(store, device);
	return context;
}

}  // namespace

int main()
{
	static const char *const ranks[] = { "RANK", nullptr }, *const sizes[] = { "WORLD_SIZE", nullptr };
	const uint32_t rank = bench_env_u32(ranks, 0), size = bench_env_u32(sizes, 1);
	const char *folder = std::getenv("COLLET_BENCH_FOLDER");
	Peer peer;
	bench_pin(rank, size, getenv(BENCH_PIN_SHARED_VARIABLE) != nullptr);
	try {
		peer.context = connect(rank, size, folder != nullptr ? folder : ".");
	} catch (const std::exception &e) {
		std::fprintf(stderr, "gloo: %s\n", e.what());
		return 1;
	}
	bench_driver driver = {};
	driver.library.context = &peer;
	driver.library.rank = rank;
	driver.library.size = size;
	driver.library.one_host = true;
	const char *wish = std::getenv("COLLET_BENCH_GLOO");
	if (!choose(&peer, wish, &driver.library)) {
		std::fprintf(stderr, "COLLET_BENCH_GLOO=%s: expected ring, bcube, halving or chunked[,sync|,poll]\n",
			wish);
		return 1;
	}
	driver.library.error = error_text;
	const std::string version = "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "."
		+ std::to_string(GLOO_VERSION_MINOR) + "." + std::to_string(GLOO_VERSION_PATCH);
	driver.version = version.c_str();
	_exit(bench_driver_serve(&driver));   // Gloo's destructors wait for peers that may be gone
}
