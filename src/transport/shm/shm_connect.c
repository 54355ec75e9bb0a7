/* Connects the two ends of an shm endpoint pair.
 *
 *	dialer			acceptor
 *	hello		->			nonce; descriptors: wake event, arena
 *			<-	reply		nonce; descriptors: region, wake event, arena; whether it has mapped
 *						the dialer's arena, and can read its other memory
 *	done		->			whether the dialer has mapped the acceptor's arena, and can read its
 *						other memory
 *
 * Between threads of one process no descriptors of region and arena are sent, but the addresses of the mappings, each
 * with a reference for the receiver. So both ends work on one mapping. The peer infos and the kernel (SO_PEERCRED) must
 * agree that this is one process. If the receiver closes without reading a mapping, it finds the mapping in its socket,
 * or the send has failed. The reference is released in either case. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fence.h"
#include "core/status.h"
#include "transport/shm/shm_endpoint.h"

static const uint64_t HELLO_MAGIC = UINT64_C(0x636f6c6c65740206);  /* "collet", layout 2, revision 6 */

enum { KIND_HELLO = 1, KIND_REPLY, KIND_DONE };

enum {
	HELLO_MAPPED = 1 << 0,   /* the sender of this hello has mapped the receiver's arena */
	HELLO_ARENA = 1 << 1,    /* has an arena: its descriptor comes along (or its address, to a thread) */
	HELLO_REGION = 1 << 2,   /* sends the region, likewise */
	HELLO_MEMBARRIER = 1 << 3, /* can run and receive membarriers: see shm_publish() */
	HELLO_CMA = 1 << 4       /* can read the receiver's memory */
};

static collet_status check_hello(const struct shm_endpoint *shm, uint32_t kind)
{
	if (shm->inbox.magic != HELLO_MAGIC || shm->inbox.type != kind)
		return collet_shm_fail_peer(
			shm, COLLET_ERR_TRANSPORT, "it uses another version of shm");
	return COLLET_OK;
}

/* ---- Received hellos ---------------------------------------------------------------------------------------- */

/* Maps the peer's arena, if it has one and it can be mapped. Without it, messages in arena memory are copied like any
 * other. */
static bool accept_arena(struct shm_endpoint *shm, uint32_t *next_fd)
{
	if (!(shm->inbox.flags & HELLO_ARENA))
		return false;
	if (shm->is_same_process) {
		shm->peer_arena_ref = (struct collet_arena_map *)(uintptr_t)shm->inbox.arena;
		shm->inbox.flags &= ~(uint32_t)HELLO_ARENA;  /* claimed; see discard_unread_hellos() */
	} else {
		const int fd = collet_shm_next_descriptor(shm, next_fd);
		if (fd < 0)
			return false;
		if (collet_arena_attach(shm->arena, fd, &shm->peer_arena_ref) != COLLET_OK)
			collet_log(
				shm->log, COLLET_LOG_INFO, "shm: %s; messages in it are copied", collet_last_error());
		close(fd);
	}
	shm->peer_arena = shm->peer_arena_ref;
	return shm->peer_arena != NULL;
}

static collet_status accept_wake(struct shm_endpoint *shm, uint32_t *next_fd)
{
	shm->peer_event_fd = collet_shm_next_descriptor(shm, next_fd);
	if (shm->peer_event_fd < 0)
		return collet_shm_fail_peer(shm, COLLET_ERR_TRANSPORT, "its wake descriptor is missing");
	return COLLET_OK;
}

/* Accepts what hello and reply have in common. */
static collet_status accept_common(struct shm_endpoint *shm, uint32_t *next_fd, uint32_t *flags)
{
	const collet_status status = accept_wake(shm, next_fd);
	if (status != COLLET_OK)
		return status;
	if (collet_shm_cma_probe(shm))
		*flags |= HELLO_CMA;
	/* A thread's arena comes as an address with a reference. It is sent only when it is sure to be received: the
	 * dialer's comes with done. */
	if (accept_arena(shm, next_fd))
		*flags |= HELLO_MAPPED;
	return COLLET_OK;
}

/* ---- The region --------------------------------------------------------------------------------------------- */

static void attach_region(struct shm_endpoint *shm, struct shm_region *region, unsigned side)
{
	shm->region = region;
	shm->mine = &region->side[side];
	shm->theirs = &region->side[!side];
	shm->out_cells = region->cells[side];
	shm->in_cells = region->cells[!side];
	shm->out_rtrs = region->rtrs[side];
	shm->in_rtrs = region->rtrs[!side];
	for (unsigned kind = 0; kind < SHM_POOLS; kind++)
		collet_shm_pool_init(&shm->pools[kind], region, (enum shm_pool_kind)kind, side);
}

