#include "checkpoint/writer.h"

#include "checkpoint/image.h"
#include "error.h"

/* Older checkpoints go only now, that this one is on the disk. */
static void *write_image(void *context)
{
	struct writer *writer = context;
	writer->failed = !image_write(writer->image);
	if (!writer->failed)
		checkpoint_prune(writer->options, writer->image->step);
	image_free(writer->image);
	writer->image = NULL;
	return NULL;
}

void writer_begin(struct writer *writer, const struct options *options, struct image *image)
{
	writer->options = options;
	writer->image = image;
	writer->is_writing = pthread_create(&writer->thread, NULL, write_image, writer) == 0;
	if (!writer->is_writing)
		(void)write_image(writer);  /* then training waits for it */
}

void writer_wait(struct writer *writer)
{
	if (writer->is_writing)
		pthread_join(writer->thread, NULL);
	writer->is_writing = false;
}
