/* The ranks' output: whole lines from every rank, each with its rank in front unless the stream is bare. */
#ifndef COLLET_LAUNCH_OUTPUT_H
#define COLLET_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "bytes.h"

struct stream;

/* A sink for lines: collet-run's standard output or standard error. */
struct sink {
	int fd;
	bool terminal; /* one that understands "erase to the end of the line" */
	bool broken;   /* its reader has gone: what is sent there is dropped */
	struct bytes queue;
	const struct stream *live; /* terminal: whose unfinished line is on the last row */
};

/* One rank's standard output or standard error. */
struct stream {
	int fd;          /* the pipe's end, not blocking; -1 once it has ended */
	bool shown_live; /* on a terminal its unfinished line is shown as it stands, e.g. a bar drawn by \r */
	bool is_bare;    /* no prefix; never on a terminal */
	uint32_t rank;
	struct sink *sink;
	struct bytes line; /* what has come of the unfinished line */
};

/* A line longer than this is written in pieces of this many bytes, each on a line of its own. */
enum { LINE_BYTES_MAX = 1 << 20 };
/* While a sink has this much waiting for its reader, nothing more is read from the ranks. */
enum { SINK_BYTES_HIGH = 1 << 18 };

/* Sets up one sink if standard output and standard error are the same file, else two. Lines for one file must pass
 * through one queue, or they would cut each other. Returns the number of sinks. */
unsigned sinks_init(struct sink sinks[2]);
void sink_deinit(struct sink *sink);

/* Columns of the sink's terminal; 0: it is none. */
uint32_t sink_columns(const struct sink *sink);

/* Queues text, which ends in a newline, as a line of collet-run's own. */
void sink_say(struct sink *sink, const char *text);

/* Writes what can be written without waiting. True: something is still queued, so poll for POLLOUT. */
bool sink_flush(struct sink *sink);

/* Reads what there is and queues the lines it ends. False: the stream has ended (and its last line is queued, newline
 * or not), and its fd is closed. */
bool stream_read(struct stream *stream);
/* Does the same, but queues first what the rank wrote to its other stream before. */
bool stream_read_after(struct stream *stream, struct stream *other);

/* Ends a stream that will be read no more. */
void stream_end(struct stream *stream);

#endif
