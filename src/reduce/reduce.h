/* Reduces elements: each dtype, operation and instruction set, with any number of operands in one pass.
 *
 * The comment above collet_op in collet.h defines the results. Every instruction set gives the same bits, because the
 * rules leave nothing open:
 *   Order      ((operand 0 op operand 1) op operand 2) ..., element by element.
 *   Rounding   To nearest, ties to even, denormals kept, nothing fused, in any mode of the calling thread. Floats of 16
 *              and 8 bits are widened to f32, reduced there over all operands, and rounded once.
 *   NaN        Arithmetic, min and max store the canonical NaN of the type, whatever the sign and payload of the NaNs
 *              in the operands: quiet, positive, payload 0 (f64 7ff8..., f32 7fc00000, f16 7e00, bf16 7fc0, f8e5m2 7e;
 *              f8e4m3 has only 7f). Without this rule, the NaN that an addition keeps would depend on operand order,
 *              which compilers may swap, and on the processor or GPU. A plain copy keeps its bits.
 *   Zero       For min and max, -0 < +0.
 *   Overflow   f16, bf16, f32, f64: infinity. f8e4m3: 448, also for an infinity. f8e5m2: 57344 for a greater finite
 *              value; an infinity (of an operand, or from overflow of f32) stays infinity. */
#ifndef COLLET_REDUCE_REDUCE_H
#define COLLET_REDUCE_REDUCE_H

#include "core/cpu.h"

#include <collet/collet.h>

/* One operand: count elements of the dtype, at any alignment. */
struct collet_operand {
	const void *data;
	bool is_scaled; /* premul_sum: multiplied by the reduction's scale first; ignored by other operations */
};

/* Factors, in the type in which elements are reduced. */
struct collet_scaling {
	float scale_f32;   /* factor of premul_sum */
	float inverse_f32; /* factor of average: 1/n */
	/* Factors of an average of bf16, which has the range of f32: 2^-k <= 1/n for operands, 2^k/n for the sum. */
	float shrunk_f32, share_f32;
	double scale_f64;
	double inverse_f64;
};

/* Where the elements are stored. Each place may be exactly the data of one or more operands, with no other overlap. */
struct collet_reduction_target {
	void *result;
	void *copy;          /* a second place; may be NULL */
	bool is_nontemporal;        /* a hint: result is not read soon, so store there past the caches */
};

/* A kernel: result[i] = copy[i] = reduction of element i of all operands. */
typedef void collet_kernel(const struct collet_reduction_target *target, const struct collet_operand *operands,
	uint32_t operand_count, size_t count, const struct collet_scaling *scaling);

/* A reduction, apart from its data. collet_reduction_init() fills it once for each request. It holds no resources and
 * may be copied. */
struct collet_reduction {
	collet_dtype dtype;
	collet_op op;
	size_t element_bytes;
	bool is_rounded;              /* results are rounded to 16 or 8 bits */
	bool is_integer;
	bool is_truth;                /* bool: even a single operand becomes 0 or 1 */
	uint32_t divisor;             /* world size for an average, else 1 */
	const collet_user_op *user_op;
	struct collet_scaling scaling;
	collet_kernel *combine;       /* NULL for a user-defined operation */
	collet_kernel *finish;        /* like combine, and for averages of floats divides before it rounds */
};

/* Returns the greatest power of two that is at most 1/n. n operands multiplied by it add up to no more than the largest
 * of them, and in f32 the product with a narrower float is exact. */
double collet_average_shrunk(uint32_t n);

/* Prepares a reduction. isa must be available (collet_isa_available()), as the result of collet_isa_from_env() is. Do
 * not pass AUTO for every request, because it queries the processor each time. scale is read for premul_sum only,
 * world_size (at least 1) for average only, user_op for COLLET_USER only. *user_op must outlive r.
 * COLLET_ERR_UNSUPPORTED: op does not exist for dtype, or this build lacks isa. COLLET_ERR_ARGUMENT: COLLET_USER
 * without a function. */
COLLET_MUST_USE collet_status collet_reduction_init(struct collet_reduction *r, collet_dtype dtype, collet_op op,
	const collet_user_op *user_op, double scale, uint32_t world_size, enum collet_isa isa);

/* Computes result[i] = operand 0 (op) operand 1 (op) ... for count elements. There is at least one operand; a single
 * one is copied, after scaling or division where these apply (bool: as 0 or 1). is_last: no later step changes the
 * elements, so an average is divided here, before it is rounded. result may be exactly the data of one or more
 * operands, with no other overlap. *rounded_count (may be NULL) grows by the number of elements rounded to 16 or 8
 * bits: none by copies, min and max, and those of a user-defined operation are not counted. A user-defined operation is
 * applied from left to right in blocks, in the floating-point mode of kernels. Any thread may call. */
void collet_reduction_run(const struct collet_reduction *r, void *result, const struct collet_operand *operands,
	uint32_t operand_count, size_t count, bool is_last, uint64_t *rounded_count);
/* Does the same, and stores the elements in all places of the target. */
void collet_reduction_run_to(const struct collet_reduction *r, const struct collet_reduction_target *target,
	const struct collet_operand *operands, uint32_t operand_count, size_t count, bool is_last,
	uint64_t *rounded_count);

/* True while this thread runs a user-defined operation inside collet_reduction_run(). Every call of the library reads
 * it, so the TLS model is one that needs no function call. */
extern _Thread_local bool collet_reduction_in_user_op
	__attribute__((visibility("hidden"), tls_model("initial-exec")));

#endif
