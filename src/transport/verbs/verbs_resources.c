/* verbs, what a conduit is made of: registered memory, completion queues and queue pairs, and their end. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "verbs_endpoint.h"

/* ---- Making ------------------------------------------------------------------------------------------------- */

/* How many conduits a rank may have is not known when it makes the first. */
static const struct verbs_shape *choose_shape(struct collet_device *device)
{
	pthread_mutex_lock(&device->lock);
	const uint32_t before = device->conduits++;
	pthread_mutex_unlock(&device->lock);
	return before < device->options.wide_most ? &collet_verbs_wide : &collet_verbs_lean;
}

/* Receive requests, by what verbs_endpoint.h counts. */
static uint32_t receives_of(const struct verbs_shape *shape, uint32_t pair)
{
	return (pair ? LARGE_MOST + PLACES : shape->window + 8 + 3 * LARGE_MOST) + shape->receive_batch;
}

/* Those of the queue pairs before this one. */
static uint32_t notices_before(const struct verbs_shape *shape, uint32_t pair)
{
	return pair ? receives_of(shape, 0) + (pair - 1) * receives_of(shape, 1) : 0;
}

static collet_status make_memory(struct verbs_conduit *verbs)
{
	const struct verbs_shape *shape = verbs->shape;
	const uint32_t notices = verbs_is_iwarp(verbs) ? notices_before(shape, shape->lean ? 2 : PAIRS_MOST) : 0;
	const size_t bytes = verbs_memory_bytes(shape) + notices * sizeof(struct verbs_notice);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return collet_verbs_refuse(verbs, "no memory for its ring", strerror(errno));
	verbs->memory = memory;
	verbs->memory_bytes = bytes;
	/* Adapters know pages, and after a fork this process's next write could give it another one. */
	(void)madvise(memory, bytes, MADV_DONTFORK);
	return COLLET_OK;
}

static uint32_t depth_of(const struct verbs_shape *shape, uint32_t pair)
{
	return pair ? shape->data_depth : shape->depth;
}

/* Of all adapters, but for the first, which also has the ring's, as many. */
static uint32_t pairs_of(const struct verbs_conduit *verbs)
{
	const uint32_t rails = verbs->rail_count;
	return 1 + (rails > verbs->shape->data_pairs ? rails : verbs->shape->data_pairs);
}

/* Room for all that the rail's queue pairs can have under way. */
static int completions_of(const struct verbs_shape *shape)
{
	const uint32_t data = depth_of(shape, 1) + receives_of(shape, 1);
	return (int)(depth_of(shape, 0) + receives_of(shape, 0) + shape->data_pairs * data);
}

/* The peer's. */
static unsigned access_of(const struct verbs_conduit *verbs)
{
	return IBV_ACCESS_REMOTE_WRITE | (verbs_is_iwarp(verbs) ? (unsigned)IBV_ACCESS_REMOTE_READ : 0);
}

static collet_status make_rail(struct verbs_conduit *verbs, struct verbs_adapter *adapter)
{
	struct verbs_rail *rail = &verbs->rails[verbs->rail_count++];
	rail->adapter = adapter;
	rail->channel = ibv_create_comp_channel(adapter->context);
	if (!rail->channel)
		return collet_verbs_refuse(verbs, "no completion channel", strerror(errno));
	const int most = adapter->limits.max_cqe, wished = completions_of(verbs->shape);
	rail->completions = ibv_create_cq(adapter->context, most < wished ? most : wished, verbs, rail->channel, 0);
	if (!rail->completions)
		return collet_verbs_refuse(verbs, "no completion queue", strerror(errno));
	rail->memory = ibv_reg_mr(
		adapter->protection, verbs->memory, verbs->memory_bytes, IBV_ACCESS_LOCAL_WRITE | access_of(verbs));
	if (!rail->memory)
		return collet_verbs_refuse(verbs,
			"its ring cannot be registered (raise the limit of locked memory: ulimit -l unlimited)",
			strerror(errno));
	return COLLET_OK;
}

/* Inline data is asked for, where messages are small, and adapters differ in how much they take. */
static struct ibv_qp *create_pair(struct verbs_conduit *verbs, const struct verbs_rail *rail, uint32_t sends,
	uint32_t receives, uint32_t wished, uint32_t *inline_bytes)
{
	const uint32_t sizes[] = { wished, 128, 64, 0 };
	struct ibv_qp *pair = NULL;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !pair; i++) {
		if (sizes[i] > wished)
			continue;
		struct ibv_qp_init_attr wish = { .qp_context = verbs,
			.send_cq = rail->completions,
			.recv_cq = rail->completions,
			.cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 2, .max_recv_sge = 1,
				.max_inline_data = sizes[i] },
			.qp_type = IBV_QPT_RC };
		pair = ibv_create_qp(rail->adapter->protection, &wish);
		*inline_bytes = wish.cap.max_inline_data < sizes[i] ? wish.cap.max_inline_data : sizes[i];
	}
	return pair;
}

