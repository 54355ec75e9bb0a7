/* Writing tables, JSON and progress. */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "sizes.h"

static const char *op_text(const struct bench_measurement *m)
{
	return bench_collective_combines((enum bench_collective)m->work.collective)
		? collet_op_name((collet_op)m->work.op)
		: "none";
}

static double algbw(const struct bench_measurement *m)
{
	return bench_gbs(m->bytes, m->time_ns);
}

static double busbw(const struct bench_measurement *m)
{
	return algbw(m) * bench_bus_factor((enum bench_collective)m->work.collective, m->ranks);
}

/* Returns the speed of the call's reads and writes as a part of a copy's speed. */
static double part_of_copy(const struct bench_measurement *m)
{
	const struct bench_on_device *d = m->device;
	return m->time_ns > 0 && d->copy_gbs > 0 ? d->copy_bytes / m->time_ns / d->copy_gbs : -1;
}

void bench_table_header(FILE *out, const struct bench_measurement *first)
{
	fprintf(out, "# %s %s: %s of %u ranks on %s, %s%s, %s buffers\n", first->library, first->version,
		bench_collective_name((enum bench_collective)first->work.collective), first->ranks, first->host,
		first->work.in_place ? "in place" : "out of place",
		first->threads ? ", threads" : first->pinned ? ", bound to cores" : "",
		bench_buffer_kind_name(first->buffers));
	if (first->device != NULL)
		fprintf(out,
			"# GPU: %s; copies within its memory at %.1f GB/s; of copy: what a call must read and write, "
			"at that speed, / time\n",
			first->device->name, first->device->copy_gbs);
	if (first->device != NULL && first->device->calling != NULL)
		fprintf(out,
			"# calls %s, times by the stream's events; host: what a call takes of its caller's time, "
			"median\n",
			strcmp(first->device->calling, "graph") == 0 ? "in a graph that is launched again and again" :
								       "on a stream");
	fprintf(out,
		"# times: mean of calls back to back, slowest rank; p50 and p99 in a pass of their own; GB = 10^9 "
		"bytes\n");
	const bool ordered = first->device != NULL && first->device->calling != NULL;
	const bool device = first->device != NULL, rewritten = first->rewritten_ns >= 0;
	if (rewritten)
		fputs("# rewritten: p50 of calls whose input was written just before and whose result is read after\n",
			out);
	fprintf(out, "%12s %12s %7s %10s %-16s %-9s %10s %10s %10s %8s %8s %7s%s%s%s\n", "bytes", "count", "type", "op",
		"algorithm", "transport", "time", "p50", "p99", "algbw", "busbw", "wrong", device ? "  of copy" : "",
		ordered ? "       host" : "", rewritten ? "  rewritten" : "");
	fprintf(out, "%12s %12s %7s %10s %-16s %-9s %10s %10s %10s %8s %8s %7s%s%s%s\n", "", "elements", "", "", "", "",
		"us", "us", "us", "GB/s", "GB/s", "", device ? "        %" : "", ordered ? "         us" : "",
		rewritten ? "         us" : "");
}

void bench_table_number(FILE *out, double value, int width)
{
	if (!(value >= 0))
		fprintf(out, " %*s", width, "-");
	else
		fprintf(out, " %*.*f", width, value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0, value);
}

void bench_table_row(FILE *out, const struct bench_measurement *m)
{
	fprintf(out, "%12" PRIu64 " %12" PRIu64 " %7s %10s %-16s %-9s", m->bytes, m->count,
		collet_dtype_name((collet_dtype)m->work.dtype), op_text(m), m->algorithm != NULL ? m->algorithm : "-",
		m->transport != NULL ? m->transport : "-");
	bench_table_number(out, m->time_ns / 1e3, 10);
	bench_table_number(out, m->p50_ns / 1e3, 10);
	bench_table_number(out, m->p99_ns / 1e3, 10);
	fprintf(out, " %8.2f %8.2f %7" PRIu64, algbw(m), busbw(m), m->wrong);
	if (m->device != NULL)
		bench_table_number(out, 100 * part_of_copy(m), 8);
	if (m->device != NULL && m->device->calling != NULL)
		bench_table_number(out, m->device->host_ns / 1e3, 10);
	if (m->rewritten_ns >= 0)
		bench_table_number(out, m->rewritten_ns / 1e3, 10);
	fputs(m->disturbance == BENCH_DISTURBED ? " *\n" : "\n", out);
	fflush(out);
}

void bench_table_footnote(FILE *out)
{
	fputs("# *: other processes used more than 3 % of a core while the calls were timed\n", out);
}

void bench_json_string(FILE *out, const char *text)
{
	if (text == NULL) {
		fputs("null", out);
		return;
	}
	putc('"', out);
	for (; *text != '\0'; text++) {
		const unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20)
			fprintf(out, "\\u%04x", c);
		else
			putc(c, out);
	}
	putc('"', out);
}

void bench_json_begin(FILE *out)
{
	char host[65] = "";
	gethostname(host, sizeof(host) - 1);
	fputs("{\"library\":\"collet\",\"version\":", out);
	bench_json_string(out, collet_version());
	fputs(",\"host\":", out);
	bench_json_string(out, host);
}

void bench_json_number(FILE *out, double value)
{
	if (!isfinite(value) || value < 0)
		fputs("null", out);
	else
		fprintf(out, "%.9g", value);
}

