/* verbs: creates and frees the resources of an endpoint: registered memory, completion queues, queue pairs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "verbs_completion.h"
#include "verbs_endpoint.h"
#include "verbs_iwarp.h"

/* ---- Creation ----------------------------------------------------------------------------------------------- */

/* Chooses the profile by the number of endpoints that are open already: their final number is not known. */
static const struct verbs_profile *choose_profile(struct collet_device *device)
{
	pthread_mutex_lock(&device->lock);
	const uint32_t open_count = device->endpoint_count++;
	pthread_mutex_unlock(&device->lock);
	return open_count < device->options.max_wide ? &collet_verbs_profile_wide : &collet_verbs_profile_lean;
}

/* Returns the number of receive requests of a queue pair, as counted in verbs_endpoint.h. */
static uint32_t receive_depth(const struct verbs_profile *profile, uint32_t qp)
{
	return (qp ? VERBS_LARGE_MAX + VERBS_BOUNCE_BUFFERS : profile->window + 8 + 3 * VERBS_LARGE_MAX) +
	       profile->receive_batch;
}

/* Returns the number of notices of all queue pairs before this one. */
static uint32_t notices_before(const struct verbs_profile *profile, uint32_t qp)
{
	return qp ? receive_depth(profile, 0) + (qp - 1) * receive_depth(profile, 1) : 0;
}

static collet_status create_memory(struct verbs_endpoint *verbs)
{
	const struct verbs_profile *profile = verbs->profile;
	const uint32_t notice_count =
		verbs_is_iwarp(verbs) ? notices_before(profile, profile->is_lean ? 2 : VERBS_QPS_MAX) : 0;
	const size_t bytes = verbs_memory_bytes(profile) + notice_count * sizeof(struct verbs_notice);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return collet_verbs_fail_connect(verbs, "no memory for its ring", strerror(errno));
	verbs->memory = memory;
	verbs->memory_bytes = bytes;
	/* Adapters use physical pages. After a fork, copy-on-write could give this process another page. */
	(void)madvise(memory, bytes, MADV_DONTFORK);
	return COLLET_OK;
}

static uint32_t send_depth(const struct verbs_profile *profile, uint32_t qp)
{
	return qp ? profile->data_depth : profile->depth;
}

/* Returns the number of queue pairs: one for the ring and at least one for data on each adapter. */
static uint32_t qps_of(const struct verbs_endpoint *verbs)
{
	const uint32_t rails = verbs->rail_count;
	return 1 + (rails > verbs->profile->data_qps ? rails : verbs->profile->data_qps);
}

/* Returns the length of a completion queue: enough for all requests that the rail's queue pairs can have in flight. */
static int cq_depth(const struct verbs_profile *profile)
{
	const uint32_t data = send_depth(profile, 1) + receive_depth(profile, 1);
	return (int)(send_depth(profile, 0) + receive_depth(profile, 0) + profile->data_qps * data);
}

/* Returns the access that the peer has to this end's memory. */
static unsigned peer_access(const struct verbs_endpoint *verbs)
{
	return IBV_ACCESS_REMOTE_WRITE | (verbs_is_iwarp(verbs) ? (unsigned)IBV_ACCESS_REMOTE_READ : 0);
}

static collet_status create_rail(struct verbs_endpoint *verbs, struct verbs_adapter *adapter)
{
	struct verbs_rail *rail = &verbs->rails[verbs->rail_count++];
	rail->adapter = adapter;
	rail->comp_channel = ibv_create_comp_channel(adapter->context);
	if (!rail->comp_channel)
		return collet_verbs_fail_connect(verbs, "no completion channel", strerror(errno));
	const int most = adapter->attributes.max_cqe, wanted = cq_depth(verbs->profile);
	rail->cq = ibv_create_cq(adapter->context, most < wanted ? most : wanted, verbs, rail->comp_channel, 0);
	if (!rail->cq)
		return collet_verbs_fail_connect(verbs, "no completion queue", strerror(errno));
	rail->mr = ibv_reg_mr(
		adapter->pd, verbs->memory, verbs->memory_bytes, IBV_ACCESS_LOCAL_WRITE | peer_access(verbs));
	if (!rail->mr)
		return collet_verbs_fail_connect(verbs,
			"its ring cannot be registered (raise the limit of locked memory: ulimit -l unlimited)",
			strerror(errno));
	return COLLET_OK;
}

/* Creates a queue pair with the greatest inline size that the adapter accepts, up to the wanted one. */
static struct ibv_qp *try_create_qp(struct verbs_endpoint *verbs, const struct verbs_rail *rail, uint32_t sends,
	uint32_t receives, uint32_t wanted, uint32_t *inline_bytes)
{
	const uint32_t sizes[] = { wanted, 128, 64, 0 };
	struct ibv_qp *qp = NULL;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !qp; i++) {
		if (sizes[i] > wanted)
			continue;
		struct ibv_qp_init_attr attributes = { .qp_context = verbs,
			.send_cq = rail->cq,
			.recv_cq = rail->cq,
			.cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 2, .max_recv_sge = 1,
				.max_inline_data = sizes[i] },
			.qp_type = IBV_QPT_RC };
		qp = ibv_create_qp(rail->adapter->pd, &attributes);
		*inline_bytes = attributes.cap.max_inline_data < sizes[i] ? attributes.cap.max_inline_data : sizes[i];
	}
	return qp;
}

