/* Reads long messages in the sender's memory by process_vm_readv ("cross-memory attach"), with one copy instead of two.
 *
 * It pays where a write to units whose lines the other core has is slow: on Intel's processors, where such a write and
 * the read after it are as slow as this one read (docs/design/shared-memory.md). What the receiver reduces still comes
 * in units, where it is reduced in place.
 *
 * Whether the kernel allows it depends on user ids, capabilities, namespaces and settings that no peer info contains.
 * So each end tries to read the other's nonce before it says that it can. The last read of a message comes with the
 * nonce too: the process that was read must still be the one of the connection setup. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/status.h"
#include "transport/shm/shm_receive.h"

collet_status collet_shm_cma_init(struct shm_endpoint *shm)
{
	if (getrandom(&shm->nonce, sizeof(shm->nonce), 0) != (ssize_t)sizeof(shm->nonce))
		return collet_shm_fail_system(shm, "getrandom");
	return COLLET_OK;
}

/* True if the process is of this one's user. */
static bool has_own_user(pid_t pid)
{
	char path[32];
	struct stat process;
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	return stat(path, &process) == 0 && process.st_uid == geteuid();
}

/* True if this process can read the memory of pid, and it is the peer. Stores pid as the peer's then. */
static bool probe_process(struct shm_endpoint *shm, pid_t pid)
{
	uint64_t nonce = 0;
	struct iovec into = { &nonce, sizeof(nonce) };
	struct iovec from = { (void *)(uintptr_t)shm->peer_nonce_address, sizeof(nonce) };
	if (pid <= 0 || process_vm_readv(pid, &into, 1, &from, 1, 0) != (ssize_t)sizeof(nonce) ||
		nonce != shm->peer_nonce)
		return false;
	shm->peer_pid = pid;
	return true;
}

/* Tries the kernel's number of the peer. If another process made the socket, tries that of the peer info. A peer could
 * name a process there that only this rank may read, so it must be of the same user. */
bool collet_shm_cma_probe(struct shm_endpoint *shm)
{
	struct ucred credentials;
	socklen_t bytes = sizeof(credentials);
	if (shm->is_same_process || !shm->peer->allows_cma)
		return false;
	shm->peer_nonce = shm->inbox.nonce;
	shm->peer_nonce_address = shm->inbox.nonce_address;
	if (getsockopt(shm->socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) == 0 &&
		probe_process(shm, credentials.pid))
		return true;
	return has_own_user((pid_t)shm->peer->pid) && probe_process(shm, (pid_t)shm->peer->pid);
}

/* True if the kernel reads the first and the last byte of this range of this process. */
static bool probe_own(struct shm_endpoint *shm, uintptr_t first, uintptr_t end)
{
	unsigned char bytes[2];
	struct iovec into = { bytes, sizeof(bytes) };
	struct iovec from[2] = { { (void *)first, 1 }, { (void *)(end - 1), 1 } };
	shm_count(&shm->endpoint.stats.system_calls, 1);
	return process_vm_readv(shm->owner_pid, &into, 1, from, 2, 0) == (ssize_t)sizeof(bytes);
}

bool collet_shm_cma_is_readable(struct shm_endpoint *shm, const void *data, uint64_t bytes)
{
	struct shm_own_range *range = &shm->own_range;
	const uintptr_t first = (uintptr_t)data, end = first + bytes;
	if (first >= range->first && end <= range->end)
		return range->is_readable;
	const bool is_readable = probe_own(shm, first, end);
	/* The segments of a call follow each other. */
	const bool continues = is_readable && range->is_readable && first == range->end;
	*range = (struct shm_own_range){ continues ? range->first : first, end, is_readable };
	return is_readable;
}

/* Fails the endpoint after a read has failed. error: errno; 0 if another process has the peer's number now. */
static bool fail_read(struct shm_endpoint *shm, int error)
{
	char name[160];
	if (shm_is_peer_closed(shm)) {
		(void)collet_shm_lose_peer(shm, "has closed its connection while its message was read");
	} else if (error == ESRCH || error == 0 || collet_shm_is_peer_gone(shm)) {
		(void)collet_shm_lose_peer(shm, "has died while its message was read");
	} else {
		(void)collet_fail(COLLET_ERR_TRANSPORT,
			"shm: reading the memory of %s: %s. If the kernel cannot read this memory, or no longer "
			"allows it, set COLLET_SHM_CMA=0 there",
			collet_shm_peer_name(shm, name, sizeof(name)), strerror(error));
		(void)collet_shm_fail(shm, COLLET_ERR_TRANSPORT);
	}
	return false;
}

bool collet_shm_cma_read(struct shm_endpoint *shm, uint64_t at, uint64_t bytes)
{
	const struct shm_incoming *incoming = &shm->incoming;
	const bool is_last = at + bytes == incoming->bytes;
	uint64_t nonce = 0;
	struct iovec into[2] = {
		{ (unsigned char *)shm->receives.first->data + at, bytes },
		{ &nonce, sizeof(nonce) },
	};
	struct iovec from[2] = {
		{ (void *)(uintptr_t)(incoming->address + at), bytes },
		{ (void *)(uintptr_t)shm->peer_nonce_address, sizeof(nonce) },
	};
	const unsigned parts = is_last ? 2 : 1;
	shm_count(&shm->endpoint.stats.system_calls, 1);
	const ssize_t got = process_vm_readv(shm->peer_pid, into, parts, from, parts, 0);
	if (got != (ssize_t)(bytes + (is_last ? sizeof(nonce) : 0)))
		return fail_read(shm, got < 0 ? errno : EFAULT);
	return !is_last || nonce == shm->peer_nonce || fail_read(shm, 0);
}
