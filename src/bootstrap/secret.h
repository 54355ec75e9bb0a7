/* Reads the job's secret, and writes the error for a user who has none. */
#ifndef COLLET_BOOTSTRAP_SECRET_H
#define COLLET_BOOTSTRAP_SECRET_H

#include "bootstrap/environment/launch.h"

/* Reads options.secret, COLLET_SECRET, the file COLLET_SECRET_FILE, or else the user's own file if it exists. Returns
 * COLLET_ERR_CONFIG for a file that others can read. */
collet_status collet_secret_read(struct collet_launch *launch, const collet_options *options);

/* The text of a secret that the library makes: 32 random bytes in hex. */
enum { COLLET_MADE_SECRET_BYTES = 65 };

/* Makes a secret that the launch then has, and writes its text, to be handed to the other ranks. */
collet_status collet_secret_make(struct collet_launch *launch, char text[COLLET_MADE_SECRET_BYTES]);
/* Gives the launch the secret with this text. */
collet_status collet_secret_use(struct collet_launch *launch, const char *text);

/* Returns COLLET_ERR_CONFIG with "<why>: a secret is needed ..." and how to set one. */
collet_status collet_fail_no_secret(const char *why);

#endif