static collet_status map_region(struct shm_endpoint *shm, int fd, unsigned side)
{
	struct shm_region *region = mmap(NULL, SHM_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (region == MAP_FAILED)
		return collet_shm_fail_system(shm, "mapping the shared region");
	attach_region(shm, region, side);
	return COLLET_OK;
}

/* Creates the region as a sealed memfd and maps it. The caller closes *fd. */
static collet_status create_region(struct shm_endpoint *shm, int *fd)
{
	*fd = memfd_create("collet-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return collet_shm_fail_system(shm, "memfd_create");
	if (ftruncate(*fd, SHM_REGION_BYTES) != 0 ||
		fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		const collet_status status = collet_shm_fail_system(shm, "sizing and sealing the shared region");
		close(*fd);
		return status;
	}
	const collet_status status = map_region(shm, *fd, 1);
	if (status != COLLET_OK)
		close(*fd);
	else
		atomic_init(&shm->region->refcount, shm->is_same_process ? 2 : 1);
	return status;
}

static void unref_region(struct shm_region *region, bool counted)
{
	/* Release: this end's accesses are over. Acquire, pairing with the other end's release: its accesses are over
	 * before the unmap. */
	if (!counted || atomic_fetch_sub_explicit(&region->refcount, 1, memory_order_acq_rel) == 1)
		munmap(region, SHM_REGION_BYTES);
}

static collet_status accept_region(struct shm_endpoint *shm, uint32_t *next_fd)
{
	if (!(shm->inbox.flags & HELLO_REGION))
		return collet_shm_fail_peer(shm, COLLET_ERR_TRANSPORT, "it sent no shared region");
	if (shm->is_same_process) {
		shm->inbox.flags &= ~(uint32_t)HELLO_REGION;   /* claimed; see discard_unread_hellos() */
		attach_region(shm, (struct shm_region *)(uintptr_t)shm->inbox.region, 0);
		return COLLET_OK;
	}
	struct stat file;
	const int fd = collet_shm_next_descriptor(shm, next_fd);
	collet_status status;
	if (fd < 0)
		return collet_shm_fail_peer(shm, COLLET_ERR_TRANSPORT, "the shared region's descriptor is missing");
	if (fstat(fd, &file) != 0 || file.st_size < SHM_REGION_BYTES || !(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK))
		status = collet_shm_fail_peer(
			shm, COLLET_ERR_TRANSPORT, "its shared region is not a sealed memfd of the right size");
	else
		status = map_region(shm, fd, 0);
	close(fd);
	return status;
}

/* ---- Connection states -------------------------------------------------------------------------------------- */

static struct shm_hello make_hello(const struct shm_endpoint *shm, uint32_t kind, uint32_t flags)
{
	return (struct shm_hello){ .magic = HELLO_MAGIC,
		.type = kind,
		.flags = flags | (shm->has_membarrier ? HELLO_MEMBARRIER : 0),
		.nonce = shm->nonce,
		.nonce_address = (uintptr_t)&shm->nonce };
}

/* Adds this rank's arena to a hello: as a descriptor, or as an address with a reference. */
static void add_arena(const struct shm_endpoint *shm, struct shm_hello *hello, int *fds, uint32_t *count)
{
	if (!shm->arena || !shm->arena->map)
		return;
	hello->flags |= HELLO_ARENA;
	if (shm->is_same_process) {
		collet_arena_map_ref(shm->arena->map);
		hello->arena = (uintptr_t)shm->arena->map;
	} else {
		fds[(*count)++] = shm->arena->fd;
	}
}

/* Releases the arena reference of a hello that was not sent. */
static void drop_arena(const struct shm_endpoint *shm, const struct shm_hello *hello)
{
	if (shm->is_same_process && hello->flags & HELLO_ARENA)
		collet_arena_map_unref(shm->arena->map);
}

static collet_status finish_connect(struct shm_endpoint *shm, uint32_t peer_flags)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = &shm->endpoint };
	if (epoll_ctl(shm->wake->epoll_fd, EPOLL_CTL_ADD, shm->socket, &event) != 0)
		return collet_shm_fail_system(shm, "epoll_ctl");
	shm->is_in_epoll = true;
	shm->is_mapped_by_peer = peer_flags & HELLO_MAPPED;
	shm->is_read_by_peer = shm->self->allows_cma && peer_flags & HELLO_CMA;
	shm->endpoint.peer_reads_arena = shm->is_mapped_by_peer;
	shm->has_membarrier = shm->has_membarrier && peer_flags & HELLO_MEMBARRIER;
	shm_distance_init(&shm->distance);
	shm->state = SHM_READY;
	char name[160];
	collet_log(shm->log, COLLET_LOG_INFO,
		"shm with %s, channel %u%s; arenas mapped: %s, by the peer: %s; the peer reads long messages: %s",
		collet_shm_peer_name(shm, name, sizeof(name)), shm->endpoint.channel,
		shm->is_same_process ? ", in one process" : "", shm->peer_arena ? "yes" : "no",
		shm->is_mapped_by_peer ? "yes" : "no", shm->is_read_by_peer ? "yes" : "no");
	return COLLET_OK;
}

