/* Writing: everything comes to rank 0, which names it and hands it to the writer. */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint/collect.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/settings.h"
#include "data/order.h"
#include "error.h"
#include "strategies/strategy.h"

enum { NAME = 96, TENSORS_MOST = 3 * MODEL_PARAMETERS + 2 * MODEL_STATISTICS + 8, NOTES_MOST = SETTINGS + 16 };

/* What rank 0 gathers, and the file it becomes. */
struct image {
	float *velocity, *squares;        /* of all parameters; the trainer's or owned_* */
	float *owned[2];
	double *loss_sums;                /* a rank and share */
	double *history;
	struct rows own;                  /* what each rank keeps for itself */
	uint32_t tensor_count, note_count;
	struct tensor tensors[TENSORS_MOST];
	char names[TENSORS_MOST][NAME];
	struct tensor_note notes[NOTES_MOST];
	char note_names[NOTES_MOST][NAME], note_texts[NOTES_MOST][NAME];
};

/* ---- Gathering ----------------------------------------------------------------------------------------------- */

/* The optimiser's memory lies whole on rank 0, or in parts on several ranks. */
static bool gather_state(struct trainer *trainer, float *mine, float **whole, float **owned)
{
	const struct flat *flat = &trainer->flat;
	uint8_t is_whole = flat->state_count == flat->count;
	if (!train_check(collet_broadcast(trainer->comm, &is_whole, &is_whole, 1, COLLET_U8, 0, NULL), "a checkpoint"))
		return false;
	*whole = mine;
	if (is_whole)
		return true;
	*whole = *owned = collet_comm_rank(trainer->comm) == 0 ? calloc(flat->count, sizeof(float)) : NULL;
	if (collet_comm_rank(trainer->comm) == 0 && !*whole)
		return train_fail("no memory for a checkpoint");
	return parts_collect(trainer->comm, mine, flat->state_first, flat->state_count, *whole);
}

static bool gather_losses(struct trainer *trainer, double **all)
{
	const uint32_t shards = trainer->options->shards, size = collet_comm_size(trainer->comm);
	double *mine = calloc((size_t)shards * (size + 1), sizeof(*mine));
	if (!mine)
		return train_fail("no memory for a checkpoint");
	*all = mine;
	for (uint32_t s = 0; s < trainer->share_count; s++)
		mine[(size_t)shards * size + s] = trainer->loss_sums[s];
	return train_check(
		collet_gather(trainer->comm, mine + (size_t)shards * size, mine, shards, COLLET_F64, 0, NULL),
		"a checkpoint");
}

static bool gather_own(struct trainer *trainer, struct rows *rows)
{
	uint64_t bytes = 0;
	if (trainer->strategy->saved_bytes && !trainer->strategy->saved_bytes(trainer, &bytes))
		return false;
	void *mine = malloc((size_t)bytes + 1);
	bool fine = mine || train_fail("no memory for a checkpoint");
	fine = fine && (bytes == 0 || trainer->strategy->save(trainer, mine, bytes)) &&
		rows_collect(rows, trainer->comm, mine, bytes);
	free(mine);
	return fine;
}

/* ---- Naming -------------------------------------------------------------------------------------------------- */

static struct tensor *add_tensor(struct image *image, const char *prefix, const char *name, collet_dtype dtype,
	const void *data)
{
	const uint32_t t = image->tensor_count++;
	snprintf(image->names[t], NAME, "%s%s", prefix, name);
	image->tensors[t] = (struct tensor){ .name = image->names[t], .dtype = dtype, .data = data };
	return &image->tensors[t];
}

static void add_array(struct image *image, const char *prefix, const char *name, collet_dtype dtype,
	const void *data, uint64_t rows, uint64_t columns)
{
	struct tensor *tensor = add_tensor(image, prefix, name, dtype, data);
	tensor->dimensions = columns ? 2 : 1;
	tensor->shape[0] = rows;
	tensor->shape[1] = columns;
}

static void add_parameters(struct image *image, const struct trainer *trainer, const char *prefix, const float *flat)
{
	for (uint32_t p = 0; flat && p < trainer->model.parameter_count; p++) {
		const struct parameter *parameter = &trainer->model.parameters[p];
		struct tensor *tensor =
			add_tensor(image, prefix, parameter->name, COLLET_F32, flat + trainer->flat.first[p]);
		tensor->dimensions = parameter->dimensions;
		memcpy(tensor->shape, parameter->shape, sizeof(parameter->shape));
	}
}

static void add_tensors(struct image *image, const struct trainer *trainer)
{
	const uint32_t ranks = collet_comm_size(trainer->comm);
	add_parameters(image, trainer, "", trainer->flat.values);
	for (uint32_t s = 0; s < trainer->model.statistics_count; s++) {
		const struct statistics *statistics = &trainer->model.statistics[s];
		add_array(image, statistics->name, ".running_mean", COLLET_F32, statistics->mean, statistics->channels,
			0);
		add_array(image, statistics->name, ".running_var", COLLET_F32, statistics->variance,
			statistics->channels, 0);
	}
	add_parameters(image, trainer, "optimizer.velocity.", image->velocity);
	add_parameters(image, trainer, "optimizer.squares.", image->squares);
	add_array(image, "ranks.", "loss_sums", COLLET_F64, image->loss_sums, ranks, trainer->options->shards);
	if (image->own.total > 0) {
		add_array(image, "ranks.", "own_bytes", COLLET_U64, image->own.counts, ranks, 0);
		add_array(image, "ranks.", "own", COLLET_U8, image->own.bytes, image->own.total, 0);
	}
	if (trainer->history_count > 0)
		add_array(image, "", "history", COLLET_F64, image->history, trainer->history_count, 4);
}

