/* Runs collet-train with each strategy. Each run is a job of its own processes, on cores of their own if there are
 * enough, and writes its JSON to a file. Strategies take turns in rounds, so that other load hits all alike. One
 * rank alone runs first, as the base of efficiency. */
#include "training.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <collet/tools.h>

#include "names.h"
#include "pin.h"
#include "ranks/process.h"
#include "report/flat_json.h"
#include "report/output.h"
#include "training_table.h"

enum { ROUNDS_MOST = 100, WORDS_MOST = 256, ROWS_MOST = TRAINING_STRATEGIES * (BENCH_PREDICT_MOST + 1) + 1 };

/* The last epoch that collet-train reports. */
struct outcome {
	double images_per_s[ROUNDS_MOST];   /* of each round */
	uint32_t rounds;
	double workers, steps, model_bytes, batch_bytes, bytes, busiest_bytes, memory_bytes, travel_s, hidden_s;
	double accuracy, batch_images, local_steps, staleness, apart;
};

struct session {
	const struct bench_options *options;
	uint32_t ranks;
	uint32_t strategies;                /* a bit each */
	char program[4096];                 /* collet-train */
	struct outcome alone, outcomes[TRAINING_STRATEGIES];
	struct training_row rows[ROWS_MOST];
	size_t row_count;
};

/* ---- The program --------------------------------------------------------------------------------------------- */

/* Beside this one, as installed or as built; else wherever PATH has it. */
static void find_program(char path[4096])
{
	static const char *const places[] = { "collet-train", "../train/collet-train" };
	const char *own = bench_own_path();
	const char *slash = own != NULL ? strrchr(own, '/') : NULL;
	for (size_t i = 0; slash != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
		const int length = snprintf(path, 4096, "%.*s/%s", (int)(slash - own), own, places[i]);
		if (length < 4096 && access(path, X_OK) == 0)
			return;
	}
	strcpy(path, "collet-train");
}

static double median(double *values, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
		for (uint32_t k = i; k > 0 && values[k - 1] > values[k]; k--) {
			const double other = values[k];
			values[k] = values[k - 1];
			values[k - 1] = other;
		}
	return count == 0 ? -1 : count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double member(const char *line, const char *name)
{
	double value;
	return bench_flat_number(line, name, &value) ? value : -1;
}

/* The mean rate of its epochs; all else of the last, whose numbers are of all steps. */
static bool read_outcome(const char *path, struct outcome *outcome)
{
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t capacity = 0;
	double rates = 0, travel = 0, hidden = 0;
	uint32_t epochs = 0;
	while (file != NULL && getline(&line, &capacity, file) > 0) {
		rates += member(line, "images_per_s");
		travel += member(line, "travel_s");
		hidden += member(line, "hidden_s");
		outcome->workers = member(line, "workers");
		outcome->steps = member(line, "steps");
		outcome->model_bytes = member(line, "model_bytes");
		outcome->batch_bytes = member(line, "batch_bytes");
		outcome->batch_images = member(line, "batch_size");
		outcome->bytes = member(line, "bytes_per_step");
		outcome->busiest_bytes = member(line, "busiest_bytes_per_step");
		outcome->memory_bytes = member(line, "memory_bytes");
		outcome->accuracy = member(line, "test_accuracy");
		outcome->local_steps = member(line, "local_steps");
		outcome->staleness = member(line, "staleness_most");
		outcome->apart = member(line, "apart");
		epochs++;
	}
	free(line);
	if (file != NULL)
		fclose(file);
	if (epochs == 0 || !(outcome->steps > 0) || !(rates > 0))
		return false;
	outcome->travel_s = travel;
	outcome->hidden_s = hidden;
	outcome->images_per_s[outcome->rounds++] = rates / epochs;
	return true;
}

/* Prints the log of a job that failed. */
static void show_log(int log)
{
	char text[4096];
	ssize_t got;
	for (off_t at = 0; (got = pread(log, text, sizeof(text), at)) > 0; at += got)
		fwrite(text, 1, (size_t)got, stderr);
}

/* Returns how many of the user's words, from this one on, form an option that only other strategies have: 0, 1 or 2. */
static int words_of_others(const struct bench_options *o, int at, enum training_strategy strategy)
{
	static const struct {
		const char *option;
		enum training_strategy takers[2];
	} rows[] = {
		{ "--servers", { TRAINING_PARAMETER_SERVER, TRAINING_ASYNC } },
		{ "--staleness", { TRAINING_ASYNC, TRAINING_ASYNC } },
		{ "--local-steps", { TRAINING_LOCAL_SGD, TRAINING_LOCAL_SGD } },
	};
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		const size_t length = strlen(rows[r].option);
		const char *rest = o->words[at] + length;
		if (strncmp(o->words[at], rows[r].option, length) != 0 || (*rest != '\0' && *rest != '='))
			continue;
		if (strategy == rows[r].takers[0] || strategy == rows[r].takers[1])
			return 0;
		return *rest == '=' || at + 1 == o->word_count ? 1 : 2;
	}
	return 0;
}

