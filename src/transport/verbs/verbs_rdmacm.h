/* verbs: the functions of librdmacm, loaded only if there is an iWARP adapter. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_RDMACM_H
#define COLLET_TRANSPORT_VERBS_VERBS_RDMACM_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>

/* Functions of librdmacm, without the prefix rdma_. */
struct verbs_rdmacm {
	void *library;
	struct rdma_event_channel *(*create_event_channel)(void);
	void (*destroy_event_channel)(struct rdma_event_channel *channel);
	int (*create_id)(
		struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space space);
	int (*destroy_id)(struct rdma_cm_id *id);
	int (*bind_addr)(struct rdma_cm_id *id, struct sockaddr *address);
	int (*listen)(struct rdma_cm_id *id, int backlog);
	int (*resolve_addr)(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int timeout_ms);
	int (*resolve_route)(struct rdma_cm_id *id, int timeout_ms);
	int (*set_option)(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes);
	int (*connect)(struct rdma_cm_id *id, struct rdma_conn_param *parameters);
	int (*accept)(struct rdma_cm_id *id, struct rdma_conn_param *parameters);
	int (*reject)(struct rdma_cm_id *id, const void *data, uint8_t bytes);
	int (*get_cm_event)(struct rdma_event_channel *channel, struct rdma_cm_event **event);
	int (*ack_cm_event)(struct rdma_cm_event *event);
	const char *(*event_str)(enum rdma_cm_event_type type);
};

/* Loads librdmacm. Returns NULL if it is not installed. */
struct verbs_rdmacm *collet_verbs_load_rdmacm(void);

#endif
