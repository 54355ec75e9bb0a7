#include "transport/transport.h"

#include <string.h>

#include "core/status.h"
#include "transport/transports-built.h"

extern const struct collet_transport collet_self_transport;
#ifdef COLLET_HAVE_SHM
extern const struct collet_transport collet_shm_transport;
#endif
#ifdef COLLET_HAVE_TCP
extern const struct collet_transport collet_tcp_transport;
#endif

/* Adding a transport is a folder and a line here. */
const struct collet_transport *const collet_transports[] = {
#ifdef COLLET_HAVE_SELF
	&collet_self_transport,
#endif
#ifdef COLLET_HAVE_SHM
	&collet_shm_transport,
#endif
#ifdef COLLET_HAVE_TCP
	&collet_tcp_transport,
#endif
	NULL,
};

static uint32_t find(const char *name, size_t length)
{
	for (uint32_t i = 0; collet_transports[i]; i++)
		if (strlen(collet_transports[i]->name) == length &&
			memcmp(collet_transports[i]->name, name, length) == 0)
			return (uint32_t)1 << i;
	return 0;
}

collet_status collet_transports_parse(const char *text, uint32_t *bits)
{
	uint32_t parsed = find("self", 4);
	if (!text) {
		for (uint32_t i = 0; collet_transports[i]; i++)
			parsed |= (uint32_t)1 << i;
		*bits = parsed;
		return COLLET_OK;
	}
	for (const char *name = text;;) {
		const size_t length = strcspn(name, ",");
		const uint32_t bit = find(name, length);
		if (!bit) {
			char offered[128] = "";
			for (uint32_t i = 0; collet_transports[i]; i++) {
				strncat(offered, i ? ", " : "", sizeof(offered) - strlen(offered) - 1);
				strncat(offered, collet_transports[i]->name, sizeof(offered) - strlen(offered) - 1);
			}
			return collet_fail(COLLET_ERR_CONFIG,
				"there is no transport \"%.*s\" (in \"%s\"); this build has %s", (int)length, name,
				text, offered);
		}
		parsed |= bit;
		if (!name[length])
			break;
		name += length + 1;
	}
	*bits = parsed;
	return COLLET_OK;
}