static collet_status make_pair(struct verbs_conduit *verbs)
{
	const uint32_t index = verbs->pair_count;
	struct verbs_pair *pair = &verbs->pairs[index];
	pair->rail = index ? (index - 1) % verbs->rail_count : 0;
	pair->depth = depth_of(verbs->shape, index);
	const uint32_t receives = receives_of(verbs->shape, index);
	const struct verbs_rail *rail = &verbs->rails[pair->rail];
	if ((uint32_t)rail->adapter->limits.max_qp_wr < receives)
		return collet_verbs_refuse(verbs, rail->adapter->name, "its queue pairs are too short");
	const bool iwarp = verbs_is_iwarp(verbs);
	const uint32_t notice = iwarp ? sizeof(struct verbs_notice) : 0;
	const uint32_t inline_most = index ? notice : verbs->shape->inline_bytes;
	/* A write and its notice each time, and a notice whose write has completed. */
	const uint32_t sends = iwarp ? 2 * pair->depth + 1 : pair->depth;
	pair->pair = create_pair(verbs, rail, sends, receives, inline_most, &pair->inline_bytes);
	if (!pair->pair)
		return collet_verbs_refuse(verbs, "no queue pair (has the adapter too many?)", strerror(errno));
	verbs->pair_count++;
	if (pair->inline_bytes < notice)
		return collet_verbs_refuse(verbs, rail->adapter->name, "its queue pairs take nothing inline");
	if (iwarp) {
		uint8_t *after = (uint8_t *)verbs->memory + verbs_memory_bytes(verbs->shape);
		pair->notices = (struct verbs_notice *)after + notices_before(verbs->shape, index);
		pair->notice_count = receives;
		pair->notice_key = rail->memory->lkey;
	}
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT, .port_num = rail->adapter->port, .qp_access_flags = access_of(verbs)};
	const int error = ibv_modify_qp(pair->pair, &attributes,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error)
		return collet_verbs_refuse(verbs, "cannot set up a queue pair", strerror(error));
	if (!collet_verbs_give_receives(pair, receives))
		return collet_verbs_refuse(verbs, "a queue pair takes no receive requests", strerror(errno));
	return COLLET_OK;
}

collet_status collet_verbs_make(struct verbs_conduit *verbs)
{
	verbs->shape = choose_shape(verbs->device);
	collet_status status = make_memory(verbs);
	const uint32_t most = verbs->shape->lean ? 1 : RAILS_MOST;
	for (uint32_t i = 0; i < verbs->device->adapter_count && verbs->rail_count < most && status == COLLET_OK; i++)
		if (collet_verbs_adapter_active(&verbs->device->adapters[i]))
			status = make_rail(verbs, &verbs->device->adapters[i]);
	if (status == COLLET_OK && verbs->rail_count == 0)
		return collet_verbs_refuse(
			verbs, "no adapter has an active port any more", verbs->device->adapters[0].name);
	while (verbs->pair_count < pairs_of(verbs) && status == COLLET_OK)
		status = make_pair(verbs);
	return status;
}

/* ---- Undoing ------------------------------------------------------------------------------------------------ */

void collet_verbs_destroy_pairs(struct verbs_conduit *verbs)
{
	if (verbs_is_iwarp(verbs))
		collet_verbs_iwarp_hang_up(verbs);
	for (uint32_t p = 0; p < verbs->pair_count; p++)
		ibv_destroy_qp(verbs->pairs[p].pair);
	verbs->pair_count = 0;
}

void collet_verbs_let_go(struct verbs_conduit *verbs)
{
	collet_verbs_destroy_pairs(verbs);
	for (uint32_t r = 0; r < verbs->rail_count; r++) {
		struct verbs_rail *rail = &verbs->rails[r];
		if (rail->memory)
			ibv_dereg_mr(rail->memory);
		if (rail->completions)
			ibv_destroy_cq(rail->completions);
		if (rail->channel) {
			(void)epoll_ctl(verbs->epoll_fd, EPOLL_CTL_DEL, rail->channel->fd, NULL);
			ibv_destroy_comp_channel(rail->channel);
		}
	}
	verbs->rail_count = 0;
	if (verbs->memory)
		munmap(verbs->memory, verbs->memory_bytes);
	verbs->memory = NULL;
	if (verbs->shape) {
		pthread_mutex_lock(&verbs->device->lock);
		verbs->device->conduits--;
		pthread_mutex_unlock(&verbs->device->lock);
	}
	verbs->shape = NULL;
}