static collet_status send_first_hello(struct shm_endpoint *shm)
{
	struct shm_hello hello = make_hello(shm, KIND_HELLO, 0);
	int fds[SHM_HELLO_DESCRIPTORS];
	uint32_t count = 0;
	fds[count++] = shm->wake->event_fd;
	if (!shm->is_same_process)
		add_arena(shm, &hello, fds, &count);
	const collet_status status = collet_shm_send_hello(shm, &hello, fds, count);
	if (status != COLLET_OK)
		return status;
	shm->state = SHM_AWAIT_REPLY;
	return COLLET_PENDING;
}

/* Fails because the socket is full. A new socket carries nothing else, so it will never have room. */
static collet_status fail_socket_full(const struct shm_endpoint *shm)
{
	return collet_shm_fail_peer(shm, COLLET_ERR_TRANSPORT, "the socket is full");
}

static collet_status send_reply(struct shm_endpoint *shm, uint32_t flags)
{
	struct shm_hello reply = make_hello(shm, KIND_REPLY, flags | HELLO_REGION);
	int fds[SHM_HELLO_DESCRIPTORS], region_fd;
	uint32_t count = 0;
	collet_status status = create_region(shm, &region_fd);
	if (status != COLLET_OK)
		return status;
	fds[count++] = shm->wake->event_fd;
	add_arena(shm, &reply, fds, &count);
	if (shm->is_same_process)
		reply.region = (uintptr_t)shm->region;
	else
		fds[count++] = region_fd;
	status = collet_shm_send_hello(shm, &reply, fds, count);
	close(region_fd);
	if (status == COLLET_OK)
		return COLLET_OK;
	/* Nobody else releases these references. */
	drop_arena(shm, &reply);
	if (shm->is_same_process)
		atomic_fetch_sub_explicit(&shm->region->refcount, 1, memory_order_relaxed);
	return status == COLLET_PENDING ? fail_socket_full(shm) : status;
}

static collet_status answer_hello(struct shm_endpoint *shm)
{
	uint32_t next_fd = 0, flags = 0;
	collet_status status = collet_shm_receive_hello(shm);
	if (status == COLLET_OK)
		status = check_hello(shm, KIND_HELLO);
	if (status == COLLET_OK)
		status = accept_common(shm, &next_fd, &flags);
	if (status == COLLET_OK)
		status = send_reply(shm, flags);
	if (status != COLLET_OK)
		return status;
	collet_shm_close_descriptors(shm);
	shm->inbox_bytes = 0;
	shm->state = SHM_AWAIT_DONE;
	return COLLET_PENDING;
}

static collet_status answer_reply(struct shm_endpoint *shm)
{
	uint32_t next_fd = 0, flags = 0;
	collet_status status = collet_shm_receive_hello(shm);
	if (status == COLLET_OK)
		status = check_hello(shm, KIND_REPLY);
	if (status == COLLET_OK)
		status = accept_common(shm, &next_fd, &flags);
	if (status == COLLET_OK)
		status = accept_region(shm, &next_fd);
	if (status != COLLET_OK)
		return status;
	struct shm_hello done = make_hello(shm, KIND_DONE, flags);
	int fds[SHM_HELLO_DESCRIPTORS];
	uint32_t count = 0, peer_flags = shm->inbox.flags;
	if (shm->is_same_process) {
		add_arena(shm, &done, fds, &count);
		/* The peer will use the mapping that it is sent. */
		peer_flags |= done.flags & HELLO_ARENA ? HELLO_MAPPED : 0;
	}
	status = collet_shm_send_hello(shm, &done, fds, count);
	if (status != COLLET_OK) {
		drop_arena(shm, &done);
		return status == COLLET_PENDING ? fail_socket_full(shm) : status;
	}
	collet_shm_close_descriptors(shm);
	shm->inbox_bytes = 0;
	return finish_connect(shm, peer_flags);
}

static collet_status accept_done(struct shm_endpoint *shm)
{
	uint32_t next_fd = 0;
	collet_status status = collet_shm_receive_hello(shm);
	if (status == COLLET_OK)
		status = check_hello(shm, KIND_DONE);
	if (status != COLLET_OK)
		return status;
	const uint32_t peer_flags = shm->inbox.flags;
	if (shm->is_same_process)
		(void)accept_arena(shm, &next_fd);
	collet_shm_close_descriptors(shm);
	shm->inbox_bytes = 0;
	return finish_connect(shm, peer_flags);
}

