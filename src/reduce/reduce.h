/* Combining elements: every dtype × operation × instruction set, any number of operands in one pass.
 *
 * What is computed is defined above collet_op in collet.h. Every instruction set gives the same bits, because the
 * rules leave nothing open:
 *   Order      ((operand 0 op operand 1) op operand 2) ..., element by element.
 *   Rounding   to nearest, ties to even, denormals kept, nothing fused, whatever mode the calling thread is in. Floats
 *              of 16 and 8 bits are widened to f32, combined there over all operands, and rounded once.
 *   NaN        A NaN that arithmetic or min/max stores is the canonical one of its type, whatever the sign and payload
 *              of the NaNs that went in: quiet, positive, payload 0 (f64 7ff8..., f32 7fc00000, f16 7e00, bf16 7fc0,
 *              f8e5m2 7e; f8e4m3 has only 7f). Which of two NaNs an addition keeps depends on operand order, which
 *              compilers swap at will, and differs between processors and GPUs; this does not. A mere copy keeps its
 *              bits.
 *   Zero       min and max: -0 < +0.
 *   Overflow   f16, bf16, f32, f64: infinity. f8e4m3: 448, also for an infinity. f8e5m2: 57344 for a finite value
 *              beyond it; an infinity (of an operand, or from overflowing f32) stays one. */
#ifndef COLLET_REDUCE_REDUCE_H
#define COLLET_REDUCE_REDUCE_H

#include "core/cpu.h"

#include <collet/collet.h>

/* One operand: count elements of the dtype, at any alignment. */
struct collet_operand {
	const void *data;
	bool is_scaled; /* premul_sum: multiply by the reduction's scale first (an element's first touch); else
	                   ignored */
};

/* What elements are multiplied by, in the type they are combined in. */
struct collet_scaling {
	float scale_f32;   /* premul_sum */
	float inverse_f32; /* average: 1/n */
	double scale_f64;
	double inverse_f64;
};

/* result[i] = operands combined; result may be one of the operands' data. */
typedef void collet_kernel(void *result, const struct collet_operand *operands, uint32_t operand_count, size_t count,
	const struct collet_scaling *scaling);

/* Everything but the data. Fill with collet_reduction_init() once per request; holds no resources; may be copied. */
struct collet_reduction {
	collet_dtype dtype;
	collet_op op;
	size_t element_bytes;
	bool is_rounded;              /* arithmetic on it rounds to 16 or 8 bits */
	bool is_integer;
	uint32_t divisor;             /* world size; 1 if nothing is to be divided */
	const collet_user_op *user_op;
	struct collet_scaling scaling;
	collet_kernel *combine;       /* NULL for a user-defined operation */
	collet_kernel *finish;        /* the same, and a float average's division before the rounding */
};

/* isa: one that collet_isa_available(), as collet_isa_from_env() gives; AUTO asks the processor each time, so keep it
 * from every request. scale is read for premul_sum only, world_size (at least 1) for average only, user_op for
 * COLLET_USER only. *user_op must outlive r. COLLET_ERR_UNSUPPORTED for a pair of op and dtype that does not
 * exist, or an isa that this build lacks; COLLET_ERR_ARGUMENT for COLLET_USER without a function. */
COLLET_MUST_USE collet_status collet_reduction_init(struct collet_reduction *r, collet_dtype dtype, collet_op op,
	const collet_user_op *user_op, double scale, uint32_t world_size, enum collet_isa isa);

/* result[i] = operand 0 (op) operand 1 (op) ... One operand: a copy (with scale and finish). finish: this is the
 * elements' last touch, so an average is divided here, before the rounding. result may be exactly one or more of
 * the operands' data; there is no other overlap. At least one operand. Adds to *roundings (may be NULL) the
 * elements that arithmetic rounded to 16 or 8 bits; copies, min and max round none, and what a user-defined
 * operation rounds is its own affair. That one is folded from the left over pieces of the span, in the fixed
 * floating-point mode. Any thread. */
void collet_reduction_run(const struct collet_reduction *r, void *result, const struct collet_operand *operands,
	uint32_t operand_count, size_t count, bool is_last, uint64_t *rounded_count);

/* Is this thread in the middle of a user-defined operation, and so of collet_reduction_run()? The variable is asked for
 * in every call, so it is found without one. */
extern _Thread_local bool collet_reduction_in_user_op
	__attribute__((visibility("hidden"), tls_model("initial-exec")));

#endif
