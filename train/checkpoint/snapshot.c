#include "checkpoint/snapshot.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/order.h"
#include "error.h"

static struct tensor *add_tensor(struct snapshot *snapshot, const char *prefix, const char *name, collet_dtype dtype,
	const void *data)
{
	assert(snapshot->tensor_count < SNAPSHOT_TENSORS);
	const uint32_t t = snapshot->tensor_count++;
	snprintf(snapshot->names[t], SNAPSHOT_NAME, "%s%s", prefix, name);
	snapshot->tensors[t] = (struct tensor){ .name = snapshot->names[t], .dtype = dtype, .data = data };
	return &snapshot->tensors[t];
}

static void add_array(struct snapshot *snapshot, const char *prefix, const char *name, collet_dtype dtype,
	const void *data, uint64_t rows, uint64_t columns)
{
	struct tensor *tensor = add_tensor(snapshot, prefix, name, dtype, data);
	tensor->dimensions = columns ? 2 : 1;
	tensor->shape[0] = rows;
	tensor->shape[1] = columns;
}

static void add_parameters(
	struct snapshot *snapshot, const struct trainer *trainer, const char *prefix, const float *flat)
{
	for (uint32_t p = 0; flat && p < trainer->model.parameter_count; p++) {
		const struct parameter *parameter = &trainer->model.parameters[p];
		struct tensor *tensor =
			add_tensor(snapshot, prefix, parameter->name, COLLET_F32, flat + trainer->flat.first[p]);
		tensor->dimensions = parameter->dimensions;
		memcpy(tensor->shape, parameter->shape, sizeof(parameter->shape));
	}
}

static void add_tensors(struct snapshot *snapshot, const struct trainer *trainer)
{
	const uint32_t ranks = collet_comm_size(trainer->comm);
	add_parameters(snapshot, trainer, "", trainer->flat.values);
	for (uint32_t s = 0; s < trainer->model.statistics_count; s++) {
		const struct statistics *statistics = &trainer->model.statistics[s];
		add_array(snapshot, statistics->name, ".running_mean", COLLET_F32, statistics->mean,
			statistics->channels, 0);
		add_array(snapshot, statistics->name, ".running_var", COLLET_F32, statistics->variance,
			statistics->channels, 0);
	}
	snapshot->trainers_count = snapshot->tensor_count;
	add_parameters(snapshot, trainer, "optimizer.velocity.", snapshot->velocity);
	add_parameters(snapshot, trainer, "optimizer.squares.", snapshot->squares);
	add_array(snapshot, "ranks.", "loss_sums", COLLET_F64, snapshot->loss_sums, ranks, trainer->options->shards);
	if (snapshot->own.total > 0) {
		add_array(snapshot, "ranks.", "own_bytes", COLLET_U64, snapshot->own.counts, ranks, 0);
		add_array(snapshot, "ranks.", "own", COLLET_U8, snapshot->own.bytes, snapshot->own.total, 0);
	}
	if (trainer->history_count > 0)
		add_array(snapshot, "", "history", COLLET_F64, snapshot->history, trainer->history_count, 4);
}

__attribute__((format(printf, 3, 4))) static void add_note(
	struct snapshot *snapshot, const char *name, const char *format, ...)
{
	assert(snapshot->note_count < SNAPSHOT_NOTES);
	const uint32_t n = snapshot->note_count++;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(snapshot->note_texts[n], SNAPSHOT_NAME, format, arguments);
	va_end(arguments);
	snprintf(snapshot->note_names[n], SNAPSHOT_NAME, "%s", name);
	snapshot->notes[n] = (struct tensor_note){ snapshot->note_names[n], snapshot->note_texts[n] };
}

static void add_notes(struct snapshot *snapshot, const struct trainer *trainer)
{
	struct setting settings[SETTINGS];
	const uint32_t count = settings_list(trainer->options, settings);
	add_note(snapshot, "format", "pt");  /* what readers of PyTorch's look for */
	add_note(snapshot, "program", "collet-train %s", collet_version());
	add_note(snapshot, "checkpoint", "1");
	add_note(snapshot, "epochs", "%" PRIu32, trainer->epochs_done);
	add_note(snapshot, "steps", "%" PRIu32, trainer->steps_done);
	add_note(snapshot, "images", "%" PRIu64, order_images_before(trainer, trainer->epoch_step));
	add_note(snapshot, "ranks", "%" PRIu32, collet_comm_size(trainer->comm));
	if (trainer->scaling.dynamic) {
		add_note(snapshot, "loss-scale", "%.0f", (double)trainer->scaling.factor);
		add_note(snapshot, "loss-scale-steps", "%" PRIu32, trainer->scaling.good_steps);
		add_note(snapshot, "loss-scale-skipped", "%" PRIu64, trainer->scaling.skipped);
	}
	for (uint32_t i = 0; i < count; i++) {
		char name[SNAPSHOT_NAME];
		snprintf(name, sizeof(name), "--%s", settings[i].name);
		add_note(snapshot, name, "%s", settings[i].text);
	}
}

static bool copy_history(struct snapshot *snapshot, const struct trainer *trainer)
{
	snapshot->history = calloc((size_t)trainer->history_count + 1, 4 * sizeof(*snapshot->history));
	for (uint32_t e = 0; snapshot->history && e < trainer->history_count; e++) {
		const struct trainer_epoch *epoch = &trainer->history[e];
		const double row[4] = { epoch->epoch, epoch->loss, epoch->test_accuracy, epoch->images_per_s };
		memcpy(snapshot->history + 4 * (size_t)e, row, sizeof(row));
	}
	return snapshot->history || train_fail("no memory for a checkpoint");
}

/* ---- Whole ----------------------------------------------------------------------------------------------------- */

/* The first tensors are of values and statistics as they are now. */
static bool copy_trainers(struct snapshot *snapshot)
{
	uint64_t bytes = 0;
	for (uint32_t t = 0; t < snapshot->trainers_count; t++)
		bytes += tensor_bytes(&snapshot->tensors[t]);
	snapshot->copies = malloc((size_t)bytes + 1);
	if (!snapshot->copies)
		return train_fail("no memory for a checkpoint: %" PRIu64 " bytes of values", bytes);
	char *at = snapshot->copies;
	for (uint32_t t = 0; t < snapshot->trainers_count; t++) {
		const size_t length = (size_t)tensor_bytes(&snapshot->tensors[t]);
		memcpy(at, snapshot->tensors[t].data, length);
		snapshot->tensors[t].data = at;
		at += length;
	}
	return true;
}

bool snapshot_fill(struct snapshot *snapshot, const struct trainer *trainer)
{
	if (!copy_history(snapshot, trainer) || !checkpoint_path(trainer->options, trainer->steps_done, snapshot->path))
		return false;
	snapshot->step = trainer->steps_done;
	add_tensors(snapshot, trainer);
	add_notes(snapshot, trainer);
	return copy_trainers(snapshot);
}

bool snapshot_write(const struct snapshot *snapshot)
{
	return safetensors_write(
		snapshot->path, snapshot->tensors, snapshot->tensor_count, snapshot->notes, snapshot->note_count);
}

void snapshot_free(struct snapshot *snapshot)
{
	if (!snapshot)
		return;
	free(snapshot->velocity);
	free(snapshot->squares);
	free(snapshot->loss_sums);
	free(snapshot->history);
	free(snapshot->copies);
	rows_deinit(&snapshot->own);
	free(snapshot);
}
