/* Wraps oneDNN's C interface, version 2 (Debian 12) and version 3 (newer systems), under one set of names.
 *
 * Version 2 fills an operation descriptor, and makes a primitive descriptor of it. Version 3 does it in one call,
 * and has memory descriptors behind a handle. Only this file knows the version. */
#ifndef TRAIN_ONEDNN_API_H
#define TRAIN_ONEDNN_API_H

#include <stddef.h>

#include <oneapi/dnnl/dnnl.h>

/* A kernel over an image: both directions alike are not assumed, but what this program needs of them is this. */
struct dnn_window {
	dnnl_dims_t kernel, stride, padding;
};

#if DNNL_VERSION_MAJOR >= 3

typedef const_dnnl_memory_desc_t dnn_md;

static inline dnnl_status_t dnn_md_create(dnnl_memory_desc_t *owned, int rank, const dnnl_dim_t *dims,
	dnnl_data_type_t type, dnnl_format_tag_t tag)
{
	return dnnl_memory_desc_create_with_tag(owned, rank, dims, type, tag);
}

static inline void dnn_md_destroy(dnnl_memory_desc_t *owned)
{
	dnnl_memory_desc_destroy(*owned);
}

static inline dnn_md dnn_md_of(const dnnl_memory_desc_t *owned)
{
	return *owned;
}

static inline dnnl_status_t dnn_append_relu(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0);
}

/* Version 2 wants the shift among the arguments of its backward, version 3 refuses it. */
enum { dnn_batch_norm_backward_takes_shift = 0 };

static const dnnl_dims_t dnn_no_dilation = { 0, 0 };

static inline dnnl_status_t dnn_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind,
	const struct dnn_window *w, dnn_md src, dnn_md weights, dnn_md bias, dnn_md dst,
	const_dnnl_primitive_attr_t attr)
{
	return dnnl_convolution_forward_primitive_desc_create(pd, engine, kind, dnnl_convolution_direct, src, weights,
		bias, dst, w->stride, dnn_no_dilation, w->padding, w->padding, attr);
}

static inline dnnl_status_t dnn_convolution_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
	const struct dnn_window *w, dnn_md diff_src, dnn_md weights, dnn_md diff_dst,
	const_dnnl_primitive_desc_t forward)
{
	return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct, diff_src,
		weights, diff_dst, w->stride, dnn_no_dilation, w->padding, w->padding, forward, NULL);
}

static inline dnnl_status_t dnn_convolution_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
	const struct dnn_window *w, dnn_md src, dnn_md diff_weights, dnn_md diff_bias, dnn_md diff_dst,
	const_dnnl_primitive_desc_t forward)
{
	return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, dnnl_convolution_direct, src,
		diff_weights, diff_bias, diff_dst, w->stride, dnn_no_dilation, w->padding, w->padding, forward, NULL);
}

static inline dnnl_status_t dnn_linear(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind,
	dnn_md src, dnn_md weights, dnn_md bias, dnn_md dst, const_dnnl_primitive_attr_t attr)
{
	return dnnl_inner_product_forward_primitive_desc_create(pd, engine, kind, src, weights, bias, dst, attr);
}

static inline dnnl_status_t dnn_linear_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md diff_src,
	dnn_md weights, dnn_md diff_dst, const_dnnl_primitive_desc_t forward)
{
	return dnnl_inner_product_backward_data_primitive_desc_create(
		pd, engine, diff_src, weights, diff_dst, forward, NULL);
}

static inline dnnl_status_t dnn_linear_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md src,
	dnn_md diff_weights, dnn_md diff_bias, dnn_md diff_dst, const_dnnl_primitive_desc_t forward)
{
	return dnnl_inner_product_backward_weights_primitive_desc_create(
		pd, engine, src, diff_weights, diff_bias, diff_dst, forward, NULL);
}

static inline dnnl_status_t dnn_pool(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind,
	dnnl_alg_kind_t how, const struct dnn_window *w, dnn_md src, dnn_md dst)
{
	return dnnl_pooling_forward_primitive_desc_create(pd, engine, kind, how, src, dst, w->stride,
		w->kernel, dnn_no_dilation, w->padding, w->padding, NULL);
}

