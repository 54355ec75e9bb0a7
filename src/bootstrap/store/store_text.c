/* Carries the addresses of rank 0 in a file of a shared folder, or in the user's own key-value store. Both may still
 * contain the text of an earlier run of the same job that was killed. That does no harm: it names a random socket that
 * no longer exists, or a port where nobody answers or the handshake fails. Clients then read the store again, until
 * rank 0 of this run has overwritten the text. */
#include "bootstrap/store/store_text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bootstrap/crypto.h"
#include "core/status.h"

bool collet_root_addresses_write(const struct collet_root_addresses *addresses, char *text, size_t bytes)
{
	char address[INET6_ADDRSTRLEN];
	int used = snprintf(text, bytes, "collet-place 1\nhost %016" PRIx64 "\nunix %s\n", addresses->host_id,
		addresses->has_unix ? addresses->unix_name : "-");
	for (uint32_t i = 0; i < addresses->tcp_count && used >= 0 && (size_t)used < bytes; i++) {
		const struct collet_address *at = &addresses->tcp[i];
		const void *raw = at->any.sa_family == AF_INET ? (const void *)&at->v4.sin_addr : &at->v6.sin6_addr;
		inet_ntop(at->any.sa_family, raw, address, sizeof(address));
		used += snprintf(text + used, bytes - (size_t)used, "tcp %s %u\n", address, collet_address_port(at));
	}
	if (addresses->secret[0] && used >= 0 && (size_t)used < bytes)
		used += snprintf(text + used, bytes - (size_t)used, "secret %s\n", addresses->secret);
	if (used >= 0 && (size_t)used < bytes)
		used += snprintf(text + used, bytes - (size_t)used, "end\n");
	return used >= 0 && (size_t)used < bytes;
}

static bool read_tcp_line(struct collet_root_addresses *addresses, const char *line)
{
	char address[INET6_ADDRSTRLEN];
	unsigned port;
	uint8_t raw[16];
	int length = 0;
	if (addresses->tcp_count == COLLET_MAX_ROOT_ADDRESSES ||
		sscanf(line, "tcp %45s %5u%n", address, &port, &length) != 2 || line[length] || port == 0 ||
		port > UINT16_MAX)
		return false;
	struct collet_address *at = &addresses->tcp[addresses->tcp_count];
	if (inet_pton(AF_INET, address, raw) == 1)
		collet_address_ip(at, AF_INET, raw, 0, (uint16_t)port);
	else if (inet_pton(AF_INET6, address, raw) == 1)
		collet_address_ip(at, AF_INET6, raw, 0, (uint16_t)port);
	else
		return false;
	addresses->tcp_count++;
	return true;
}

bool collet_root_addresses_read(struct collet_root_addresses *addresses, const char *text)
{
	char line[160];
	unsigned version = 0;
	bool ended = false;
	memset(addresses, 0, sizeof(*addresses));
	for (uint32_t number = 0; *text && !ended; number++) {
		size_t length = strcspn(text, "\n");
		if (length >= sizeof(line) || text[length] != '\n')
			return false;
		memcpy(line, text, length);
		line[length] = 0;
		text += length + 1;
		if (number == 0) {
			if (sscanf(line, "collet-place %u", &version) != 1 || version != 1)
				return false;
		} else if (strncmp(line, "host ", 5) == 0) {
			addresses->host_id = strtoull(line + 5, NULL, 16);
		} else if (strncmp(line, "unix ", 5) == 0 && strlen(line + 5) < sizeof(addresses->unix_name)) {
			addresses->has_unix = strcmp(line + 5, "-") != 0;
			snprintf(addresses->unix_name, sizeof(addresses->unix_name), "%.63s", line + 5);
		} else if (strncmp(line, "secret ", 7) == 0 && strlen(line + 7) < sizeof(addresses->secret)) {
			snprintf(addresses->secret, sizeof(addresses->secret), "%.64s", line + 7);
		} else if (strcmp(line, "end") == 0) {
			ended = true;
		} else if (!read_tcp_line(addresses, line)) {
			return false;
		}
	}
	return ended;
}

static collet_status write_addresses(struct collet_store *store, const struct collet_root_addresses *addresses)
{
	if (!collet_root_addresses_write(addresses, store->announced, sizeof(store->announced)))
		return collet_fail(COLLET_ERR_SYSTEM, "the address of rank 0 is too long for the store");
	return COLLET_OK;
}

/* ---- A shared folder ---- */

static collet_status file_read(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT || errno == ESTALE ? COLLET_PENDING :
			collet_fail(COLLET_ERR_TRANSPORT, "cannot read %s: %s", path, strerror(errno));
	ssize_t got = read(fd, text, bytes - 1);
	close(fd);
	if (got < 0)
		return errno == ESTALE ? COLLET_PENDING :
			collet_fail(COLLET_ERR_TRANSPORT, "cannot read %s: %s", path, strerror(errno));
	text[got] = 0;
	return COLLET_OK;
}

static collet_status file_find(struct collet_store *store, struct collet_root_addresses *addresses)
{
	char text[1024];
	collet_status status = file_read(store->key, text, sizeof(text));
	if (status)
		return status;
	return collet_root_addresses_read(addresses, text) ? COLLET_OK : COLLET_PENDING;
}

