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

enum { LARGEST = 64 << 20, REPEATS_MOST = 99, LANES_MOST = 8 };

/* A connection of the two processes: one end of an endpoint pair, or a bare socket. */
struct lane {
	const char *name;
	struct pair pair;
	struct end *end;    /* NULL for a bare socket */
	int bare;
	uint64_t sequence_out, sequence_in;
	uint8_t *out, *in;
};

/* Prints the process and the connection that failed, and exits. */
static _Noreturn void give_up(const struct lane *lane, const char *what)
{
	fprintf(stderr, "bench_transport: %s: %s\n", lane->name, what);
	_exit(1);
}

static void move_bare(struct lane *lane, size_t out, size_t in)
{
	for (size_t sent = 0, received = 0; sent < out || received < in;) {
		if (sent < out) {
			const ssize_t bytes =
				send(lane->bare, lane->out + sent, out - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
			if (bytes > 0)
				sent += (size_t)bytes;
			else if (errno != EAGAIN)
				give_up(lane, strerror(errno));
		}
		if (received < in) {
			const ssize_t bytes = recv(lane->bare, lane->in + received, in - received, MSG_DONTWAIT);
			if (bytes > 0)
				received += (size_t)bytes;
			else if (bytes == 0 || errno != EAGAIN)
				give_up(lane, bytes == 0 ? "closed" : strerror(errno));
		}
	}
}

static void move_conduit(struct lane *lane, bool sends, bool receives, size_t bytes)
{
	struct collet_endpoint *conduit = lane->end->conduit;
	struct collet_transfer out, in;
	if (receives) {
		in = transfer_of(lane->sequence_in++, lane->in, bytes);
		conduit->transport->post_recv(conduit, &in);
	}
	if (sends) {
		out = transfer_of(lane->sequence_out++, lane->out, bytes);
		conduit->transport->post_send(conduit, &out);
	}
	while ((sends && out.status == COLLET_PENDING) || (receives && in.status == COLLET_PENDING))
		conduit->transport->progress(conduit);
	if ((sends && out.status != COLLET_OK) || (receives && in.status != COLLET_OK))
		give_up(lane, collet_last_error());
}

static void move(struct lane *lane, bool sends, bool receives, size_t bytes)
{
	if (lane->end)
		move_conduit(lane, sends, receives, bytes);
	else
		move_bare(lane, sends ? bytes : 0, receives ? bytes : 0);
}

enum pattern { PING_PONG, ONE_WAY, EXCHANGE };
static const char *const pattern_names[] = { "ping-pong", "one way", "both ways" };

static unsigned rounds_of(size_t bytes)
{
	const size_t rounds = ((size_t)16 << 20) / (bytes + 16384);
	return (unsigned)(rounds < 2 ? 2 : rounds);
}

/* Returns the time of a round in ns, as seen by the process that starts. */
static double measure(struct lane *lane, enum pattern pattern, size_t bytes, bool first)
{
	const unsigned rounds = rounds_of(bytes);
	int64_t began = 0;
	for (unsigned warm = 0; warm < 2; warm++) {  /* the second pass is measured */
		if (warm)
			began = collet_clock_ns();
		for (unsigned i = 0; i < (warm ? rounds : rounds / 8 + 1); i++) {
			switch (pattern) {
			case PING_PONG:
				move(lane, first, !first, bytes);
				move(lane, !first, first, bytes);
				break;
			case ONE_WAY:
				move(lane, first, !first, bytes);
				break;
			case EXCHANGE:
				move(lane, true, true, bytes);
				break;
			}
		}
		if (pattern == ONE_WAY)
			move(lane, !first, first, 1);  /* everything has arrived */
	}
	return (double)(collet_clock_ns() - began) / rounds;
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void run(struct lane *lanes, size_t lane_count, unsigned repeats, size_t largest, bool first)
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
	static double times[LANES_MOST][REPEATS_MOST];
	if (first)
		printf("%-10s %10s  %-8s %12s %12s %10s %8s\n",
			"pattern", "bytes", "over", "median us", "best us", "best GB/s", "to bare");
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		if (rows[row].bytes > largest)
			continue;
		for (unsigned repeat = 0; repeat < repeats; repeat++)
			for (size_t l = 0; l < lane_count; l++)
				times[l][repeat] = measure(&lanes[l], rows[row].pattern, rows[row].bytes, first);
		for (size_t l = 0; first && l < lane_count; l++) {
			qsort(times[l], repeats, sizeof(times[l][0]), ascending);
			const double median = times[l][repeats / 2], best = times[l][0];
			printf("%-10s %10zu  %-8s %12.2f %12.2f %10.3f %8.2f\n", pattern_names[rows[row].pattern],
				rows[row].bytes, lanes[l].name, median / 1000, best / 1000,
				(double)rows[row].bytes * (rows[row].pattern == PING_PONG ? 2 : 1) / best,
				best / times[0][0]);
		}
		fflush(stdout);
	}
}

static void begin(struct lane *lane, bool first)
{
	const int mine = !first, yours = first;
	lane->out = malloc(LARGEST);
	lane->in = malloc(LARGEST);
	pattern_fill(lane->out, LARGEST, 1);
	memset(lane->in, 0, LARGEST);
	close(lane->pair.sockets[yours]);
	lane->pair.sockets[yours] = -1;
	if (!lane->pair.transport) {
		const int yes = 1;
		lane->bare = lane->pair.sockets[mine];
		setsockopt(lane->bare, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
		return;
	}
	lane->end = &lane->pair.ends[mine];
	pair_begin(&lane->pair, mine);
	if (pair_await(&lane->pair, mine) != COLLET_OK)
		give_up(lane, collet_last_error());
}

int main(int argc, char **argv)
{
	const long asked = argc > 1 ? strtol(argv[1], NULL, 10) : 9;
	const unsigned repeats = asked < 1 ? 1 : asked > REPEATS_MOST ? REPEATS_MOST : (unsigned)asked;
	const size_t largest = argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : LARGEST;
	static struct lane lanes[LANES_MOST];
	size_t count = 0;
	lanes[count].name = "bare";
	pair_connect_tcp(&lanes[count++].pair);
	for (unsigned t = 0; collet_transports[t] && count < LANES_MOST; t++) {
		struct lane *lane = &lanes[count];
		lane->name = collet_transports[t]->name;
		pair_connect(&lane->pair, collet_transports[t]->name, true);
		if (!lane->pair.single)  /* a rank itself answers without waiting: it is a memcpy */
			count++;
	}

	const pid_t child = fork();
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	const bool first = child != 0;
	for (size_t l = 0; l < count; l++)
		begin(&lanes[l], first);
	run(lanes, count, repeats, largest, first);
	for (size_t l = 0; l < count; l++) {
		if (!pattern_is(lanes[l].in, 8, 1) ||
			(largest >= LARGEST && !pattern_is(lanes[l].in, LARGEST, 1)))
			give_up(&lanes[l], "wrong bytes arrived");
		if (lanes[l].end)
			lanes[l].end->conduit->transport->close(lanes[l].end->conduit);
	}
	if (!first)
		_exit(0);
	int status;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
