#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The only thread-local variable of the library: collet_last_error() is per thread. */
static _Thread_local char last_error[COLLET_ERROR_BYTES];

const char *collet_last_error(void)
{
	return last_error;
}

collet_status collet_fail(collet_status status, const char *format, ...)
{
	char error_text[COLLET_ERROR_BYTES]; /* a copy, because an argument may point to the old sentence */
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error_text, sizeof(error_text), format, arguments);
	va_end(arguments);
	memcpy(last_error, error_text, sizeof(last_error));
	return status;
}

void collet_error_prefix(const char *format, ...)
{
	char error_text[COLLET_ERROR_BYTES];
	va_list arguments;
	va_start(arguments, format);
	int used = vsnprintf(error_text, sizeof(error_text), format, arguments);
	va_end(arguments);
	if (used < 0 || (size_t)used >= sizeof(error_text))
		return;
	snprintf(error_text + used, sizeof(error_text) - (size_t)used, ": %s", last_error);
	memcpy(last_error, error_text, sizeof(last_error));
}

collet_status collet_fail_copy(collet_status status, const char *error_text)
{
	snprintf(last_error, sizeof(last_error), "%s", error_text);
	return status;
}

const char *collet_status_name(collet_status status)
{
	switch (status) {
	case COLLET_OK: return "COLLET_OK";
	case COLLET_PENDING: return "COLLET_PENDING";
	case COLLET_ERR_ARGUMENT: return "COLLET_ERR_ARGUMENT";
	case COLLET_ERR_UNSUPPORTED: return "COLLET_ERR_UNSUPPORTED";
	case COLLET_ERR_BUSY: return "COLLET_ERR_BUSY";
	case COLLET_ERR_MEMORY: return "COLLET_ERR_MEMORY";
	case COLLET_ERR_SYSTEM: return "COLLET_ERR_SYSTEM";
	case COLLET_ERR_CONFIG: return "COLLET_ERR_CONFIG";
	case COLLET_ERR_RENDEZVOUS: return "COLLET_ERR_RENDEZVOUS";
	case COLLET_ERR_AUTH: return "COLLET_ERR_AUTH";
	case COLLET_ERR_TRANSPORT: return "COLLET_ERR_TRANSPORT";
	case COLLET_ERR_TIMEOUT: return "COLLET_ERR_TIMEOUT";
	case COLLET_ERR_PEER_LOST: return "COLLET_ERR_PEER_LOST";
	case COLLET_ERR_MISMATCH: return "COLLET_ERR_MISMATCH";
	case COLLET_ERR_ABORTED: return "COLLET_ERR_ABORTED";
	case COLLET_ERR_TRUNCATED: return "COLLET_ERR_TRUNCATED";
	case COLLET_ERR_FORKED: return "COLLET_ERR_FORKED";
	case COLLET_CANCELLED: return "COLLET_CANCELLED";
	case COLLET_STATUS_COUNT: break;
	}
	return "COLLET_STATUS_UNKNOWN";
}