/* One job; alone: of one rank. */
static int run(const struct session *s, bool alone, enum training_strategy strategy, const char *json,
	struct outcome *outcome)
{
	static const char *const defaults[] = { "--dataset", "digits", "--train-samples", "12000", "--test-samples",
		"2000" };
	const struct bench_options *o = s->options;
	const char *words[WORDS_MOST + 16] = { s->program, "--json", json };
	char job[64], log_path[] = "/tmp/collet-bench-training-XXXXXX";
	int count = 3;
	words[count++] = "--strategy";
	words[count++] = training_strategy_name(strategy);
	if (o->transport != NULL && !alone) {
		words[count++] = "--transport";
		words[count++] = o->transport;
	}
	for (int i = 0; o->word_count == 0 && i < 6; i++)
		words[count++] = defaults[i];
	for (int i = 0; i < o->word_count && count < WORDS_MOST; i++) {
		const int others = words_of_others(o, i, strategy);
		if (others == 0)
			words[count++] = o->words[i];
		i += others > 0 ? others - 1 : 0;
	}
	words[count] = NULL;
	bench_unique_name(job, sizeof(job));
	const int log = mkostemp(log_path, O_CLOEXEC);
	if (log < 0) {
		fprintf(stderr, "collet-bench: %s: %s\n", log_path, strerror(errno));
		return 1;
	}
	unlink(log_path);
	const struct bench_program program = { .argv = words, .ranks = alone ? 1 : s->ranks, .job = job,
		.output = log, .pin = o->mode.pin };
	bench_progress("%s", alone ? "one rank alone" : training_strategy_name(strategy));
	const int status = bench_ranks_run(&program);
	bench_progress_clear();
	if (status != 0)
		show_log(log);
	close(log);
	if (status == 0 && !read_outcome(json, outcome)) {
		fprintf(stderr, "collet-bench: %s wrote no epoch that makes sense\n", s->program);
		return 1;
	}
	return status;
}

/* ---- What to run --------------------------------------------------------------------------------------------- */

static bool refuse_strategy(const char *word)
{
	struct bench_names names = { 0 };
	char hint[BENCH_NAMES_TEXT];
	for (int k = 0; k < TRAINING_STRATEGIES; k++)
		bench_names_add(&names, training_strategy_name((enum training_strategy)k));
	fprintf(stderr, "collet-bench: --strategies: there is no strategy '%s'; %s\n", word,
		bench_names_hint(&names, word, hint));
	return false;
}

static bool take_strategies(struct session *s)
{
	const char *list = s->options->strategies != NULL ? s->options->strategies : "all";
	if (strcmp(list, "all") == 0) {
		s->strategies = (UINT32_C(1) << TRAINING_STRATEGIES) - 1;
		return true;
	}
	for (const char *at = list;; at += strcspn(at, ",") + 1) {
		char name[32];
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ","), at);
		const enum training_strategy found = training_strategy_find(name);
		if (found == TRAINING_STRATEGIES)
			return refuse_strategy(name);
		s->strategies |= UINT32_C(1) << found;
		if (at[strcspn(at, ",")] == '\0')
			return true;
	}
}

static bool wanted(const struct session *s, int strategy)
{
	return (s->strategies >> strategy & 1) != 0;
}

static int run_all(struct session *s, const char *json)
{
	for (uint32_t round = 0; round < s->options->repeats && round < ROUNDS_MOST; round++) {
		int status = run(s, true, TRAINING_ALLREDUCE, json, &s->alone);
		for (int k = 0; status == 0 && k < TRAINING_STRATEGIES; k++)
			if (wanted(s, k))
				status = run(s, false, (enum training_strategy)k, json, &s->outcomes[k]);
		if (status != 0)
			return status;
	}
	return 0;
}

/* ---- What came out ------------------------------------------------------------------------------------------- */

