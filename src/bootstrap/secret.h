/* The job's secret: from where it may come, and what to tell who has none. */
#ifndef COLLET_BOOTSTRAP_SECRET_H
#define COLLET_BOOTSTRAP_SECRET_H

#include "bootstrap/bootstrap.h"

/* options.secret, COLLET_SECRET, the file COLLET_SECRET_FILE, else the user's own file where it exists.
 * COLLET_ERR_CONFIG for a file that others can read. */
collet_status collet_secret_read(struct collet_launch *launch, const collet_options *options);

/* COLLET_ERR_CONFIG: "<why>: a secret is needed; <how to give one>". */
collet_status collet_fail_no_secret(const char *why);

#endif