static inline dnnl_status_t dnn_pool_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t how,
	const struct dnn_window *w, dnn_md diff_src, dnn_md diff_dst, const_dnnl_primitive_desc_t forward)
{
	return dnnl_pooling_backward_primitive_desc_create(pd, engine, how, diff_src, diff_dst, w->stride,
		w->kernel, dnn_no_dilation, w->padding, w->padding, forward, NULL);
}

static inline dnnl_status_t dnn_batch_norm(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind,
	dnn_md data, float epsilon, unsigned flags)
{
	return dnnl_batch_normalization_forward_primitive_desc_create(
		pd, engine, kind, data, data, epsilon, flags, NULL);
}

static inline dnnl_status_t dnn_batch_norm_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md data,
	float epsilon, unsigned flags, const_dnnl_primitive_desc_t forward)
{
	return dnnl_batch_normalization_backward_primitive_desc_create(
		pd, engine, dnnl_backward, data, data, data, epsilon, flags, forward, NULL);
}

/* Its backward reads the result, not the input, so forward may work in place, or be fused. */
static inline dnnl_status_t dnn_relu(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind, dnn_md data)
{
	return dnnl_eltwise_forward_primitive_desc_create(
		pd, engine, kind, dnnl_eltwise_relu_use_dst_for_bwd, data, data, 0, 0, NULL);
}

static inline dnnl_status_t dnn_relu_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md data,
	const_dnnl_primitive_desc_t forward)
{
	return dnnl_eltwise_backward_primitive_desc_create(
		pd, engine, dnnl_eltwise_relu_use_dst_for_bwd, data, data, data, 0, 0, forward, NULL);
}

/* a + b, and what is fused into it. */
static inline dnnl_status_t dnn_add(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md a, dnn_md b, dnn_md sum,
	const_dnnl_primitive_attr_t attr)
{
	return dnnl_binary_primitive_desc_create(pd, engine, dnnl_binary_add, a, b, sum, attr);
}

#else

typedef const dnnl_memory_desc_t *dnn_md;

static inline dnnl_status_t dnn_md_create(dnnl_memory_desc_t *owned, int rank, const dnnl_dim_t *dims,
	dnnl_data_type_t type, dnnl_format_tag_t tag)
{
	return dnnl_memory_desc_init_by_tag(owned, rank, dims, type, tag);
}

static inline void dnn_md_destroy(dnnl_memory_desc_t *owned)
{
	(void)owned;
}

static inline dnn_md dnn_md_of(const dnnl_memory_desc_t *owned)
{
	return owned;
}

static inline dnnl_status_t dnn_append_relu(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
}

enum { dnn_batch_norm_backward_takes_shift = 1 };

/* The second half of every version 2 call; described: how the first half, the operation's descriptor, went. */
static inline dnnl_status_t dnn_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_status_t described,
	const_dnnl_op_desc_t operation, const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t forward)
{
	return described == dnnl_success ? dnnl_primitive_desc_create(pd, operation, attr, engine, forward) : described;
}

static inline dnnl_status_t dnn_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind,
	const struct dnn_window *w, dnn_md src, dnn_md weights, dnn_md bias, dnn_md dst,
	const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t operation;
	dnnl_status_t described = dnnl_convolution_forward_desc_init(
		&operation, kind, dnnl_convolution_direct, src, weights, bias, dst, w->stride, w->padding, w->padding);
	return dnn_pd(pd, engine, described, &operation, attr, NULL);
}

static inline dnnl_status_t dnn_convolution_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
	const struct dnn_window *w, dnn_md diff_src, dnn_md weights, dnn_md diff_dst,
	const_dnnl_primitive_desc_t forward)
{
	dnnl_convolution_desc_t operation;
	dnnl_status_t described = dnnl_convolution_backward_data_desc_init(
		&operation, dnnl_convolution_direct, diff_src, weights, diff_dst, w->stride, w->padding, w->padding);
	return dnn_pd(pd, engine, described, &operation, NULL, forward);
}

static inline dnnl_status_t dnn_convolution_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
	const struct dnn_window *w, dnn_md src, dnn_md diff_weights, dnn_md diff_bias, dnn_md diff_dst,
	const_dnnl_primitive_desc_t forward)
{
	dnnl_convolution_desc_t operation;
	dnnl_status_t described = dnnl_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct, src,
		diff_weights, diff_bias, diff_dst, w->stride, w->padding, w->padding);
	return dnn_pd(pd, engine, described, &operation, NULL, forward);
}

