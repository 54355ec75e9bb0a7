#include "core/silence.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { UNANSWERED_COUNT = 6 };

bool collet_host_is_silent(int socket, uint32_t silence_ms)
{
	struct tcp_info info = { 0 };
	socklen_t bytes = sizeof(info);
	return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
		info.tcpi_last_ack_recv >= silence_ms && info.tcpi_retransmits + info.tcpi_probes >= UNANSWERED_COUNT;
}
