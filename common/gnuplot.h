/* Pipes a script and its data to gnuplot, so that only the picture reaches the disk. */
#ifndef COLLET_COMMON_GNUPLOT_H
#define COLLET_COMMON_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

struct gnuplot {
	FILE *script;               /* where it is to be written */
	void (*before)(int);        /* what SIGPIPE did */
};

/* Returns true if gnuplot is installed. */
bool gnuplot_found(void);

/* Returns false with errno on failure. SIGPIPE is ignored between open and close. */
bool gnuplot_open(struct gnuplot *gnuplot);
/* Waits for gnuplot. Returns false if it failed, or is not installed. */
bool gnuplot_close(struct gnuplot *gnuplot);

/* Writes text as a gnuplot string. */
void gnuplot_quote(FILE *script, const char *text);

/* Writes the beginning of a script that draws so many pictures side by side into an SVG. */
void gnuplot_begin(FILE *script, const char *path, const char *title, int width, int height, int pictures);

#endif
