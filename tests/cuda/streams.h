/* Streams and graphs of a program, through the driver. */
#ifndef TESTS_CUDA_STREAMS_H
#define TESTS_CUDA_STREAMS_H

#include "fake_driver/functions.h"
#include "program.h"

#define STREAM_FUNCTIONS(F)                                                                                            \
	F(cuStreamCreate)                                                                                              \
	F(cuStreamDestroy_v2)                                                                                          \
	F(cuStreamSynchronize)                                                                                         \
	F(cuStreamQuery)                                                                                               \
	F(cuStreamGetCtx)                                                                                              \
	F(cuStreamGetId)                                                                                               \
	F(cuMemcpyAsync)                                                                                               \
	F(cuStreamWaitValue32_v2)                                                                                      \
	F(cuStreamWriteValue32_v2)                                                                                     \
	F(cuLaunchHostFunc)                                                                                            \
	F(cuMemHostRegister_v2)                                                                                        \
	F(cuMemHostUnregister)                                                                                         \
	F(cuMemHostGetDevicePointer_v2)                                                                                \
	F(cuEventCreate)                                                                                               \
	F(cuEventDestroy_v2)                                                                                           \
	F(cuEventRecord)                                                                                               \
	F(cuEventQuery)                                                                                                \
	F(cuStreamWaitEvent)                                                                                           \
	F(cuStreamBeginCapture_v2)                                                                                     \
	F(cuStreamEndCapture)                                                                                          \
	F(cuStreamGetCaptureInfo_v2)                                                                                   \
	F(cuThreadExchangeStreamCaptureMode)                                                                           \
	F(cuGraphInstantiateWithFlags)                                                                                 \
	F(cuGraphDestroy)                                                                                              \
	F(cuGraphLaunch)                                                                                               \
	F(cuGraphExecDestroy)

/* Named by their symbols in the driver. */
struct streams {
#define STREAM_SLOT(name) __typeof__(name) *name;
	STREAM_FUNCTIONS(STREAM_SLOT)
#undef STREAM_SLOT
};

/* Returns false if the driver lacks any of them. */
bool streams_find(struct streams *streams, const struct program *program);

#endif