collet_status collet_shm_open_progress(struct collet_endpoint *endpoint)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	collet_status status = endpoint->status;
	if (status != COLLET_OK)
		return status;
	switch (shm->state) {
	case SHM_SEND_HELLO: status = send_first_hello(shm); break;
	case SHM_AWAIT_REPLY: status = answer_reply(shm); break;
	case SHM_AWAIT_HELLO: status = answer_hello(shm); break;
	case SHM_AWAIT_DONE: status = accept_done(shm); break;
	case SHM_READY: return COLLET_OK;
	case SHM_CLOSED: return COLLET_CANCELLED;
	}
	if (status != COLLET_OK && status != COLLET_PENDING)
		endpoint->status = status;
	return status;
}

/* ---- Opening and closing ------------------------------------------------------------------------------------ */

/* Checks that the peer has the user id of its peer info. Peer infos and kernel must agree that it is a thread of this
 * process. */
static collet_status check_credentials(struct shm_endpoint *shm)
{
	struct ucred credentials;
	socklen_t bytes = sizeof(credentials);
	if (getsockopt(shm->socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0)
		return collet_shm_fail_system(shm, "SO_PEERCRED");
	if (credentials.uid != shm->peer->uid) {
		char text[128];
		snprintf(text, sizeof(text), "the socket belongs to uid %u, the rank to uid %u", credentials.uid,
			shm->peer->uid);
		return collet_shm_fail_peer(shm, COLLET_ERR_AUTH, text);
	}
	shm->is_same_process = shm->self->process_id == shm->peer->process_id && credentials.pid == getpid();
	return COLLET_OK;
}

collet_status collet_shm_open(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	shm->self = config->self;
	shm->peer = config->peer;
	shm->arena = config->arena;
	shm->wake = config->wake;
	shm->log = config->log;
	shm->socket = config->socket;
	shm->peer_event_fd = -1;
	shm->owner_pid = getpid();
	shm->has_membarrier = collet_fence_register();
	shm->state = config->dialed ? SHM_SEND_HELLO : SHM_AWAIT_HELLO;
	endpoint->status = check_credentials(shm);
	if (endpoint->status == COLLET_OK)
		endpoint->status = collet_shm_cma_init(shm);
	return endpoint->status;
}

/* Releases mappings in hellos that have come or may still come, but were not used. */
static void discard_unread_hellos(struct shm_endpoint *shm)
{
	/* After this the peer's sends fail, and everything that it sent before is in the socket. */
	(void)shutdown(shm->socket, SHUT_RD);
	do {
		if (shm->inbox_bytes == sizeof(shm->inbox) && shm->is_same_process && shm->inbox.magic == HELLO_MAGIC) {
			if (shm->inbox.flags & HELLO_REGION)
				unref_region((struct shm_region *)(uintptr_t)shm->inbox.region, true);
			if (shm->inbox.flags & HELLO_ARENA)
				collet_arena_map_unref((struct collet_arena_map *)(uintptr_t)shm->inbox.arena);
		}
		if (shm->inbox_bytes == sizeof(shm->inbox))
			shm->inbox_bytes = 0;
	} while (collet_shm_receive_hello(shm) == COLLET_OK);
	collet_shm_close_descriptors(shm);
}

void collet_shm_free_resources(struct shm_endpoint *shm, bool forked)
{
	if (!forked && shm->is_in_epoll)
		(void)epoll_ctl(shm->wake->epoll_fd, EPOLL_CTL_DEL, shm->socket, NULL);
	if (!forked && !shm->is_in_epoll && shm->socket >= 0)
		discard_unread_hellos(shm);
	shm->is_in_epoll = false;
	collet_shm_close_descriptors(shm);
	if (shm->socket >= 0)
		close(shm->socket);
	if (shm->peer_event_fd >= 0)
		close(shm->peer_event_fd);
	shm->socket = shm->peer_event_fd = -1;
	/* In a forked child the list's lock may be held by a thread that does not exist there. */
	if (shm->peer_arena_ref && !forked)
		collet_arena_map_unref(shm->peer_arena_ref);
	shm->peer_arena = shm->peer_arena_ref = NULL;
	/* Both ends between threads use one mapping, and its reference count belongs to the parent: a child leaves it
	 * alone. */
	if (shm->region && !(forked && shm->is_same_process))
		unref_region(shm->region, shm->is_same_process);
	shm->region = NULL;
	shm->mine = shm->theirs = NULL;
	shm->nonce = 0;
}