static void add_measured(struct session *s, enum training_strategy strategy, uint32_t ranks, struct outcome *outcome,
	double alone)
{
	const double rate = median(outcome->images_per_s, outcome->rounds);
	s->rows[s->row_count++] = (struct training_row){ .strategy = strategy, .ranks = ranks,
		.workers = (uint32_t)outcome->workers, .images_per_s = rate, .efficiency = rate / (alone * ranks),
		.bytes = outcome->bytes, .busiest_bytes = outcome->busiest_bytes, .accuracy = outcome->accuracy,
		.hidden = ranks > 1 && outcome->travel_s > 0 ? outcome->hidden_s / outcome->travel_s : -1,
		.memory_bytes = outcome->memory_bytes, .staleness = outcome->staleness, .apart = outcome->apart };
}

static bool add_predicted(struct session *s, enum training_strategy strategy, double alone)
{
	const struct bench_options *o = s->options;
	const struct outcome *seen = &s->outcomes[strategy];
	const double servers = s->ranks - seen->workers;
	const struct training_facts facts = { .transport = o->transport != NULL ? o->transport : "shm",
		.model_bytes = seen->model_bytes, .batch_bytes = seen->batch_bytes,
		.compute_s = seen->batch_images / alone,
		.hidden = seen->travel_s > 0 ? seen->hidden_s / seen->travel_s : 0,
		.servers = servers > 0 ? (uint32_t)servers : 1,
		.local_steps = seen->local_steps > 0 ? (uint32_t)seen->local_steps : 1 };
	for (uint32_t i = 0; i < o->predict_count; i++) {
		struct training_prediction p;
		if (servers > 0 && o->predict[i] <= facts.servers)
			continue;   /* nobody would be left to train */
		if (!training_predict(strategy, &facts, o->predict[i], &p)) {
			fprintf(stderr, "collet-bench: --predict: %s\n", collet_last_error());
			return false;
		}
		s->rows[s->row_count++] = (struct training_row){ .strategy = strategy, .ranks = o->predict[i],
			.workers = p.workers, .predicted = true, .efficiency = p.efficiency, .bytes = p.bytes,
			.images_per_s = p.efficiency * alone * o->predict[i], .busiest_bytes = -1, .accuracy = -1,
			.hidden = -1, .memory_bytes = -1, .staleness = -1, .apart = -1 };
	}
	return true;
}

static bool add_rows(struct session *s)
{
	const double alone = median(s->alone.images_per_s, s->alone.rounds);
	add_measured(s, TRAINING_ALLREDUCE, 1, &s->alone, alone);
	for (int k = 0; k < TRAINING_STRATEGIES; k++)
		if (wanted(s, k))
			add_measured(s, (enum training_strategy)k, s->ranks, &s->outcomes[k], alone);
	for (int k = 0; k < TRAINING_STRATEGIES; k++)
		if (wanted(s, k) && !add_predicted(s, (enum training_strategy)k, alone))
			return false;
	return true;
}

static int show(struct session *s, FILE *json)
{
	const struct bench_options *o = s->options;
	char title[120];
	snprintf(title, sizeof(title), "data-parallel training by %u ranks, against one", s->ranks);
	if (json != stdout) {
		printf("# %s; efficiency: images/s by those of one rank, times ranks\n", title);
		if (o->predict_count > 0)
			printf("# predicted: one host, a core for each rank, over %s, by the cost model; as much "
			       "hidden as measured\n",
				o->transport != NULL ? o->transport : "shm");
		training_table(stdout, s->rows, s->row_count);
	}
	if (json != NULL)
		training_json(json, s->rows, s->row_count, o->transport);
	return o->plot != NULL && !training_draw(o->plot, title, s->rows, s->row_count);
}

int bench_training(const struct bench_options *options)
{
	bool failed = false;
	char path[] = "/tmp/collet-bench-training-XXXXXX";
	struct session *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return 1;
	s->options = options;
	s->ranks = options->ranks > 0 ? options->ranks : bench_core_count();
	find_program(s->program);
	FILE *json = take_strategies(s) ? bench_json_open(options->json, &failed) : NULL;
	const int file = failed || s->strategies == 0 ? -1 : mkstemp(path);
	int status = s->strategies == 0 ? 2 : 1;
	if (file >= 0) {
		close(file);
		status = run_all(s, path);
		unlink(path);
		if (status == 0)
			status = !add_rows(s) || show(s, json);
	}
	if (json != NULL && !bench_json_close(json))
		status = 1;
	free(s);
	return status;
}
