#include "bootstrap/crypto.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "core/status.h"

collet_status collet_random(void *bytes, size_t count)
{
	uint8_t *at = bytes;
	while (count) {
		ssize_t got = getrandom(at, count, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return collet_fail(COLLET_ERR_SYSTEM, "getrandom: %s", strerror(errno));
		at += got;
		count -= (size_t)got;
	}
	return COLLET_OK;
}

collet_status collet_mac(
	uint8_t mac[COLLET_MAC_BYTES], const void *key, size_t key_bytes, const void *data, size_t bytes)
{
	unsigned mac_bytes = 0;
	static const uint8_t no_key[1];  /* libcrypto needs a pointer even for 0 bytes */
	if (!HMAC(EVP_sha256(), key_bytes ? key : no_key, (int)key_bytes, data, bytes, mac, &mac_bytes) ||
	    mac_bytes != COLLET_MAC_BYTES)
		return collet_fail(COLLET_ERR_SYSTEM, "libcrypto cannot compute HMAC-SHA256");
	return COLLET_OK;
}

bool collet_mac_equal(const uint8_t a[COLLET_MAC_BYTES], const uint8_t b[COLLET_MAC_BYTES])
{
	return CRYPTO_memcmp(a, b, COLLET_MAC_BYTES) == 0;
}

void collet_wipe(void *bytes, size_t count)
{
	OPENSSL_cleanse(bytes, count);
}

void collet_hex(char *text, const uint8_t *bytes, size_t count)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < count; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	text[2 * count] = 0;
}
