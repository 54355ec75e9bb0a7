#include "report/curves.h"

#include <errno.h>
#include <string.h>

#include "error.h"
#include "gnuplot.h"

static void put_script(FILE *script, const char *path, const char *title, const struct trainer_epoch *epochs,
	uint32_t count)
{
	static const char *const names[] = { "loss", "test accuracy, %", "images/s" };
	gnuplot_begin(script, path, title, 1280, 440, 3);
	fputs("$epochs << END\n", script);
	for (uint32_t e = 0; e < count; e++)
		fprintf(script, "%u %.9g %.9g %.9g\n", epochs[e].epoch, epochs[e].loss, 100 * epochs[e].test_accuracy,
			epochs[e].images_per_s);
	fprintf(script, "END\nset xlabel 'epoch'\nset xrange [%g:%g]\nset xtics %u\nset offsets 0, 0, graph 0.1, 0\n",
		epochs[0].epoch - 0.5, epochs[count - 1].epoch + 0.5, 1 + count / 10);
	for (int column = 0; column < 3; column++) {
		fputs("set ylabel ", script);
		gnuplot_quote(script, names[column]);
		fprintf(script, "\nplot %s $epochs using 1:%d with linespoints linewidth 2 pointtype 7 notitle\n",
			column == 2 ? "[] [0:]" : "", column + 2);
	}
	fputs("unset multiplot\n", script);
}

bool curves_draw(const char *path, const char *title, const struct trainer_epoch *epochs, uint32_t count)
{
	struct gnuplot gnuplot;
	if (count == 0)
		return train_fail("--plot %s: no epoch was trained to its end: there is nothing to draw", path);
	if (!gnuplot_open(&gnuplot))
		return train_fail("--plot %s: %s", path, strerror(errno));
	put_script(gnuplot.script, path, title, epochs, count);
	return gnuplot_close(&gnuplot) || train_fail("--plot %s: gnuplot failed", path);
}
