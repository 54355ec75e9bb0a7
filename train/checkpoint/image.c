#include "checkpoint/image.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/order.h"
#include "error.h"

static struct tensor *add_tensor(struct image *image, const char *prefix, const char *name, collet_dtype dtype,
	const void *data)
{
	assert(image->tensor_count < IMAGE_TENSORS);
	const uint32_t t = image->tensor_count++;
	snprintf(image->names[t], IMAGE_NAME, "%s%s", prefix, name);
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
	image->trainers_count = image->tensor_count;
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
	assert(image->note_count < IMAGE_NOTES);
	const uint32_t n = image->note_count++;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(image->note_texts[n], IMAGE_NAME, format, arguments);
	va_end(arguments);
	snprintf(image->note_names[n], IMAGE_NAME, "%s", name);
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
		char name[IMAGE_NAME];
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

/* ---- Whole ----------------------------------------------------------------------------------------------------- */

/* The first tensors are of values and statistics as they are now. */
static bool copy_trainers(struct image *image)
{
	uint64_t bytes = 0;
	for (uint32_t t = 0; t < image->trainers_count; t++)
		bytes += tensor_bytes(&image->tensors[t]);
	image->copies = malloc((size_t)bytes + 1);
	if (!image->copies)
		return train_fail("no memory for a checkpoint: %" PRIu64 " bytes of values", bytes);
	char *at = image->copies;
	for (uint32_t t = 0; t < image->trainers_count; t++) {
		const size_t length = (size_t)tensor_bytes(&image->tensors[t]);
		memcpy(at, image->tensors[t].data, length);
		image->tensors[t].data = at;
		at += length;
	}
	return true;
}

bool image_fill(struct image *image, const struct trainer *trainer)
{
	if (!copy_history(image, trainer) || !checkpoint_path(trainer->options, trainer->steps_done, image->path))
		return false;
	image->step = trainer->steps_done;
	add_tensors(image, trainer);
	add_notes(image, trainer);
	return copy_trainers(image);
}

bool image_write(const struct image *image)
{
	return safetensors_write(
		image->path, image->tensors, image->tensor_count, image->notes, image->note_count);
}

void image_free(struct image *image)
{
	if (!image)
		return;
	free(image->velocity);
	free(image->squares);
	free(image->loss_sums);
	free(image->history);
	free(image->copies);
	rows_deinit(&image->own);
	free(image);
}
