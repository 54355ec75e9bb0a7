/* A script for gnuplot, through a pipe, data and all: nothing but the picture is left on the disk. */
#ifndef COLLET_COMMON_GNUPLOT_H
#define COLLET_COMMON_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

struct gnuplot {
	FILE *script;               /* where it is to be written */
	void (*before)(int);        /* what SIGPIPE did */
};

/* Whether there is one. */
bool gnuplot_found(void);

/* False: errno says why. Between open and close, SIGPIPE is ignored. */
bool gnuplot_open(struct gnuplot *gnuplot);
/* Waits for it. False: it has failed, perhaps because it is not installed. */
bool gnuplot_close(struct gnuplot *gnuplot);

/* Text as a gnuplot string. */
void gnuplot_quote(FILE *script, const char *text);

/* The beginning of a script that draws this many pictures beside each other into an SVG. */
void gnuplot_begin(FILE *script, const char *path, const char *title, int width, int height, int pictures);

#endif
