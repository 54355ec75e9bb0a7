#include "checkpoint/settings.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct list {
	struct setting *rows;
	uint32_t count;
};

static struct setting *add(struct list *list, const char *name)
{
	assert(list->count < SETTINGS);
	struct setting *row = &list->rows[list->count++];
	*row = (struct setting){ .name = name };
	return row;
}

static void add_text(struct list *list, const char *name, const char *text)
{
	snprintf(add(list, name)->text, sizeof(list->rows->text), "%s", text ? text : "");
}

static void add_number(struct list *list, const char *name, uint64_t value)
{
	snprintf(add(list, name)->text, sizeof(list->rows->text), "%" PRIu64, value);
}

/* Prints the fewest digits that identify the float; nine always do. */
static void add_float(struct list *list, const char *name, float value)
{
	struct setting *row = add(list, name);
	for (int digits = 1; digits <= 9; digits++) {
		snprintf(row->text, sizeof(row->text), "%.*g", digits, (double)value);
		if (strtof(row->text, NULL) == value)
			return;
	}
}

static void add_flag(struct list *list, const char *name, bool given)
{
	add_text(list, name, given ? "given" : "");
}

uint32_t settings_list(const struct options *options, struct setting *rows)
{
	static const char *const schedules[] = { "constant", "step", "cosine" };
	struct list list = { rows, 0 };
	add_text(&list, "dataset", options->dataset);
	add_number(&list, "train-samples", options->train_samples);
	add_text(&list, "model", options->model);
	add_flag(&list, "no-batch-norm", !options->batch_norm);
	add_text(&list, "optimizer", options->optimiser == OPTIMISER_SGD ? "sgd" : "adamw");
	add_number(&list, "seed", options->seed);
	for (uint32_t i = 0; i < list.count; i++)
		rows[i].binding = true;
	add_text(&list, "strategy", options->strategy);
	add_number(&list, "servers", options->servers);
	add_number(&list, "local-steps", options->local_steps);
	if (options->staleness != OPTIONS_NOT_GIVEN)
		add_number(&list, "staleness", options->staleness);
	add_number(&list, "batch-size", options->batch_size);
	add_number(&list, "accumulate", options->accumulate);
	add_float(&list, "lr", options->learning_rate);
	if (options->optimiser == OPTIMISER_SGD) {
		add_float(&list, "momentum", options->momentum);
		add_flag(&list, "nesterov", options->nesterov);
	}
	add_float(&list, "weight-decay", options->weight_decay);
	add_float(&list, "clip", options->clip);
	add_text(&list, "schedule", schedules[options->schedule]);
	if (options->schedule == SCHEDULE_COSINE) {  /* it knows its end */
		add_number(&list, "epochs", options->epochs);
		add_number(&list, "steps", options->steps);
	}
	if (options->schedule == SCHEDULE_STEP) {
		add_number(&list, "decay-every", options->decay_every);
		add_float(&list, "decay-factor", options->decay_factor);
	}
	add_number(&list, "warmup", options->warmup);
	add_flag(&list, "scale-lr", options->scale_rate);
	add_text(&list, "compress", options->compress);
	static const char *const precisions[] = { "f32", "bf16", "f16" };
	add_text(&list, "precision", precisions[options->precision]);
	add_flag(&list, "augment", options->augment);
	add_flag(&list, "sync-batch-norm", options->sync_batch_norm);
	add_text(&list, "algorithm", options->algorithm);
	add_number(&list, "bucket-bytes", options->bucket_bytes);
	return list.count;
}
