/* Passes the ranks' output on. Bytes stay unchanged, but each line of a stream that is not bare gets its rank in front,
 * and an unfinished last line a newline.
 *
 * On a terminal, the unfinished line of the first local rank is shown at once. It is redrawn below whatever others
 * print meanwhile, so that prompts and progress bars look as they would alone. Of a line with carriage returns only
 * the part after the last one is shown, as on a terminal. */
#include "output.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PREFIX_BYTES = 16, WRITE_BYTES_MAX = 4096, READ_BYTES_MAX = 65536 };

static void sink_init(struct sink *sink, int fd)
{
	const char *kind = getenv("TERM");
	memset(sink, 0, sizeof(*sink));
	sink->fd = fd;
	sink->terminal = isatty(fd) && kind != NULL && strcmp(kind, "dumb") != 0;
}

unsigned sinks_init(struct sink sinks[2])
{
	struct stat out, error;
	sink_init(&sinks[0], STDOUT_FILENO);
	const bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &error) == 0 &&
		out.st_dev == error.st_dev && out.st_ino == error.st_ino;
	if (same)
		return 1;
	sink_init(&sinks[1], STDERR_FILENO);
	return 2;
}

void sink_deinit(struct sink *sink)
{
	bytes_deinit(&sink->queue);
}

uint32_t sink_columns(const struct sink *sink)
{
	struct winsize size;
	if (!sink->terminal || ioctl(sink->fd, TIOCGWINSZ, &size) != 0)
		return 0;
	return size.ws_col;
}

/* Drops lines that memory has no room for: ending the job would be worse. */
static void put(struct sink *sink, const char *data, size_t count)
{
	if (!sink->broken)
		(void)bytes_add(&sink->queue, data, count);
}

static void put_text(struct sink *sink, const char *text)
{
	put(sink, text, strlen(text));
}

static void put_prefix(struct sink *sink, uint32_t rank)
{
	char prefix[PREFIX_BYTES];
	snprintf(prefix, sizeof(prefix), "[%u] ", rank);
	put_text(sink, prefix);
}

/* Returns the visible part of a line on a terminal: from the last carriage return that is followed by text. */
static void put_visible(struct sink *sink, uint32_t rank, const char *line, size_t count)
{
	while (count > 0 && line[count - 1] == '\r')
		count--;
	const char *last = memrchr(line, '\r', count);
	put_prefix(sink, rank);
	if (last == NULL)
		put(sink, line, count);
	else
		put(sink, last + 1, count - (size_t)(last + 1 - line));
}

static void erase_live(struct sink *sink)
{
	if (sink->live != NULL)
		put_text(sink, "\r\033[K");
}

static void draw_live(struct sink *sink)
{
	if (sink->live != NULL)
		put_visible(sink, sink->live->rank, bytes_front(&sink->live->line), sink->live->line.count);
}

void sink_say(struct sink *sink, const char *text)
{
	erase_live(sink);
	put_text(sink, text);
	draw_live(sink);
}

/* A line of which the first part is in stream->line and the rest is given, without its newline. */
static void put_line(struct stream *stream, const char *rest, size_t count)
{
	struct sink *sink = stream->sink;
	if (sink->terminal) {
		if (bytes_add(&stream->line, rest, count) && stream->line.count > 0)
			put_visible(sink, stream->rank, bytes_front(&stream->line), stream->line.count);
		else
			put_prefix(sink, stream->rank);
	} else {
		if (!stream->is_bare)
			put_prefix(sink, stream->rank);
		if (stream->line.count > 0)
			put(sink, bytes_front(&stream->line), stream->line.count);
		put(sink, rest, count);
	}
	put_text(sink, "\n");
	bytes_take(&stream->line, stream->line.count);
}

static void feed(struct stream *stream, const char *data, size_t count)
{
	struct sink *sink = stream->sink;
	erase_live(sink);
	if (sink->live == stream)
		sink->live = NULL;
	const char *end = data + count;
	while (data < end) {
		const char *newline = memchr(data, '\n', (size_t)(end - data));
		if (newline != NULL) {
			put_line(stream, data, (size_t)(newline - data));
			data = newline + 1;
			continue;
		}
		const size_t room = LINE_BYTES_MAX - stream->line.count;
		const size_t rest = (size_t)(end - data);
		const size_t taken = rest < room ? rest : room;
		if (taken == room || !bytes_add(&stream->line, data, taken))
			put_line(stream, data, taken);
		data += taken;
	}
	if (sink->terminal && stream->shown_live && sink->live == NULL && stream->line.count > 0)
		sink->live = stream;
	draw_live(sink);
}

static ssize_t read_some(struct stream *stream, char *data)
{
	ssize_t got;
	do {
		got = read(stream->fd, data, READ_BYTES_MAX);
	} while (got < 0 && errno == EINTR);
	return got;
}

/* Passes on what read_some() got. */
static bool pass_on(struct stream *stream, const char *data, ssize_t got, bool would_wait)
{
	if (got > 0)
		feed(stream, data, (size_t)got);
	else if (!would_wait)
		stream_end(stream);
	return got > 0 || would_wait;
}

bool stream_read(struct stream *stream)
{
	char data[READ_BYTES_MAX];
	const ssize_t got = read_some(stream, data);
	return pass_on(stream, data, got, got < 0 && errno == EAGAIN);
}

/* Reads this stream first, so that all that was written to the other one before is there. One read takes a full
 * pipe. */
bool stream_read_after(struct stream *stream, struct stream *other)
{
	char data[READ_BYTES_MAX];
	const ssize_t got = read_some(stream, data);
	const bool would_wait = got < 0 && errno == EAGAIN;
	if (other->fd >= 0 && other->sink->queue.count < SINK_BYTES_HIGH)
		(void)stream_read(other);
	return pass_on(stream, data, got, would_wait);
}

void stream_end(struct stream *stream)
{
	if (stream->fd < 0)
		return;
	if (stream->line.count > 0)
		feed(stream, "\n", 1);
	bytes_deinit(&stream->line);
	close(stream->fd);
	stream->fd = -1;
}

bool sink_flush(struct sink *sink)
{
	while (sink->queue.count > 0) {
		/* The file description is shared with whoever started collet-run, so it must not be made non-blocking.
		 * A pipe that polls as writable takes this many bytes without waiting. */
		struct pollfd ready = { .fd = sink->fd, .events = POLLOUT };
		if (poll(&ready, 1, 0) <= 0)
			return true;
		const size_t count = sink->queue.count < WRITE_BYTES_MAX ? sink->queue.count : WRITE_BYTES_MAX;
		const ssize_t written = write(sink->fd, bytes_front(&sink->queue), count);
		if (written >= 0) {
			bytes_take(&sink->queue, (size_t)written);
		} else if (errno == EAGAIN) {
			return true;
		} else if (errno != EINTR) {
			sink->broken = true;
			bytes_take(&sink->queue, sink->queue.count);
		}
	}
	return false;
}
