/* What is said on standard error between begin and end. */
#ifndef TESTS_TRAIN_LISTEN_H
#define TESTS_TRAIN_LISTEN_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int listen_kept = -1;

static inline void listen_begin(void)
{
	fflush(stderr);
	listen_kept = dup(STDERR_FILENO);
	const int fd = open("/tmp", O_TMPFILE | O_RDWR | O_APPEND, 0600);
	if (listen_kept < 0 || fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		abort();
	close(fd);
}

static inline void listen_end(char *text, size_t capacity)
{
	const ssize_t got = pread(STDERR_FILENO, text, capacity - 1, 0);
	text[got > 0 ? got : 0] = '\0';
	dup2(listen_kept, STDERR_FILENO);
	close(listen_kept);
}

#endif
