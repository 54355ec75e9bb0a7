/* The levels of the library's log, which COLLET_LOG chooses from. Transports use them (<collet/transport.h>); a program
 * that calls collectives does not need them. */
#ifndef COLLET_LOG_LEVEL_H
#define COLLET_LOG_LEVEL_H

/* A message is printed if its level is at most the chosen one. */
enum collet_log_level {
	COLLET_LOG_NONE,   /* nothing; the default */
	COLLET_LOG_ERROR,  /* what ends a communicator */
	COLLET_LOG_WARN,   /* what a user should know of */
	COLLET_LOG_INFO,   /* what was chosen, and who connects to whom */
	COLLET_LOG_DEBUG   /* everything */
};

#endif