static collet_status create_qp(struct verbs_endpoint *verbs)
{
	const uint32_t index = verbs->qp_count;
	struct verbs_qp *qp = &verbs->qps[index];
	qp->rail = index ? (index - 1) % verbs->rail_count : 0;
	qp->depth = send_depth(verbs->profile, index);
	const uint32_t receives = receive_depth(verbs->profile, index);
	const struct verbs_rail *rail = &verbs->rails[qp->rail];
	if ((uint32_t)rail->adapter->attributes.max_qp_wr < receives)
		return collet_verbs_fail_connect(verbs, rail->adapter->name, "its queue pairs are too short");
	const bool is_iwarp = verbs_is_iwarp(verbs);
	const uint32_t notice_bytes = is_iwarp ? sizeof(struct verbs_notice) : 0;
	const uint32_t max_inline = index ? notice_bytes : verbs->profile->inline_bytes;
	/* iWARP: a write and its notice for each entry, and one notice whose write has completed. */
	const uint32_t sends = is_iwarp ? 2 * qp->depth + 1 : qp->depth;
	qp->qp = try_create_qp(verbs, rail, sends, receives, max_inline, &qp->inline_bytes);
	if (!qp->qp)
		return collet_verbs_fail_connect(verbs, "no queue pair (has the adapter too many?)", strerror(errno));
	verbs->qp_count++;
	if (qp->inline_bytes < notice_bytes)
		return collet_verbs_fail_connect(verbs, rail->adapter->name, "its queue pairs accept no inline data");
	if (is_iwarp) {
		uint8_t *notices = (uint8_t *)verbs->memory + verbs_memory_bytes(verbs->profile);
		qp->notices = (struct verbs_notice *)notices + notices_before(verbs->profile, index);
		qp->notice_count = receives;
		qp->notice_lkey = rail->mr->lkey;
	}
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT, .port_num = rail->adapter->port, .qp_access_flags = peer_access(verbs)};
	const int error = ibv_modify_qp(qp->qp, &attributes,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error)
		return collet_verbs_fail_connect(verbs, "cannot set up a queue pair", strerror(error));
	if (!collet_verbs_post_receives(qp, receives))
		return collet_verbs_fail_connect(verbs, "cannot post receive requests", strerror(errno));
	return COLLET_OK;
}

collet_status collet_verbs_create_resources(struct verbs_endpoint *verbs)
{
	verbs->profile = choose_profile(verbs->device);
	collet_status status = create_memory(verbs);
	const uint32_t most = verbs->profile->is_lean ? 1 : VERBS_RAILS_MAX;
	for (uint32_t i = 0; i < verbs->device->adapter_count && verbs->rail_count < most && status == COLLET_OK; i++)
		if (collet_verbs_is_adapter_active(&verbs->device->adapters[i]))
			status = create_rail(verbs, &verbs->device->adapters[i]);
	if (status == COLLET_OK && verbs->rail_count == 0)
		return collet_verbs_fail_connect(
			verbs, "no adapter has an active port any more", verbs->device->adapters[0].name);
	while (verbs->qp_count < qps_of(verbs) && status == COLLET_OK)
		status = create_qp(verbs);
	return status;
}

/* ---- Release ------------------------------------------------------------------------------------------------ */

void collet_verbs_destroy_qps(struct verbs_endpoint *verbs)
{
	if (verbs_is_iwarp(verbs))
		collet_verbs_iwarp_disconnect(verbs);
	for (uint32_t p = 0; p < verbs->qp_count; p++)
		ibv_destroy_qp(verbs->qps[p].qp);
	verbs->qp_count = 0;
}

void collet_verbs_free_resources(struct verbs_endpoint *verbs)
{
	collet_verbs_destroy_qps(verbs);
	for (uint32_t r = 0; r < verbs->rail_count; r++) {
		struct verbs_rail *rail = &verbs->rails[r];
		if (rail->mr)
			ibv_dereg_mr(rail->mr);
		if (rail->cq)
			ibv_destroy_cq(rail->cq);
		if (rail->comp_channel) {
			(void)epoll_ctl(verbs->epoll_fd, EPOLL_CTL_DEL, rail->comp_channel->fd, NULL);
			ibv_destroy_comp_channel(rail->comp_channel);
		}
	}
	verbs->rail_count = 0;
	if (verbs->memory)
		munmap(verbs->memory, verbs->memory_bytes);
	verbs->memory = NULL;
	if (verbs->profile) {
		pthread_mutex_lock(&verbs->device->lock);
		verbs->device->endpoint_count--;
		pthread_mutex_unlock(&verbs->device->lock);
	}
	verbs->profile = NULL;
}
