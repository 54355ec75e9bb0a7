/* Fills the table of services that transports may call. A module links to no symbol of the library and uses only this
 * table. */
#include "core/config.h"
#include "core/status.h"
#include "transport/arena.h"
#include "transport/registry.h"

static bool log_enabled(const struct collet_log *log, enum collet_log_level level)
{
	return log && level != COLLET_LOG_NONE && level <= log->level;
}

static void arena_span(const struct collet_arena *arena, void **first, uint64_t *bytes, int *fd)
{
	*first = arena->base;
	*bytes = arena->bytes;
	*fd = arena->fd;
}

const struct collet_services collet_transport_services = {
	.bytes = sizeof(struct collet_services),
	.version = COLLET_TRANSPORT_VERSION,
	.fail = collet_fail,
	.last_error = collet_last_error,
	.log = collet_log,
	.log_enabled = log_enabled,
	.option = collet_env,
	.arena_span = arena_span,
	.arena_alloc = collet_arena_alloc,
	.arena_free = collet_arena_free,
};
