/* Measures each built transport: ping-pong, one way, and both ways together between two processes. The floor is the
 * same loop over a bare TCP socket. All processes spin. The measurements of one size are interleaved, so that a
 * disturbance affects all. Prints the median and the best.
 *
 * bench_transport [REPEATS [LARGEST_BYTES]] */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "pair.h"

enum { LARGEST = 64 << 20, REPEATS_MOST = 99, LINKS_MAX = 8 };

/* A connection of the two processes: one end of an endpoint pair, or a bare socket. */
struct link {
	const char *name;
	struct pair pair;
	struct end *end;    /* NULL for a bare socket */
	int bare;
	uint64_t sequence_out, sequence_in;
	uint8_t *out, *in;
};

/* Prints the process and the connection that failed, and exits. */
static _Noreturn void die(const struct link *link, const char *what)
{
	fprintf(stderr, "bench_transport: %s: %s\n", link->name, what);
	_exit(1);
}

static void move_bare(struct link *link, size_t out, size_t in)
{
	for (size_t sent = 0, received = 0; sent < out || received < in;) {
		if (sent < out) {
			const ssize_t bytes =
				send(link->bare, link->out + sent, out - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
			if (bytes > 0)
				sent += (size_t)bytes;
			else if (errno != EAGAIN)
				die(link, strerror(errno));
		}
		if (received < in) {
			const ssize_t bytes = recv(link->bare, link->in + received, in - received, MSG_DONTWAIT);
			if (bytes > 0)
				received += (size_t)bytes;
			else if (bytes == 0 || errno != EAGAIN)
				die(link, bytes == 0 ? "closed" : strerror(errno));
		}
	}
}

static void move_endpoint(struct link *link, bool sends, bool receives, size_t bytes)
{
	struct collet_endpoint *endpoint = link->end->endpoint;
	struct collet_transfer out, in;
	if (receives) {
		in = transfer_of(link->sequence_in++, link->in, bytes);
		endpoint->transport->post_recv(endpoint, &in);
	}
	if (sends) {
		out = transfer_of(link->sequence_out++, link->out, bytes);
		endpoint->transport->post_send(endpoint, &out);
	}
	while ((sends && out.status == COLLET_PENDING) || (receives && in.status == COLLET_PENDING))
		endpoint->transport->progress(endpoint);
	if ((sends && out.status != COLLET_OK) || (receives && in.status != COLLET_OK))
		die(link, collet_last_error());
}

static void move(struct link *link, bool sends, bool receives, size_t bytes)
{
	if (link->end)
		move_endpoint(link, sends, receives, bytes);
	else
		move_bare(link, sends ? bytes : 0, receives ? bytes : 0);
}

enum pattern { PING_PONG, ONE_WAY, EXCHANGE };
static const char *const pattern_names[] = { "ping-pong", "one way", "both ways" };

static unsigned rounds_of(size_t bytes)
{
	const size_t rounds = ((size_t)16 << 20) / (bytes + 16384);
	return (unsigned)(rounds < 2 ? 2 : rounds);
}

/* Returns the time of a round in ns, as seen by the process that starts. */
static double measure(struct link *link, enum pattern pattern, size_t bytes, bool first)
{
	const unsigned rounds = rounds_of(bytes);
	int64_t began = 0;
	for (unsigned warm = 0; warm < 2; warm++) {  /* the second pass is measured */
		if (warm)
			began = collet_clock_ns();
		for (unsigned i = 0; i < (warm ? rounds : rounds / 8 + 1); i++) {
			switch (pattern) {
			case PING_PONG:
				move(link, first, !first, bytes);
				move(link, !first, first, bytes);
				break;
			case ONE_WAY:
				move(link, first, !first, bytes);
				break;
			case EXCHANGE:
				move(link, true, true, bytes);
				break;
			}
		}
		if (pattern == ONE_WAY)
			move(link, !first, first, 1);  /* everything has arrived */
	}
	return (double)(collet_clock_ns() - began) / rounds;
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void run(struct link *links, size_t link_count, unsigned repeats, size_t largest, bool first)
{
	static const struct {
		enum pattern pattern;
		size_t bytes;
	} rows[] = {
		{ PING_PONG, 8 }, { PING_PONG, 1024 }, { PING_PONG, 8192 }, { PING_PONG, 16384 }, { PING_PONG, 65536 },
		{ PING_PONG, 1 << 20 },
		{ ONE_WAY, 64 }, { ONE_WAY, 4096 }, { ONE_WAY, 65536 }, { ONE_WAY, 1 << 20 }, { ONE_WAY, LARGEST },
		{ EXCHANGE, 8 }, { EXCHANGE, 4096 }, { EXCHANGE, 16384 }, { EXCHANGE, 65536 },
		{ EXCHANGE, 262144 }, { EXCHANGE, 1 << 20 }, { EXCHANGE, 16 << 20 }, { EXCHANGE, LARGEST },
	};
	static double times[LINKS_MAX][REPEATS_MOST];
	if (first)
		printf("%-10s %10s  %-8s %12s %12s %10s %8s\n",
			"pattern", "bytes", "over", "median us", "best us", "best GB/s", "to bare");
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		if (rows[row].bytes > largest)
			continue;
		for (unsigned repeat = 0; repeat < repeats; repeat++)
			for (size_t l = 0; l < link_count; l++)
				times[l][repeat] = measure(&links[l], rows[row].pattern, rows[row].bytes, first);
		for (size_t l = 0; first && l < link_count; l++) {
			qsort(times[l], repeats, sizeof(times[l][0]), ascending);
			const double median = times[l][repeats / 2], best = times[l][0];
			printf("%-10s %10zu  %-8s %12.2f %12.2f %10.3f %8.2f\n", pattern_names[rows[row].pattern],
				rows[row].bytes, links[l].name, median / 1000, best / 1000,
				(double)rows[row].bytes * (rows[row].pattern == PING_PONG ? 2 : 1) / best,
				best / times[0][0]);
		}
		fflush(stdout);
	}
}

static void begin(struct link *link, bool first)
{
	const int mine = !first, yours = first;
	link->out = malloc(LARGEST);
	link->in = malloc(LARGEST);
	pattern_fill(link->out, LARGEST, 1);
	memset(link->in, 0, LARGEST);
	close(link->pair.sockets[yours]);
	link->pair.sockets[yours] = -1;
	if (!link->pair.transport) {
		const int yes = 1;
		link->bare = link->pair.sockets[mine];
		setsockopt(link->bare, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
		return;
	}
	link->end = &link->pair.ends[mine];
	pair_begin(&link->pair, mine);
	if (pair_await(&link->pair, mine) != COLLET_OK)
		die(link, collet_last_error());
}

int main(int argc, char **argv)
{
	const long asked = argc > 1 ? strtol(argv[1], NULL, 10) : 9;
	const unsigned repeats = asked < 1 ? 1 : asked > REPEATS_MOST ? REPEATS_MOST : (unsigned)asked;
	const size_t largest = argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : LARGEST;
	static struct link links[LINKS_MAX];
	size_t count = 0;
	links[count].name = "bare";
	pair_connect_tcp(&links[count++].pair);
	for (unsigned t = 0; collet_transports[t] && count < LINKS_MAX; t++) {
		struct link *link = &links[count];
		link->name = collet_transports[t]->name;
		pair_connect(&link->pair, collet_transports[t]->name, true);
		if (!link->pair.single)  /* a rank itself answers without waiting: it is a memcpy */
			count++;
	}

	const pid_t child = fork();
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	const bool first = child != 0;
	for (size_t l = 0; l < count; l++)
		begin(&links[l], first);
	run(links, count, repeats, largest, first);
	for (size_t l = 0; l < count; l++) {
		if (!pattern_is(links[l].in, 8, 1) ||
			(largest >= LARGEST && !pattern_is(links[l].in, LARGEST, 1)))
			die(&links[l], "wrong bytes arrived");
		if (links[l].end)
			links[l].end->endpoint->transport->close(links[l].end->endpoint);
	}
	if (!first)
		_exit(0);
	int status;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