__attribute__((format(printf, 3, 4))) static void add_note(
	struct image *image, const char *name, const char *format, ...)
{
	const uint32_t n = image->note_count++;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(image->note_texts[n], NAME, format, arguments);
	va_end(arguments);
	snprintf(image->note_names[n], NAME, "%s", name);
	image->notes[n] = (struct tensor_note){ image->note_names[n], image->note_texts[n] };
}

static void add_notes(struct image *image, const struct trainer *trainer)
{
	struct setting settings[SETTINGS];
	const uint32_t count = settings_list(trainer->options, settings);
	add_note(image, "format", "pt");  /* what readers of PyTorch's look for */
	add_note(image, "program", "collet-train %s", collet_version());
	add_note(image, "checkpoint", "1");
	add_note(image, "epochs", "%" PRIu32, trainer->epochs_done);
	add_note(image, "steps", "%" PRIu32, trainer->steps_done);
	add_note(image, "images", "%" PRIu64, order_images_before(trainer, trainer->epoch_step));
	add_note(image, "ranks", "%" PRIu32, collet_comm_size(trainer->comm));
	if (trainer->scaling.dynamic) {
		add_note(image, "loss-scale", "%.0f", (double)trainer->scaling.factor);
		add_note(image, "loss-scale-steps", "%" PRIu32, trainer->scaling.good_steps);
		add_note(image, "loss-scale-skipped", "%" PRIu64, trainer->scaling.skipped);
	}
	for (uint32_t i = 0; i < count; i++) {
		char name[NAME];
		snprintf(name, sizeof(name), "--%s", settings[i].name);
		add_note(image, name, "%s", settings[i].text);
	}
}

static bool copy_history(struct image *image, const struct trainer *trainer)
{
	image->history = calloc((size_t)trainer->history_count + 1, 4 * sizeof(*image->history));
	for (uint32_t e = 0; image->history && e < trainer->history_count; e++) {
		const struct trainer_epoch *epoch = &trainer->history[e];
		const double row[4] = { epoch->epoch, epoch->loss, epoch->test_accuracy, epoch->images_per_s };
		memcpy(image->history + 4 * (size_t)e, row, sizeof(row));
	}
	return image->history || train_fail("no memory for a checkpoint");
}

/* ---- Writing ------------------------------------------------------------------------------------------------- */

/* A failure is remembered, and forgotten when a later one succeeds: training is worth more than a checkpoint. */
static void write_image(struct trainer *trainer, struct image *image)
{
	char path[CHECKPOINT_PATH];
	trainer->checkpoint_failed = true;
	if (!copy_history(image, trainer) || !checkpoint_path(trainer->options, trainer->steps_done, path))
		return;
	add_tensors(image, trainer);
	add_notes(image, trainer);
	trainer->checkpoint_failed =
		!safetensors_write(path, image->tensors, image->tensor_count, image->notes, image->note_count);
}

static bool save(struct trainer *trainer)
{
	const struct backend *backend = trainer->backend;
	if (backend->fetch && !backend->fetch(trainer->network))
		return false;
	struct image *image = calloc(1, sizeof(*image));
	const struct flat *flat = &trainer->flat;
	if (!image)
		return train_fail("no memory for a checkpoint");
	const bool gathered = gather_state(trainer, flat->velocity, &image->velocity, &image->owned[0]) &&
		(trainer->options->optimiser == OPTIMISER_SGD ||
			gather_state(trainer, flat->squares, &image->squares, &image->owned[1])) &&
		gather_losses(trainer, &image->loss_sums) && gather_own(trainer, &image->own);
	if (gathered && collet_comm_rank(trainer->comm) == 0)
		write_image(trainer, image);
	free(image->owned[0]);
	free(image->owned[1]);
	free(image->loss_sums);
	free(image->history);
	rows_deinit(&image->own);
	free(image);
	return gathered;
}

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* In the middle of an epoch: every so many steps, and where the run ends there. */
bool checkpoint_after_step(struct trainer *trainer, double *seconds)
{
	const struct options *options = trainer->options;
	const bool is_last = options->steps > 0 && trainer->steps_done >= options->steps;
	const bool due = options->checkpoint_every > 0 && trainer->steps_done % options->checkpoint_every == 0;
	*seconds = 0;
	if (!options->checkpoint || !(due || is_last) || trainer->epoch_step == order_steps(trainer))
		return true;
	const double began = now_s();
	const bool saved = save(trainer);
	*seconds = now_s() - began;
	return saved;
}

bool checkpoint_after_epoch(struct trainer *trainer)
{
	return !trainer->options->checkpoint || trainer->epoch_step > 0 || save(trainer);
}
