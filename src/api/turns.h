/* Lets several threads use one communicator (collet_options.thread_multiple): their calls take turns, in the order in
 * which they come. A thread that waits for peers gives its turn away meanwhile, so that calls of other threads, for
 * which those peers may be waiting, can start. So turns are short. (Tickets: Reed, Kanodia, "Synchronization with
 * eventcounts and sequencers", 1979.) */
#ifndef COLLET_API_TURNS_H
#define COLLET_API_TURNS_H

#include <stdbool.h>

#include <collet/collet.h>

struct collet_turns;

COLLET_MUST_USE collet_status collet_turns_create(struct collet_turns **turns);
/* forked: frees the copy in a forked child, whose threads may not exist. NULL does nothing. */
void collet_turns_destroy(struct collet_turns *turns, bool forked);

/* Enters with the next turn, and leaves. */
void collet_turns_enter(struct collet_turns *turns);
void collet_turns_leave(struct collet_turns *turns);
/* Gives the turn of a thread that is inside to others, and takes the next one. */
void collet_turns_pause(struct collet_turns *turns);
void collet_turns_resume(struct collet_turns *turns);
/* True if a thread is inside. */
bool collet_turns_are_used(struct collet_turns *turns);
/* Waits until no thread is inside. */
void collet_turns_drain(struct collet_turns *turns);

#endif