/* Writes a temporary file and renames it, so nobody reads half of it. */
static collet_status file_announce(struct collet_store *store, const struct collet_root_addresses *addresses)
{
	char temporary[400];
	collet_status status = write_addresses(store, addresses);
	if (status)
		return status;
	snprintf(temporary, sizeof(temporary), "%s.%ld", store->key, (long)getpid());
	unlink(temporary);
	int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, store->launch->secret_bytes ? 0644 : 0600);
	if (fd < 0)
		return collet_fail(COLLET_ERR_SYSTEM, "cannot write %s: %s", temporary, strerror(errno));
	const size_t bytes = strlen(store->announced);
	const bool written = write(fd, store->announced, bytes) == (ssize_t)bytes && fsync(fd) == 0;
	if (close(fd) < 0 || !written || rename(temporary, store->key) < 0) {
		status = collet_fail(COLLET_ERR_SYSTEM, "cannot write %s: %s", store->key, strerror(errno));
		unlink(temporary);
	}
	return status;
}

static void file_withdraw(struct collet_store *store)
{
	char text[1024];
	if (store->announced[0] && file_read(store->key, text, sizeof(text)) == COLLET_OK &&
	    strcmp(text, store->announced) == 0)
		unlink(store->key);
}

collet_status collet_store_file_init(struct collet_store *store)
{
	static const struct collet_store_kind kind = {
		.name = "file",
		.is_shared = true,
		.find = file_find,
		.announce = file_announce,
		.withdraw = file_withdraw,
	};
	const char *folder = store->launch->store + strlen("file://");
	uint8_t mac[COLLET_MAC_BYTES];
	char hex[33];
	struct stat info;
	if (*folder != '/' || stat(folder, &info) < 0 || !S_ISDIR(info.st_mode))
		return collet_fail(COLLET_ERR_CONFIG,
			"the store %s does not name an existing folder (file:///FOLDER, seen by all "
			"ranks)",
			store->launch->store);
	collet_status status = collet_mac(mac, "file", 4, store->launch->job, strlen(store->launch->job));
	if (status)
		return status;
	collet_hex(hex, mac, 16);
	int length = snprintf(store->key, sizeof(store->key), "%s/collet-%s", folder, hex);
	if (length < 0 || (size_t)length >= sizeof(store->key))
		return collet_fail(COLLET_ERR_CONFIG, "the store %s: the path is too long", store->launch->store);
	store->kind = &kind;
	return COLLET_OK;
}

/* ---- The caller's own store ---- */

static collet_status callback_find(struct collet_store *store, struct collet_root_addresses *addresses)
{
	const struct collet_store_callbacks *callbacks = store->launch->store_callbacks;
	char text[1024];
	size_t bytes = 0;
	if (callbacks->get(callbacks->context, store->key, text, sizeof(text) - 1, &bytes, 500000000) != 0)
		return COLLET_PENDING;
	if (bytes >= sizeof(text))
		return COLLET_PENDING;
	text[bytes] = 0;
	collet_status status = collet_root_addresses_read(addresses, text) ? COLLET_OK : COLLET_PENDING;
	/* The text of an earlier run has another secret. */
	if (status == COLLET_OK && addresses->secret[0] && (!store->launch->secret_bytes || store->hands_secret_on)) {
		store->hands_secret_on = true;
		status = collet_secret_use(store->launch, addresses->secret);
	}
	collet_wipe(text, sizeof(text));
	collet_wipe(addresses->secret, sizeof(addresses->secret));
	return status;
}

static collet_status callback_announce(struct collet_store *store, const struct collet_root_addresses *addresses)
{
	const struct collet_store_callbacks *callbacks = store->launch->store_callbacks;
	struct collet_root_addresses announced = *addresses;
	memcpy(announced.secret, store->made_secret, sizeof(announced.secret));
	const collet_status status = write_addresses(store, &announced);
	collet_wipe(announced.secret, sizeof(announced.secret));
	if (status)
		return status;
	if (callbacks->set(callbacks->context, store->key, store->announced, strlen(store->announced)) != 0)
		return collet_fail(COLLET_ERR_RENDEZVOUS, "the caller's store refused to set %s", store->key);
	return COLLET_OK;
}

static void callback_withdraw(struct collet_store *store)
{
	const struct collet_store_callbacks *callbacks = store->launch->store_callbacks;
	if (!store->announced[0])
		return;
	/* If that fails, what stays does no harm: see above. */
	if (callbacks->remove)
		(void)callbacks->remove(callbacks->context, store->key);
	else
		(void)callbacks->set(callbacks->context, store->key, "", 0);
}

collet_status collet_store_callback_init(struct collet_store *store)
{
	static const struct collet_store_kind kind = {
		.name = "callbacks", .is_shared = true, .find = callback_find, .announce = callback_announce,
		.withdraw = callback_withdraw,
	};
	const struct collet_store_callbacks *callbacks = store->launch->store_callbacks;
	if (!callbacks->set || !callbacks->get)
		return collet_fail(COLLET_ERR_ARGUMENT, "store_callbacks needs both set and get");
	snprintf(store->key, sizeof(store->key), "collet/%s/rank0", store->launch->job);
	store->kind = &kind;
	const bool lacks_secret = store->launch->rank == 0 && !store->launch->secret_bytes;
	return lacks_secret ? collet_secret_make(store->launch, store->made_secret) : COLLET_OK;
}
