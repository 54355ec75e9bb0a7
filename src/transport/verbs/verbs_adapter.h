/* verbs: the adapters of a rank, their options and their asynchronous events. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_ADAPTER_H
#define COLLET_TRANSPORT_VERBS_VERBS_ADAPTER_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <collet/transport.h>

#include "verbs_profile.h"
#include "verbs_registration.h"

/* Kind of network, as bits: a rank's peer info holds those of all its adapters. */
enum verbs_network { VERBS_NETWORK_INFINIBAND = 1, VERBS_NETWORK_ROCE = 2, VERBS_NETWORK_IWARP = 4 };

/* A port of an RDMA device. */
struct verbs_adapter {
	struct ibv_context *context;
	struct ibv_pd *pd;
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t port;
	uint8_t gid_index;
	enum verbs_network network; /* InfiniBand is addressed by LID, the others by GID */
	union ibv_gid gid;          /* iWARP: the IP address in the form of a RoCE GID */
	uint16_t lid;
	enum ibv_mtu mtu;
	uint32_t rate_mbps;
	uint64_t max_write_bytes;        /* most bytes of one write */
	struct ibv_device_attr attributes;
	_Atomic bool is_fatal;           /* the device has reported IBV_EVENT_DEVICE_FATAL */
};

struct verbs_options {
	uint8_t timeout, retries;        /* as in ibv_modify_qp(): 4.096 us * 2^timeout; at most 7 retries */
	uint8_t service_level, traffic_class;
	int gid_index;                   /* -1: the best GID of the port */
	uint64_t max_pinned_bytes;       /* most bytes of cached registrations */
	uint32_t max_wide;               /* endpoints with the wide profile; further ones are lean */
};

struct verbs_rdmacm;
/* The device of a rank: all adapters that it uses, and what is registered with them. */
struct collet_device {
	const struct collet_services *services;
	const struct collet_log *log;
	struct verbs_options options;
	uint32_t adapter_count;
	struct verbs_adapter adapters[VERBS_RAILS_MAX];
	bool is_iwarp;                   /* all adapters are iWARP, or none is */
	struct verbs_rdmacm *rdmacm;     /* librdmacm, loaded for the first iWARP adapter; else NULL */

	pthread_mutex_t lock;            /* guards all members below */
	struct verbs_region **regions;   /* sorted by begin */
	size_t region_count, region_capacity;
	uint64_t pinned_bytes, use_count; /* bytes of cached registrations; clock of verbs_region.last_used */
	uint32_t endpoint_count;         /* open endpoints */
	bool is_closed_in_child;         /* in a forked child: its copies of the descriptors are closed */

	int epoll_fd;                    /* the rank's epoll set */
	_Atomic uint32_t port_errors;    /* number of port errors reported so far */
	bool has_warned;                 /* the warning about refused registrations was logged */
};

struct verbs_endpoint;

/* verbs_options.c */
collet_status collet_verbs_read_options(const struct collet_services *services, struct verbs_options *options);

/* verbs_adapters.c */
collet_status collet_verbs_device_open(struct collet_device **device, const struct collet_device_config *config,
	struct collet_device_info *info);
void collet_verbs_device_close(struct collet_device *device);
/* Closes a forked child's copies of the descriptors. The objects themselves belong to the parent. */
void collet_verbs_close_fds_in_child(const struct collet_device *device);
/* Queries the port, since its state can change at any time. */
bool collet_verbs_is_adapter_active(const struct verbs_adapter *adapter);
/* Writes the adapter's name for people, as in "rxe0 port 1, GID 1 (10.77.0.1)". Returns text. */
const char *collet_verbs_adapter_name(const struct verbs_adapter *adapter, char *text, size_t bytes);
const char *collet_verbs_gid_text(const uint8_t gid[16], char *text, size_t bytes);

/* verbs_events.c */
collet_status collet_verbs_watch_events(struct collet_device *device);
void collet_verbs_unwatch_events(struct collet_device *device);
/* Handles the events that adapters have reported. Marks the endpoint as lost if an event concerns it. Returns true if a
 * port has gone down, so that the caller probes its adapters at once. */
bool collet_verbs_handle_events(struct verbs_endpoint *verbs);

#endif
