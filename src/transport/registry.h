/* Which transports a rank has: those built in, those of modules, and wrappers around either. What a transport is:
 * <collet/transport.h>, the contract. */
#ifndef COLLET_TRANSPORT_REGISTRY_H
#define COLLET_TRANSPORT_REGISTRY_H

#include <collet/transport.h>

#include <pthread.h>

#include "core/log.h"
#include "topology/locality.h"

/* Every transport built in; NULL ends. */
extern const struct collet_transport *const collet_transports[];

/* What transports may call. */
extern const struct collet_services collet_transport_services;

enum { COLLET_TRANSPORTS_MAX = 1 + COLLET_PEER_TRANSPORTS };

/* A transport that a rank has, ready to open conduits. */
struct collet_transport_instance {
	char name[COLLET_TRANSPORT_NAME_BYTES];  /* "tcp", "faulty:tcp" */
	const struct collet_transport *transport;  /* what conduits point to: the built-in table, or own */
	struct collet_transport table;   /* a module's, as far as it goes; or a wrapper's */
	struct collet_device *device;    /* NULL: it has none */
	struct collet_device_info info;
	void *module;                    /* of dlopen(); NULL: built in */
	struct collet_transport_instance *inner; /* what a wrapper wraps; else NULL */
};

/* Memory that devices know of. */
struct collet_registered_memory {
	const void *base;
	uint64_t bytes;
	void *registration[COLLET_TRANSPORTS_MAX]; /* by offer; NULL: not with this one */
};

/* The transports of one rank, best first: self, then by priority. Which are offered is fixed from open to close. */
struct collet_transport_set {
	uint32_t count;
	struct collet_transport_instance *instances[COLLET_TRANSPORTS_MAX];
	bool has_registration;           /* some device wants to know memory */
	uint32_t owner_pid;              /* a forked child leaves the devices alone */
	pthread_mutex_t lock;            /* of what follows */
	struct collet_registered_memory *registered;
	size_t registered_count, registered_capacity;
};

/* text as in COLLET_TRANSPORT: "shm,faulty:tcp"; then these, where one that is not to be had is the error. NULL: all
 * that are built in and all modules that can be found and have a device. card: this rank's, which gets the list. On
 * failure nothing is left. COLLET_ERR_CONFIG, or what a device said. */
COLLET_MUST_USE collet_status collet_transports_open(struct collet_transport_set *set, const char *text,
	const struct collet_device_config *config, struct collet_peer_info *peer_info);
/* After every conduit has been closed. forked: in a child, which only frees its copies. Safe on a zeroed set. */
void collet_transports_close(struct collet_transport_set *set, bool forked);

/* NULL: this rank does not have it. */
const struct collet_transport_instance *collet_transports_find(
	const struct collet_transport_set *set, const char *name, uint32_t *index);
/* Both have it, and it reaches; of self: the same rank. */
bool collet_transport_instance_reaches(const struct collet_transport_instance *instance,
	const struct collet_peer_info *self, const struct collet_peer_info *peer);
/* Does this rank offer a transport of this name, or a wrapper around it? */
bool collet_peer_info_offers(const struct collet_peer_info *peer_info, const char *name);

/* Has its rank no others than itself, shm and tcp, wrapped or not? */
bool collet_peer_info_lacks_rdma(const struct collet_peer_info *peer_info);

/* Memory that transfers will lie in, told to the devices that want to know; and taken back, before it goes. Failing for
 * GPU memory is an error; else it only costs speed. Any thread. */
COLLET_MUST_USE collet_status collet_transports_register(
	struct collet_transport_set *set, const struct collet_log *log, const struct collet_memory *memory);
void collet_transports_deregister(struct collet_transport_set *set, const void *base);
/* Of GPU memory: does a transport know all of it that takes messages there? Any thread. */
bool collet_transports_gpu_registered(struct collet_transport_set *set, const void *base, uint64_t bytes);
/* Is what these two ranks try first one that does? Pure. */
bool collet_transports_accept_gpu(const struct collet_transport_set *set, const struct collet_peer_info *self,
	const struct collet_peer_info *peer);

/* ---- module_loader.c */

/* The folders in which modules are looked for, each in its turn; false: there is no i-th. */
bool collet_module_folder(uint32_t i, char *folder, size_t bytes);
/* Loads the module of this name from the first folder whose file is one, into *offer: name, own, module. Files that
 * are no module are logged; if there is no other, the sentence says what is wrong with the first. */
COLLET_MUST_USE collet_status collet_module_load(
	struct collet_transport_instance *instance, const char *name, const struct collet_log *log);
/* The names of all files that may be modules, in order of folders, then of the alphabet, none twice. Freed by the
 * caller; *count of them. */
char (*collet_module_names(uint32_t *count))[COLLET_TRANSPORT_NAME_BYTES];

/* ---- wrap/: each fills offer->own and ->device around offer->inner, which is open. */
COLLET_MUST_USE collet_status collet_trace_wrap(
	struct collet_transport_instance *instance, const struct collet_device_config *config);
COLLET_MUST_USE collet_status collet_faulty_wrap(
	struct collet_transport_instance *instance, const struct collet_device_config *config);

#endif