static inline dnnl_status_t dnn_linear(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind,
	dnn_md src, dnn_md weights, dnn_md bias, dnn_md dst, const_dnnl_primitive_attr_t attr)
{
	dnnl_inner_product_desc_t operation;
	dnnl_status_t described = dnnl_inner_product_forward_desc_init(&operation, kind, src, weights, bias, dst);
	return dnn_pd(pd, engine, described, &operation, attr, NULL);
}

static inline dnnl_status_t dnn_linear_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md diff_src,
	dnn_md weights, dnn_md diff_dst, const_dnnl_primitive_desc_t forward)
{
	dnnl_inner_product_desc_t operation;
	dnnl_status_t described = dnnl_inner_product_backward_data_desc_init(&operation, diff_src, weights, diff_dst);
	return dnn_pd(pd, engine, described, &operation, NULL, forward);
}

static inline dnnl_status_t dnn_linear_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md src,
	dnn_md diff_weights, dnn_md diff_bias, dnn_md diff_dst, const_dnnl_primitive_desc_t forward)
{
	dnnl_inner_product_desc_t operation;
	dnnl_status_t described =
		dnnl_inner_product_backward_weights_desc_init(&operation, src, diff_weights, diff_bias, diff_dst);
	return dnn_pd(pd, engine, described, &operation, NULL, forward);
}

static inline dnnl_status_t dnn_pool(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind,
	dnnl_alg_kind_t how, const struct dnn_window *w, dnn_md src, dnn_md dst)
{
	dnnl_pooling_desc_t operation;
	dnnl_status_t described = dnnl_pooling_forward_desc_init(
		&operation, kind, how, src, dst, w->stride, w->kernel, w->padding, w->padding);
	return dnn_pd(pd, engine, described, &operation, NULL, NULL);
}

static inline dnnl_status_t dnn_pool_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t how,
	const struct dnn_window *w, dnn_md diff_src, dnn_md diff_dst, const_dnnl_primitive_desc_t forward)
{
	dnnl_pooling_desc_t operation;
	dnnl_status_t described = dnnl_pooling_backward_desc_init(&operation, how, diff_src, diff_dst,
		w->stride, w->kernel, w->padding, w->padding);
	return dnn_pd(pd, engine, described, &operation, NULL, forward);
}

static inline dnnl_status_t dnn_batch_norm(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind,
	dnn_md data, float epsilon, unsigned flags)
{
	dnnl_batch_normalization_desc_t operation;
	dnnl_status_t described = dnnl_batch_normalization_forward_desc_init(&operation, kind, data, epsilon, flags);
	return dnn_pd(pd, engine, described, &operation, NULL, NULL);
}

static inline dnnl_status_t dnn_batch_norm_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md data,
	float epsilon, unsigned flags, const_dnnl_primitive_desc_t forward)
{
	dnnl_batch_normalization_desc_t operation;
	dnnl_status_t described =
		dnnl_batch_normalization_backward_desc_init(&operation, dnnl_backward, data, data, epsilon, flags);
	return dnn_pd(pd, engine, described, &operation, NULL, forward);
}

/* Its backward reads the result, not the input, so forward may work in place, or be fused. */
static inline dnnl_status_t dnn_relu(
	dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t kind, dnn_md data)
{
	dnnl_eltwise_desc_t operation;
	dnnl_status_t described = dnnl_eltwise_forward_desc_init(&operation, kind, dnnl_eltwise_relu_use_dst_for_bwd,
		data, 0, 0);
	return dnn_pd(pd, engine, described, &operation, NULL, NULL);
}

static inline dnnl_status_t dnn_relu_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md data,
	const_dnnl_primitive_desc_t forward)
{
	dnnl_eltwise_desc_t operation;
	dnnl_status_t described =
		dnnl_eltwise_backward_desc_init(&operation, dnnl_eltwise_relu_use_dst_for_bwd, data, data, 0, 0);
	return dnn_pd(pd, engine, described, &operation, NULL, forward);
}

static inline dnnl_status_t dnn_add(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnn_md a, dnn_md b, dnn_md sum,
	const_dnnl_primitive_attr_t attr)
{
	dnnl_binary_desc_t operation;
	dnnl_status_t described = dnnl_binary_desc_init(&operation, dnnl_binary_add, a, b, sum);
	return dnn_pd(pd, engine, described, &operation, attr, NULL);
}

#endif
#endif
