/* Copies in one direction that others wait for one by one: a stream of its own, and an event behind each copy. Copies
 * to a GPU and from it take different engines of it, and so go at the same time if they are in different pipes. */
#ifndef COLLET_CUDA_DRIVER_COPY_QUEUE_H
#define COLLET_CUDA_DRIVER_COPY_QUEUE_H

#include "cuda/driver/copy_stream.h"

enum { COLLET_PIPE_DEPTH = 4 }; /* marks under way: enough for the GPU to have its next copy when one ends */

struct collet_pipe {
	struct collet_pipe *next;
	struct collet_copier *copier;
	cu_stream stream;
	cu_event events[COLLET_PIPE_DEPTH];
	uint32_t event_count;    /* made */
	uint32_t marked, passed; /* both only grow */
	bool failed;             /* what is under way is not known */
	int mode;                /* the thread's, of capturing, before it entered */
};

/* One that is empty, of the copier's context. Whoever takes it gives it back; any thread, one at a time. */
collet_status collet_pipe_take(struct collet_copiers *copiers, struct collet_copier *copier, struct collet_pipe **pipe);
/* Waits until it is empty; NULL is fine. false: it cannot be waited for, since its context, which has not gone, cannot
 * be entered: what is copied must stay for good. */
bool collet_pipe_give(struct collet_copiers *copiers, struct collet_pipe *pipe);
/* The copier goes. entered: its context is there, and current. */
void collet_pipe_free(const struct collet_cuda *cuda, struct collet_pipe *pipe, bool entered);

/* Between enter and leave the thread's context is the pipe's, and nothing that the pipe does can spoil what the program
 * captures meanwhile. */
collet_status collet_pipe_enter(const struct collet_cuda *cuda, struct collet_pipe *pipe);
/* The same, of one that is taken first if *pipe is NULL. */
collet_status collet_pipe_take_and_enter(
	struct collet_copiers *copiers, struct collet_copier *copier, struct collet_pipe **pipe);
void collet_pipe_leave(const struct collet_cuda *cuda, const struct collet_pipe *pipe);

/* There is room for one more mark. */
static inline bool collet_pipe_has_room(const struct collet_pipe *pipe)
{
	return pipe->marked - pipe->passed < COLLET_PIPE_DEPTH;
}
static inline bool collet_pipe_is_empty(const struct collet_pipe *pipe)
{
	return pipe->marked == pipe->passed;
}
/* Between enter and leave. add: enqueues a copy; what: for the sentence. mark: behind what has been added. look: *count
 * marks more have been passed, in their order. */
collet_status collet_pipe_add(const struct collet_cuda *cuda, struct collet_pipe *pipe, void *to, const void *from,
	size_t bytes, const char *what);
collet_status collet_pipe_mark(const struct collet_cuda *cuda, struct collet_pipe *pipe, const char *what);
collet_status collet_pipe_look(
	const struct collet_cuda *cuda, struct collet_pipe *pipe, const char *what, uint32_t *count);

#endif
