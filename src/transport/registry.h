/* Holds the transports of a rank: those built in, those of modules, and wrappers around either. <collet/transport.h>
 * says what a transport is. */
#ifndef COLLET_TRANSPORT_REGISTRY_H
#define COLLET_TRANSPORT_REGISTRY_H

#include <collet/transport.h>

#include <pthread.h>

#include "core/log.h"
#include "topology/locality.h"

/* All built-in transports, terminated by NULL. */
extern const struct collet_transport *const collet_transports[];

/* The services that transports may call. */
extern const struct collet_services collet_transport_services;

enum { COLLET_TRANSPORTS_MAX = 1 + COLLET_PEER_TRANSPORTS };

/* A transport that a rank has, ready to open endpoints. */
struct collet_transport_instance {
	char name[COLLET_TRANSPORT_NAME_BYTES];  /* for example "tcp", "faulty:tcp" */
	const struct collet_transport *transport;  /* the table that endpoints point to: the built-in one, or `table` */
	struct collet_transport table;   /* a copy of a module's table, or a wrapper's table */
	struct collet_device *device;    /* NULL if it has none */
	struct collet_device_info info;
	void *module;                    /* from dlopen(); NULL if built in */
	struct collet_transport_instance *inner; /* the transport that a wrapper wraps; else NULL */
};

/* Memory that is registered with devices. */
struct collet_registered_memory {
	const void *base;
	uint64_t bytes;
	void *registration[COLLET_TRANSPORTS_MAX]; /* by instance; NULL if not registered there */
};

/* The transports of one rank, best first: self, then by priority. The list is fixed from open to close. */
struct collet_transport_set {
	uint32_t count;
	struct collet_transport_instance *instances[COLLET_TRANSPORTS_MAX];
	bool has_registration;           /* some transport registers memory */
	uint32_t owner_pid;              /* a forked child leaves the devices alone */
	pthread_mutex_t lock;            /* protects what follows */
	struct collet_registered_memory *registered;
	size_t registered_count, registered_capacity;
};

/* Opens the transports of a rank, and lists them in peer_info, which is this rank's. text: as in COLLET_TRANSPORT, for
 * example "shm,faulty:tcp"; a listed transport that is not available is an error. NULL: all built-in transports, and
 * all modules that load and have a device. On failure nothing is left behind. COLLET_ERR_CONFIG, or the status of a
 * device. */
COLLET_MUST_USE collet_status collet_transports_open(struct collet_transport_set *set, const char *text,
	const struct collet_device_config *config, struct collet_peer_info *peer_info);
/* Closes the transports, after every endpoint has been closed. forked: in a child, frees only the child's copies. Safe
 * on a zeroed set. */
void collet_transports_close(struct collet_transport_set *set, bool forked);

/* Returns the transport of this name, and its index unless index is NULL; NULL if this rank does not have it. */
const struct collet_transport_instance *collet_transports_find(
	const struct collet_transport_set *set, const char *name, uint32_t *index);
/* True if both ranks have the transport and it reaches the peer. For self: if they are the same rank. */
bool collet_transport_instance_reaches(const struct collet_transport_instance *instance,
	const struct collet_peer_info *self, const struct collet_peer_info *peer);
/* True if the rank offers a transport of this name, or a wrapper around it. */
bool collet_peer_info_offers(const struct collet_peer_info *peer_info, const char *name);

/* True if the rank offers only self, shm and tcp, wrapped or not. */
bool collet_peer_info_lacks_rdma(const struct collet_peer_info *peer_info);

/* Registers memory of future transfers with the devices that want to know it; deregister must come before the memory is
 * freed. A failure is an error for GPU memory; otherwise it only costs speed. Any thread. */
COLLET_MUST_USE collet_status collet_transports_register(
	struct collet_transport_set *set, const struct collet_log *log, const struct collet_memory *memory);
void collet_transports_deregister(struct collet_transport_set *set, const void *base);
/* True if some transport that accepts messages in GPU memory has registered all of this range. Any thread. */
bool collet_transports_gpu_registered(struct collet_transport_set *set, const void *base, uint64_t bytes);
/* True if the first transport that these two ranks try accepts messages in GPU memory. Pure. */
bool collet_transports_accept_gpu(const struct collet_transport_set *set, const struct collet_peer_info *self,
	const struct collet_peer_info *peer);

/* ---- module_loader.c */

/* Writes the i-th folder in which modules are searched for. False if there is no i-th one. */
bool collet_module_folder(uint32_t i, char *folder, size_t bytes);
/* Loads the module of this name into *instance (table, module), from the first folder that has a usable file. Unusable
 * files are logged. If no folder has a usable one, the error sentence is about the first file. */
COLLET_MUST_USE collet_status collet_module_load(
	struct collet_transport_instance *instance, const char *name, const struct collet_log *log);
/* Returns the names of all files that may be modules: in order of folders, then alphabetically, without duplicates.
 * *count is their number. The caller frees the array. */
char (*collet_module_names(uint32_t *count))[COLLET_TRANSPORT_NAME_BYTES];

#endif
