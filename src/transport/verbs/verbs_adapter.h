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

/* Bits: on a rank's card are those of all its adapters. */
enum verbs_network { NETWORK_INFINIBAND = 1, NETWORK_ROCE = 2, NETWORK_IWARP = 4 };

/* A port of a device. */
struct verbs_adapter {
	struct ibv_context *context;
	struct ibv_pd *pd;
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t port;
	uint8_t gid_index;
	enum verbs_network network; /* of an adapter: InfiniBand is addressed by LID, the others by GID */
	union ibv_gid gid;          /* iWARP: the IP address, as RoCE writes it */
	uint16_t lid;
	enum ibv_mtu mtu;
	uint32_t rate_mbps;
	uint64_t max_write_bytes;        /* bytes of one write */
	struct ibv_device_attr attributes;
	_Atomic bool is_fatal;           /* its device has told that it is broken */
};

struct verbs_options {
	uint8_t timeout, retries;        /* as verbs have them: 4.096 us * 2^timeout, up to 7 */
	uint8_t service_level, traffic_class;
	int gid_index;                   /* -1: chosen */
	uint64_t max_pinned_bytes;       /* bytes of kept registrations */
	uint32_t max_wide;               /* conduits; further ones are lean */
};

struct verbs_rdmacm;
struct collet_device {
	const struct collet_services *services;
	const struct collet_log *log;
	struct verbs_options options;
	uint32_t adapter_count;
	struct verbs_adapter adapters[RAILS_MAX];
	bool is_iwarp;               /* all of them are, or none is */
	struct verbs_rdmacm *rdmacm; /* loaded when there is such a one */

	pthread_mutex_t lock;            /* of everything below */
	struct verbs_region **regions;   /* by first */
	size_t region_count, region_capacity;
	uint64_t pinned_bytes, use_count;
	uint32_t endpoint_count;         /* that are open */
	bool is_closed_in_child;         /* of a fork: its descriptors are closed there */

	int epoll_fd;                    /* the rank's */
	_Atomic uint32_t port_errors;    /* ports that went down */
	bool has_warned;                 /* that registration is refused */
};

struct verbs_endpoint;

/* verbs_options.c */
collet_status collet_verbs_read_options(const struct collet_services *services, struct verbs_options *options);

/* verbs_adapters.c */
collet_status collet_verbs_device_open(struct collet_device **device, const struct collet_device_config *config,
	struct collet_device_info *info);
void collet_verbs_device_close(struct collet_device *device);
/* In a forked child: closes its copies of descriptors, and leaves everything to the parent. */
void collet_verbs_close_fds_in_child(const struct collet_device *device);
/* Asks the port now: its state changes. */
bool collet_verbs_is_adapter_active(const struct verbs_adapter *adapter);
/* "rxe0 port 1 (10.77.0.1)" */
const char *collet_verbs_adapter_name(const struct verbs_adapter *adapter, char *text, size_t bytes);
const char *collet_verbs_gid_text(const uint8_t gid[16], char *text, size_t bytes);

/* verbs_events.c */
collet_status collet_verbs_watch_events(struct collet_device *device);
void collet_verbs_unwatch_events(struct collet_device *device);
/* Takes what adapters have told. The conduit is lost if it was about that; true: a port has gone, so the adapters are
 * to be asked now. */
bool collet_verbs_handle_events(struct verbs_endpoint *verbs);

#endif
