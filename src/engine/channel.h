/* Numbers the channels of a communicator. Each pair of ranks has one endpoint per channel. */
#ifndef COLLET_ENGINE_CHANNEL_H
#define COLLET_ENGINE_CHANNEL_H

enum {
	COLLET_TASKS = 8,                  /* most parts x channels of one request */
	COLLET_CHANNEL_P2P = COLLET_TASKS, /* carries point-to-point messages */
	COLLET_CHANNELS
};

#endif
