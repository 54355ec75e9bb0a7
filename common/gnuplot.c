#include "gnuplot.h"

#include <signal.h>
#include <stdlib.h>

bool gnuplot_found(void)
{
	return system("command -v gnuplot >/dev/null 2>&1") == 0;
}

bool gnuplot_open(struct gnuplot *gnuplot)
{
	gnuplot->script = popen("gnuplot", "we");
	/* A shell that finds no gnuplot closes its end: that is told by pclose(), not by a signal. */
	if (gnuplot->script)
		gnuplot->before = signal(SIGPIPE, SIG_IGN);
	return gnuplot->script != NULL;
}

bool gnuplot_close(struct gnuplot *gnuplot)
{
	const int status = pclose(gnuplot->script);
	signal(SIGPIPE, gnuplot->before);
	return status == 0;
}

/* Doubles each single quote: in gnuplot's single quotes no other character is special. */
void gnuplot_quote(FILE *script, const char *text)
{
	putc('\'', script);
	for (; *text != '\0'; text++) {
		if (*text == '\'')
			putc('\'', script);
		putc(*text, script);
	}
	putc('\'', script);
}

void gnuplot_begin(FILE *script, const char *path, const char *title, int width, int height, int pictures)
{
	fprintf(script, "set terminal svg size %d,%d background 'white'\nset output ", width, height);
	gnuplot_quote(script, path);
	fprintf(script, "\nset multiplot layout 1,%d title ", pictures);
	gnuplot_quote(script, title);
	fputs(" noenhanced\nset grid\nset format y '%g'\n", script);
}
