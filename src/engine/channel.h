/* Numbers of channels: how many a pair of ranks has, and which of them carries point-to-point messages. */
#ifndef COLLET_ENGINE_CHANNEL_H
#define COLLET_ENGINE_CHANNEL_H

enum {
	COLLET_TASKS = 8,            /* parts x channels of one request at most */
	COLLET_CHANNEL_P2P = COLLET_TASKS, /* the channel of point-to-point messages */
	COLLET_CHANNELS
};

#endif
