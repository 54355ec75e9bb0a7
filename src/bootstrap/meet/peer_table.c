#include "bootstrap/meet/peer_table.h"

#include <stdlib.h>
#include <string.h>

#include "bootstrap/crypto.h"
#include "core/status.h"

struct peer_table_header {
	uint32_t outcome;        /* enum collet_status */
	uint32_t size;           /* number of peer infos; 0 on failure */
	uint64_t blob_bytes;
	uint32_t error_text_bytes;
	uint32_t reserved0;
	uint8_t nonce[32];
};

collet_status collet_session_key(uint8_t key[32], const struct collet_launch *launch, const uint8_t nonce[32])
{
	static const char label[] = "collet session key";
	uint8_t text[sizeof(label) + 32];
	memcpy(text, label, sizeof(label));
	memcpy(text + sizeof(label), nonce, 32);
	return collet_mac(key, launch->secret, launch->secret_bytes, text, sizeof(text));
}

collet_status collet_peer_table_pack(struct collet_frame *frame, void **data, collet_status outcome,
	const char *error_text, const struct collet_bootstrap *bootstrap, uint32_t size, const uint8_t nonce[32])
{
	struct peer_table_header head = { .outcome = (uint32_t)outcome };
	if (outcome == COLLET_OK) {
		head.size = size;
		head.blob_bytes = bootstrap->blob_bytes;
		memcpy(head.nonce, nonce, sizeof(head.nonce));
	} else {
		head.error_text_bytes = (uint32_t)strnlen(error_text, COLLET_ERROR_BYTES - 1);
	}
	const size_t infos_bytes = (size_t)head.size * sizeof(struct collet_peer_info);
	if (infos_bytes > COLLET_MAX_PEER_TABLE_BYTES / 2 || head.blob_bytes > COLLET_MAX_PEER_TABLE_BYTES / 4)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "the peer table of %u ranks is too long", size);
	const size_t bytes = sizeof(head) + infos_bytes + (size_t)head.blob_bytes + head.error_text_bytes;
	uint8_t *at = malloc(bytes);
	if (!at)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the table of %u ranks", size);
	*data = at;
	*frame = (struct collet_frame){ .kind = COLLET_FRAME_PEER_TABLE, .bytes = (uint32_t)bytes };
	memcpy(at, &head, sizeof(head));
	at += sizeof(head);
	if (infos_bytes)
		memcpy(at, bootstrap->peer_infos, infos_bytes);
	at += infos_bytes;
	if (head.blob_bytes)
		memcpy(at, bootstrap->blob, (size_t)head.blob_bytes);
	at += head.blob_bytes;
	if (head.error_text_bytes)
		memcpy(at, error_text, head.error_text_bytes);
	return COLLET_OK;
}

static collet_status malformed(void)
{
	return collet_fail(COLLET_ERR_RENDEZVOUS, "rank 0 sent an invalid peer table");
}

collet_status collet_peer_table_unpack(const struct collet_frame *frame, const void *data,
	const struct collet_launch *launch, struct collet_bootstrap *bootstrap)
{
	struct peer_table_header head;
	if (frame->bytes < sizeof(head))
		return malformed();
	memcpy(&head, data, sizeof(head));
	const uint8_t *at = (const uint8_t *)data + sizeof(head);
	uint64_t left = frame->bytes - sizeof(head);
	const uint64_t infos_bytes = (uint64_t)head.size * sizeof(struct collet_peer_info);
	if (infos_bytes > left || head.blob_bytes > left - infos_bytes ||
		head.error_text_bytes != left - infos_bytes - head.blob_bytes ||
		head.error_text_bytes >= COLLET_ERROR_BYTES)
		return malformed();
	if (head.outcome != COLLET_OK) {
		char error_text[COLLET_ERROR_BYTES];
		memcpy(error_text, at + infos_bytes + head.blob_bytes, head.error_text_bytes);
		error_text[head.error_text_bytes] = 0;
		return collet_fail_copy(head.outcome < COLLET_STATUS_COUNT && head.outcome != COLLET_PENDING ?
			(collet_status)head.outcome : COLLET_ERR_RENDEZVOUS, error_text);
	}
	if (head.size != launch->size)
		return malformed();
	bootstrap->peer_infos = malloc((size_t)infos_bytes);
	bootstrap->blob = malloc(head.blob_bytes ? (size_t)head.blob_bytes : 1);
	if (!bootstrap->peer_infos || !bootstrap->blob)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the table of %u ranks", head.size);
	memcpy(bootstrap->peer_infos, at, (size_t)infos_bytes);
	memcpy(bootstrap->blob, at + infos_bytes, (size_t)head.blob_bytes);
	bootstrap->blob_bytes = (size_t)head.blob_bytes;
	for (uint32_t r = 0; r < head.size; r++) {
		struct collet_peer_info *info = &bootstrap->peer_infos[r];
		if (info->rank != r)
			return malformed();
		info->host[sizeof(info->host) - 1] = 0;
		info->unix_name[sizeof(info->unix_name) - 1] = 0;
		info->settings[sizeof(info->settings) - 1] = 0;
	}
	return collet_session_key(bootstrap->session_key, launch, head.nonce);
}
