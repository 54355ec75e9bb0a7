/* Implements the pair of shm ends for the tests of shm alone. */
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

void shm_ear_open(struct shm_ear *ear, struct end *end)
{
	end->log.level = COLLET_LOG_INFO;
	ear->log = tmpfile();
	ear->error = dup(STDERR_FILENO);
	assert_non_null(ear->log);
	assert_true(ear->error >= 0 && dup2(fileno(ear->log), STDERR_FILENO) >= 0);
}

void shm_ear_close(struct shm_ear *ear)
{
	assert_true(dup2(ear->error, STDERR_FILENO) >= 0);
	close(ear->error);
	rewind(ear->log);
	ear->said[fread(ear->said, 1, sizeof(ear->said) - 1, ear->log)] = '\0';
	fclose(ear->log);
}
