#include "cuda/driver/pointer_attributes.h"

#include "core/status.h"

collet_status collet_pointer_attributes_get(const struct collet_cuda *cuda, const char *which, const void *memory,
	size_t bytes, struct collet_pointer_attributes *attributes)
{
	*attributes = (struct collet_pointer_attributes){ .ordinal = -1 };
	if (!cuda->module || !memory || !bytes)
		return COLLET_OK;
	cu_context context = NULL;
	unsigned int type = 0, managed = 0;
	int ordinal = -1;
	cu_pointer start = 0;
	size_t range = 0;
	unsigned long long allocation = 0;
	int asked[] = { CU_ATTRIBUTE_MEMORY_TYPE, CU_ATTRIBUTE_IS_MANAGED, CU_ATTRIBUTE_DEVICE_ORDINAL,
		CU_ATTRIBUTE_CONTEXT, CU_ATTRIBUTE_RANGE_START, CU_ATTRIBUTE_RANGE_BYTES,
		CU_ATTRIBUTE_BUFFER_ID };
	void *answers[] = { &type, &managed, &ordinal, &context, &start, &range, &allocation };
	const cu_pointer pointer = (cu_pointer)(uintptr_t)memory;
	const cu_result result =
		cuda->cuPointerGetAttributes(sizeof(asked) / sizeof(asked[0]), asked, answers, pointer);
	/* The driver is not initialised, or did not allocate this memory: it is host memory. */
	if (result == CU_NOT_INITIALIZED || result == CU_INVALID_VALUE || result == CU_NO_DEVICE)
		return COLLET_OK;
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, "asking where a buffer is");
	if (type != CU_MEMORY_DEVICE || managed)
		return COLLET_OK;
	if (range && bytes > start + range - pointer)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"%s: %zu bytes at %p reach past the end of their allocation on GPU %d, %llu bytes further on",
			which, bytes, memory, ordinal, start + range - pointer);
	*attributes = (struct collet_pointer_attributes){
		.is_device = true, .ordinal = ordinal, .context = context, .allocation = allocation };
	return COLLET_OK;
}
