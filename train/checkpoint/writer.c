#include "checkpoint/writer.h"

#include "checkpoint/snapshot.h"
#include "error.h"

/* Older checkpoints go only now, that this one is on the disk. */
static void *write_snapshot(void *context)
{
	struct writer *writer = context;
	writer->failed = !snapshot_write(writer->snapshot);
	if (!writer->failed)
		checkpoint_prune(writer->options, writer->snapshot->step);
	snapshot_free(writer->snapshot);
	writer->snapshot = NULL;
	return NULL;
}

void writer_begin(struct writer *writer, const struct options *options, struct snapshot *snapshot)
{
	writer->options = options;
	writer->snapshot = snapshot;
	writer->is_writing = pthread_create(&writer->thread, NULL, write_snapshot, writer) == 0;
	if (!writer->is_writing)
		(void)write_snapshot(writer);  /* then training waits for it */
}

void writer_wait(struct writer *writer)
{
	if (writer->is_writing)
		pthread_join(writer->thread, NULL);
	writer->is_writing = false;
}
