#include "shm_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

void shm_pair_open(struct pair *pair, bool processes, struct collet_arena *arenas)
{
	*pair = (struct pair){ 0 };
	pair_connect(pair, "shm", processes);
	for (int i = 0; i < 2; i++) {
		pair->ends[i].card.pid = (uint32_t)getpid();
		if (arenas) {
			assert_int_equal(collet_arena_init(&arenas[i], ARENA_BYTES), COLLET_OK);
			pair->ends[i].arena = &arenas[i];
		}
		pair_begin(pair, i);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_await(pair, i), COLLET_OK);
}
