/* The little cryptography there is: HMAC-SHA256 and random bytes, by the kernel and libcrypto, so that the rest of the
 * library names no crypto library. */
#ifndef COLLET_BOOTSTRAP_CRYPTO_H
#define COLLET_BOOTSTRAP_CRYPTO_H

#include <collet/collet.h>

enum { COLLET_MAC_BYTES = 32 };

collet_status collet_random(void *bytes, size_t count);

/* mac = HMAC-SHA256(key, data). A key of 0 bytes is legal: then it is a checksum, and proves nothing. */
collet_status collet_mac(
	uint8_t mac[COLLET_MAC_BYTES], const void *key, size_t key_bytes, const void *data, size_t bytes);

/* In constant time. */
bool collet_mac_equal(const uint8_t a[COLLET_MAC_BYTES], const uint8_t b[COLLET_MAC_BYTES]);

/* Overwrites a secret that is no longer needed, in a way that the compiler keeps. */
void collet_wipe(void *bytes, size_t count);

/* 2 * count hexadecimal digits and a NUL. */
void collet_hex(char *text, const uint8_t *bytes, size_t count);

#endif
