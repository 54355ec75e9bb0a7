/* Images as networks see them, of pixels: cut, mirrored, normalised (data/pixels.h). */
#include "cuda/cudnn/kernels.h"
#include "cuda/cudnn/kernels_common.h"

namespace {

/* Makes one element a thread. Background is the offset itself, as on the host: 0 x scale + offset has another sign
 * if the offset is -0. */
__global__ void make_images(float *to, const uint8_t *pixels, const struct placement *places,
	struct kernels_images how, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride()) {
		const uint64_t line = i / how.width, plane = line / how.height;
		const int32_t x = (int32_t)(i % how.width), y = (int32_t)(line % how.height);
		const struct placement place = places[plane / how.channels];
		const struct normal normal = how.normals[plane % how.channels];
		const int32_t row = y + place.down;
		const int32_t column = (place.mirrored ? (int32_t)how.width - 1 - x : x) + place.right;
		const bool inside = row >= 0 && row < (int32_t)how.height && column >= 0 && column < (int32_t)how.width;
		to[i] = inside ? (float)pixels[(plane * how.height + (uint64_t)row) * how.width + (uint64_t)column] *
				normal.scale + normal.offset : normal.offset;
	}
}

}  // namespace

int kernels_images(float *to, const uint8_t *pixels, const struct placement *places, struct kernels_images how,
	struct CUstream_st *stream)
{
	const uint64_t count = (uint64_t)how.images * how.channels * how.height * how.width;
	make_images<<<blocks_for(count), THREADS, 0, stream>>>(to, pixels, places, how, count);
	return cudaGetLastError();
}
