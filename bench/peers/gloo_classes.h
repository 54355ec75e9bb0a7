// Gloo's older interface: an algorithm is an object, bound to its buffers. Its pairs can be read by the calling thread
// itself, blocking or in a busy loop, where the current interface has a thread of its own between.
#ifndef BENCH_PEERS_GLOO_CLASSES_H
#define BENCH_PEERS_GLOO_CLASSES_H

#include <memory>

#include <gloo/algorithm.h>
#include <gloo/context.h>

extern "C" {
#include "loop.h"
}

class ClassAllreduce {
public:
	// sync: this thread reads the sockets, all there are, from now on; poll: in a busy loop.
	ClassAllreduce(std::shared_ptr<gloo::Context> context, bool halving, bool sync, bool poll);

	static bool supports(collet_dtype dtype, collet_op op);
	// Binds to the call's buffers. Gloo reduces in place: out of place each call copies its input first.
	void prepare(const bench_call &call);
	void run();
	void barrier();

private:
	template <typename T>
	std::unique_ptr<gloo::Algorithm> make();

	std::shared_ptr<gloo::Context> context_;
	bool halving_;
	std::unique_ptr<gloo::Algorithm> barrier_, allreduce_;
	bench_call call_ = {};
};

#endif
