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
		pair->ends[i].peer_info.pid = (uint32_t)getpid();
		if (arenas) {
			assert_int_equal(collet_arena_init(&arenas[i], ARENA_BYTES), COLLET_OK);
			pair->ends[i].arena = &arenas[i];
		}
		pair_begin(pair, i);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_await(pair, i), COLLET_OK);
}

void shm_log_capture_begin(struct shm_log_capture *capture, struct end *end)
{
	end->log.level = COLLET_LOG_INFO;
	capture->log = tmpfile();
	capture->error = dup(STDERR_FILENO);
	assert_non_null(capture->log);
	assert_true(capture->error >= 0 && dup2(fileno(capture->log), STDERR_FILENO) >= 0);
}

void shm_log_capture_end(struct shm_log_capture *capture)
{
	assert_true(dup2(capture->error, STDERR_FILENO) >= 0);
	close(capture->error);
	rewind(capture->log);
	capture->text[fread(capture->text, 1, sizeof(capture->text) - 1, capture->log)] = '\0';
	fclose(capture->log);
}
