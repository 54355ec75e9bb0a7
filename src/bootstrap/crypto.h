/* Wraps the cryptography that the library needs: HMAC-SHA256 of libcrypto and random bytes of the kernel. Nothing else
 * includes a crypto library's header. */
#ifndef COLLET_BOOTSTRAP_CRYPTO_H
#define COLLET_BOOTSTRAP_CRYPTO_H

#include <collet/collet.h>

enum { COLLET_MAC_BYTES = 32 };

collet_status collet_random(void *bytes, size_t count);

/* Computes mac = HMAC-SHA256(key, data). With a key of 0 bytes it is only a checksum. */
collet_status collet_mac(
	uint8_t mac[COLLET_MAC_BYTES], const void *key, size_t key_bytes, const void *data, size_t bytes);

/* Compares in constant time. */
bool collet_mac_equal(const uint8_t a[COLLET_MAC_BYTES], const uint8_t b[COLLET_MAC_BYTES]);

/* Overwrites a secret that is no longer needed. The compiler cannot remove it. */
void collet_wipe(void *bytes, size_t count);

/* Writes 2 * count hexadecimal digits and a NUL. */
void collet_hex(char *text, const uint8_t *bytes, size_t count);

#endif
