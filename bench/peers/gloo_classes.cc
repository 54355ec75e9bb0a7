#include "gloo_classes.h"

#include <cstring>
#include <stdexcept>
#include <vector>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>

namespace {

template <typename T>
const gloo::ReductionFunction<T> *reduction(collet_op op)
{
	switch (op) {
	case COLLET_SUM: return gloo::ReductionFunction<T>::sum;
	case COLLET_PRODUCT: return gloo::ReductionFunction<T>::product;
	case COLLET_MIN: return gloo::ReductionFunction<T>::min;
	case COLLET_MAX: return gloo::ReductionFunction<T>::max;
	default: return nullptr;
	}
}

}  // namespace

ClassAllreduce::ClassAllreduce(std::shared_ptr<gloo::Context> context, bool halving, bool sync, bool poll)
	: context_(std::move(context)), halving_(halving)
{
	for (int rank = 0; sync && rank < context_->size; rank++)
		if (rank != context_->rank)
			context_->getPair(rank)->setSync(true, poll);
	barrier_.reset(new gloo::BarrierAllToAll(context_));
}

bool ClassAllreduce::supports(collet_dtype dtype, collet_op op)
{
	const bool type = dtype == COLLET_F32 || dtype == COLLET_F64 || dtype == COLLET_I32 || dtype == COLLET_I64;
	return type && reduction<float>(op) != nullptr;
}

template <typename T>
std::unique_ptr<gloo::Algorithm> ClassAllreduce::make()
{
	const std::vector<T *> buffers = { static_cast<T *>(call_.recv) };
	const int count = static_cast<int>(call_.count);
	std::unique_ptr<gloo::Algorithm> made;
	if (halving_)
		made.reset(new gloo::AllreduceHalvingDoubling<T>(context_, buffers, count, reduction<T>(call_.op)));
	else
		made.reset(new gloo::AllreduceRingChunked<T>(context_, buffers, count, reduction<T>(call_.op)));
	return made;
}

void ClassAllreduce::prepare(const bench_call &call)
{
	call_ = call;
	switch (call.dtype) {
	case COLLET_F32: allreduce_ = make<float>(); return;
	case COLLET_F64: allreduce_ = make<double>(); return;
	case COLLET_I32: allreduce_ = make<int32_t>(); return;
	case COLLET_I64: allreduce_ = make<int64_t>(); return;
	default: throw std::invalid_argument("a type that offers() refused");
	}
}

void ClassAllreduce::run()
{
	if (!call_.in_place)
		std::memcpy(call_.recv, call_.send, call_.count * collet_dtype_bytes(call_.dtype));
	allreduce_->run();
}

void ClassAllreduce::barrier()
{
	barrier_->run();
}