static void string_member(FILE *out, const char *key, const char *text)
{
	fprintf(out, "\"%s\":", key);
	bench_json_string(out, text);
	putc(',', out);
}

static void number_member(FILE *out, const char *key, double value)
{
	fprintf(out, "\"%s\":", key);
	bench_json_number(out, value);
	putc(',', out);
}

static void put_array(FILE *out, const char *key, const double *values, uint32_t count)
{
	fprintf(out, "\"%s\":[", key);
	for (uint32_t i = 0; i < count; i++) {
		fputs(i > 0 ? "," : "", out);
		bench_json_number(out, values[i]);
	}
	putc(']', out);
}

static void put_beside(FILE *out, const struct bench_measurement *m)
{
	const struct bench_beside *b = m->beside;
	putc(',', out);
	string_member(out, "settings", b->settings);
	string_member(out, "collet_buffers", bench_buffer_kind_name(b->collet_buffers));
	fprintf(out, "\"repeats\":%u,\"best_peer\":%s,", b->repeats, b->best ? "true" : "false");
	number_member(out, "collet_ratio", b->ratio);
	number_member(out, "collet_ratio_least", b->ratio_least);
	number_member(out, "collet_ratio_most", b->ratio_most);
	if (m->rewritten_ns >= 0)
		number_member(out, "collet_rewritten_ratio", b->rewritten_ratio);
	string_member(out, "cores", b->cores);
	put_array(out, "repeats_us", b->times_us, b->repeats);
	putc(',', out);
	put_array(out, "flags_ns", b->flags_ns, b->repeats);
}

static void put_device(FILE *out, const struct bench_measurement *m)
{
	putc(',', out);
	string_member(out, "device", m->device->name);
	number_member(out, "copy_gbs", m->device->copy_gbs);
	fputs("\"of_copy\":", out);
	bench_json_number(out, part_of_copy(m));
	if (m->device->calling == NULL)
		return;
	putc(',', out);
	string_member(out, "calling", m->device->calling);
	fputs("\"host_us\":", out);
	bench_json_number(out, m->device->host_ns / 1e3);
}

void bench_json_measurement(FILE *out, const struct bench_measurement *m)
{
	putc('{', out);
	string_member(out, "library", m->library);
	string_member(out, "version", m->version);
	string_member(out, "host", m->host);
	string_member(out, "collective", bench_collective_name((enum bench_collective)m->work.collective));
	string_member(out, "algorithm", m->algorithm);
	string_member(out, "transport", m->transport);
	string_member(out, "dtype", collet_dtype_name((collet_dtype)m->work.dtype));
	string_member(out, "op", op_text(m));
	fprintf(out, "\"ranks\":%u,\"bytes\":%" PRIu64 ",\"in_place\":%s,", m->ranks, m->bytes,
		m->work.in_place ? "true" : "false");
	string_member(out, "buffers", bench_buffer_kind_name(m->buffers));
	fprintf(out, "\"pinned\":%s,", m->pinned ? "true" : "false");
	number_member(out, "time_us", m->time_ns / 1e3);
	number_member(out, "p50_us", m->p50_ns / 1e3);
	number_member(out, "p99_us", m->p99_ns / 1e3);
	if (m->rewritten_ns >= 0)
		number_member(out, "rewritten_us", m->rewritten_ns / 1e3);
	number_member(out, "algbw_gbs", algbw(m));
	number_member(out, "busbw_gbs", busbw(m));
	fprintf(out, "\"wrong\":%" PRIu64 ",", m->wrong);
	number_member(out, "cpu_s_per_op", m->cpu_ns / 1e9);
	number_member(out, "page_faults_per_op", m->page_faults);
	number_member(out, "switches_per_op", m->switches);
	fputs("\"predicted_us\":", out);
	bench_json_number(out, m->predicted_ns / 1e3);
	if (m->disturbance != BENCH_NOT_JUDGED)
		fprintf(out, ",\"disturbed\":%s", m->disturbance == BENCH_DISTURBED ? "true" : "false");
	if (m->threads)
		fputs(",\"threads\":true", out);
	if (m->device != NULL)
		put_device(out, m);
	if (m->beside != NULL)
		put_beside(out, m);
	fputs("}\n", out);
	fflush(out);
}

FILE *bench_json_open(const char *path, bool *failed)
{
	*failed = false;
	if (path == NULL)
		return NULL;
	if (strcmp(path, "-") == 0)
		return stdout;
	FILE *file = fopen(path, "we");
	if (file == NULL) {
		fprintf(stderr, "collet-bench: cannot write %s: %s\n", path, strerror(errno));
		*failed = true;
	}
	return file;
}

bool bench_json_close(FILE *file)
{
	if (file == NULL)
		return true;
	const bool arrived = fflush(file) == 0 && !ferror(file);
	const bool closed = file == stdout || fclose(file) == 0;
	if (!arrived || !closed)
		fprintf(stderr, "collet-bench: a file could not be written: %s\n", strerror(errno));
	return arrived && closed;
}

void bench_progress(const char *format, ...)
{
	va_list arguments;
	if (!isatty(STDERR_FILENO))
		return;
	fputs("\r\033[K", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fflush(stderr);
}

void bench_progress_clear(void)
{
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
}
