/* Loads a checkpoint. Rank 0 checks that the file belongs to this training, before anything has changed. Then all
 * ranks learn the progress, and get their data. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/collect.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/settings.h"
#include "data/order.h"
#include "error.h"
#include "strategies/strategy.h"

enum verdict { VERDICT_REFUSED, VERDICT_NONE, VERDICT_GOES_ON };

/* The message of rank 0 to the others. */
struct heading {
	uint64_t verdict;
	uint64_t epochs, steps, images;
	uint64_t ranks;             /* of the run that wrote it */
	uint64_t has_own;           /* what each rank kept for itself, and as many ranks as there are now */
	uint64_t history_count;
	uint64_t has_scale, scale, scale_steps, scale_skipped;  /* of the loss in f16 */
};

/* Rank 0's. */
struct source {
	char path[CHECKPOINT_PATH];
	struct tensor_file file;
	struct heading heading;
};

/* ---- Is it of this training? --------------------------------------------------------------------------------- */

static bool read_number(const struct source *source, const char *name, uint64_t *number)
{
	const char *text = safetensors_note(&source->file, name);
	char *end = NULL;
	errno = 0;
	*number = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
	return (end && !*end && !errno) ||
		train_fail("%s: __metadata__: %s is %s, not a number", source->path, name, text ? text : "missing");
}

static bool compare_settings(const struct source *source, const struct options *options)
{
	struct setting settings[SETTINGS];
	const uint32_t count = settings_list(options, settings);
	for (uint32_t i = 0; i < count; i++) {
		char name[80];
		snprintf(name, sizeof(name), "--%s", settings[i].name);
		const char *was = safetensors_note(&source->file, name), *is = settings[i].text;
		if (was && strcmp(was, is) == 0)
			continue;
		was = was && *was ? was : "not given";
		is = *is ? is : "not given";
		if (settings[i].binding)
			return train_fail("%s: is of another training: %s was %s and is %s", source->path, name, was,
				is);
		train_fail("%s: goes on with %s %s, which was %s", source->path, name, is, was);
	}
	return true;
}

static const float *find_floats(const struct source *source, const char *prefix, const char *name,
	uint32_t dimensions, const uint64_t *shape)
{
	char whole[128];
	snprintf(whole, sizeof(whole), "%s%s", prefix, name);
	const struct tensor *tensor = safetensors_tensor(&source->file, whole);
	if (!tensor) {
		train_fail("%s: has no tensor %s", source->path, whole);
		return NULL;
	}
	if (tensor->dtype != COLLET_F32 || tensor->dimensions != dimensions ||
		memcmp(tensor->shape, shape, dimensions * sizeof(*shape)) != 0) {
		train_fail("%s: tensor %s has another shape or type than this model's", source->path, whole);
		return NULL;
	}
	return tensor->data;
}

/* Copies nothing yet if to is NULL. */
static bool take_parameters(
	const struct source *source, const struct trainer *trainer, const char *prefix, float *to)
{
	for (uint32_t p = 0; p < trainer->model.parameter_count; p++) {
		const struct parameter *parameter = &trainer->model.parameters[p];
		const float *from =
			find_floats(source, prefix, parameter->name, parameter->dimensions, parameter->shape);
		if (!from)
			return false;
		if (to)
			memcpy(to + trainer->flat.first[p], from, parameter->count * sizeof(*to));
	}
	return true;
}

static bool take_statistics(const struct source *source, const struct trainer *trainer, bool copy)
{
	for (uint32_t s = 0; s < trainer->model.statistics_count; s++) {
		const struct statistics *statistics = &trainer->model.statistics[s];
		const uint64_t shape[1] = { statistics->channels };
		const float *mean = find_floats(source, statistics->name, ".running_mean", 1, shape);
		const float *variance = mean ? find_floats(source, statistics->name, ".running_var", 1, shape) : NULL;
		if (!variance)
			return false;
		if (!copy)
			continue;
		memcpy(statistics->mean, mean, shape[0] * sizeof(*mean));
		memcpy(statistics->variance, variance, shape[0] * sizeof(*variance));
	}
	return true;
}

/* Finds a tensor of this type with so many rows and columns; 0: any number of rows. */
static const struct tensor *find_table(
	const struct source *source, const char *name, collet_dtype dtype, uint64_t rows, uint64_t columns)
{
	const struct tensor *tensor = safetensors_tensor(&source->file, name);
	return tensor && tensor->dtype == dtype && tensor->dimensions == (columns ? 2 : 1) &&
			(rows == 0 || tensor->shape[0] == rows) && (columns == 0 || tensor->shape[1] == columns) ?
		tensor : NULL;
}

/* Checks that the ranks' own state is usable. */
static bool suits_own(const struct source *source, const struct trainer *trainer)
{
	static const char *const names[] = { "strategy", "servers", "compress", "precision", "bucket-bytes" };
	struct setting settings[SETTINGS];
	const uint32_t count = settings_list(trainer->options, settings), ranks = collet_comm_size(trainer->comm);
	bool suits = source->heading.ranks == ranks;
	for (uint32_t i = 0; i < count; i++) {
		char note[80];
		snprintf(note, sizeof(note), "--%s", settings[i].name);
		const char *was = safetensors_note(&source->file, note);
		for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
			if (strcmp(names[n], settings[i].name) == 0)
				suits = suits && was && strcmp(was, settings[i].text) == 0;
	}
	if (!suits)
		train_fail("%s: what each of %" PRIu64 " ranks kept for itself (error feedback, say) is left out: it "
			   "is of another number of ranks, or of another way to work together",
			source->path, source->heading.ranks);
	return suits;
}

static bool check_rows(struct source *source, const struct trainer *trainer)
{
	struct heading *heading = &source->heading;
	const struct tensor *history = safetensors_tensor(&source->file, "history");
	const struct tensor *losses = safetensors_tensor(&source->file, "ranks.loss_sums");
	const struct tensor *own = safetensors_tensor(&source->file, "ranks.own");
	if (!losses || losses != find_table(source, "ranks.loss_sums", COLLET_F64, heading->ranks, losses->shape[1]) ||
		(history && history != find_table(source, "history", COLLET_F64, heading->epochs, 4)))
		return train_fail("%s: its ranks.loss_sums or history make no sense", source->path);
	heading->history_count = history ? history->shape[0] : 0;
	if (!own)
		return true;
	const struct tensor *counts = find_table(source, "ranks.own_bytes", COLLET_U64, heading->ranks, 0);
	uint64_t total = 0, count;
	for (uint64_t rank = 0; counts && rank < heading->ranks; rank++) {
		memcpy(&count, (const uint64_t *)counts->data + rank, sizeof(count));
		if (__builtin_add_overflow(total, count, &total))
			return train_fail("%s: its ranks.own_bytes make no sense", source->path);
	}
	if (!counts || own != find_table(source, "ranks.own", COLLET_U8, total, 0))
		return train_fail("%s: its ranks.own and ranks.own_bytes do not fit together", source->path);
	heading->has_own = suits_own(source, trainer);
	return true;
}

/* Another precision may go on, and then begins with a factor of its own. */
static bool read_scaling(struct source *source)
{
	struct heading *heading = &source->heading;
	heading->has_scale = safetensors_note(&source->file, "loss-scale") != NULL;
	return !heading->has_scale || (read_number(source, "loss-scale", &heading->scale) &&
		read_number(source, "loss-scale-steps", &heading->scale_steps) &&
		read_number(source, "loss-scale-skipped", &heading->scale_skipped));
}

static bool is_of_this_training(struct source *source, const struct trainer *trainer)
{
	struct heading *heading = &source->heading;
	const char *version = safetensors_note(&source->file, "checkpoint");
	if (!source->file.checked || !version)
		return train_fail("%s: no checkpoint of collet-train: it has no checksum", source->path);
	if (strcmp(version, "1") != 0)
		return train_fail("%s: is a checkpoint of kind %s; this program knows kind 1", source->path, version);
	if (!compare_settings(source, trainer->options) || !read_number(source, "epochs", &heading->epochs) ||
		!read_number(source, "steps", &heading->steps) || !read_number(source, "images", &heading->images) ||
		!read_number(source, "ranks", &heading->ranks) || !read_scaling(source))
		return false;
	if (heading->epochs > UINT32_MAX || heading->steps > UINT32_MAX || heading->ranks == 0 ||
		heading->ranks > UINT32_MAX || heading->images / trainer->train.count > 2)
		return train_fail("%s: how far it is makes no sense", source->path);
	return check_rows(source, trainer) && take_parameters(source, trainer, "", NULL) &&
		take_statistics(source, trainer, false) &&
		take_parameters(source, trainer, "optimizer.velocity.", NULL) &&
		(trainer->options->optimiser == OPTIMISER_SGD ||
			take_parameters(source, trainer, "optimizer.squares.", NULL));
}

static enum verdict find_source(struct source *source, const struct trainer *trainer)
{
	bool found;
	if (!checkpoint_newest(trainer->options, source->path, &found))
		return VERDICT_REFUSED;
	if (!found)
		return VERDICT_NONE;
	return safetensors_read(&source->file, source->path) && is_of_this_training(source, trainer) ? VERDICT_GOES_ON :
												 VERDICT_REFUSED;
}

/* ---- Handing out --------------------------------------------------------------------------------------------- */

static bool share_floats(struct trainer *trainer, float *floats, uint64_t count)
{
	return train_check(collet_broadcast(trainer->comm, floats, floats, count, COLLET_F32, 0, NULL), "--resume");
}

static bool hand_out_values(const struct source *source, struct trainer *trainer)
{
	const bool reads = collet_comm_rank(trainer->comm) == 0;
	if (reads && !(take_parameters(source, trainer, "", trainer->flat.values) &&
			     take_statistics(source, trainer, true)))
		return false;
	if (!share_floats(trainer, trainer->flat.values, trainer->flat.count))
		return false;
	for (uint32_t s = 0; s < trainer->model.statistics_count; s++) {
		const struct statistics *statistics = &trainer->model.statistics[s];
		if (!share_floats(trainer, statistics->mean, statistics->channels) ||
			!share_floats(trainer, statistics->variance, statistics->channels))
			return false;
	}
	return true;
}

/* To every rank the part that it has, which may be all. */
static bool hand_out_state(const struct source *source, struct trainer *trainer, const char *prefix, float *mine)
{
	const struct flat *flat = &trainer->flat;
	const bool reads = collet_comm_rank(trainer->comm) == 0, in_parts = trainer->strategy->state == STATE_PARTS;
	float *whole = reads || !in_parts ? calloc(flat->count, sizeof(*whole)) : NULL;
	bool fine = whole || (!reads && in_parts) || train_fail("no memory for a checkpoint");
	fine = fine && (!reads || take_parameters(source, trainer, prefix, whole));
	if (fine && in_parts)
		fine = parts_deal(trainer->comm, mine, flat->state_first, flat->state_count, whole);
	else if (fine)
		fine = share_floats(trainer, whole, flat->count);
	if (fine && !in_parts)  /* a server may need none of it */
		memcpy(mine, whole + flat->state_first, flat->state_count * sizeof(*mine));
	free(whole);
	return fine;
}

/* Distributes the loss sums. With as many shares as before, each gets its own; otherwise rank 0 takes all, since
 * only the total counts. */
static bool hand_out_losses(const struct source *source, struct trainer *trainer)
{
	const uint32_t shards = trainer->options->shards, ranks = collet_comm_size(trainer->comm);
	double *all = calloc((size_t)shards * (ranks + 1), sizeof(*all));
	if (!all)
		return train_fail("no memory for a checkpoint");
	double *mine = all + (size_t)shards * ranks;
	if (collet_comm_rank(trainer->comm) == 0) {
		const struct tensor *saved = safetensors_tensor(&source->file, "ranks.loss_sums");
		const uint64_t count = saved->shape[0] * saved->shape[1];
		const bool alike = count == (uint64_t)ranks * shards;
		for (uint64_t i = 0; i < count; i++) {
			double sum;
			memcpy(&sum, (const double *)saved->data + i, sizeof(sum));
			all[alike ? i : 0] += sum;
		}
	}
	const bool fine = train_check(
		collet_scatter(trainer->comm, all, mine, shards, COLLET_F64, 0, NULL), "--resume");
	for (uint32_t s = 0; fine && s < trainer->share_count; s++)
		trainer->loss_sums[s] = mine[s];
	free(all);
	return fine;
}

static bool hand_out_own(const struct source *source, struct trainer *trainer, const struct heading *heading)
{
	const uint32_t ranks = collet_comm_size(trainer->comm);
	struct rows rows = { 0 };
	if (!heading->has_own)
		return true;
	bool fine = true;
	if (collet_comm_rank(trainer->comm) == 0) {
		const struct tensor *own = safetensors_tensor(&source->file, "ranks.own");
		fine = rows_allocate(&rows, ranks);
		if (fine)
			memcpy(rows.counts, safetensors_tensor(&source->file, "ranks.own_bytes")->data,
				ranks * sizeof(*rows.counts));
		rows.bytes = malloc((size_t)tensor_bytes(own) + 1);
		fine = fine && (rows.bytes || train_fail("no memory for a checkpoint"));
		if (fine) {
			memcpy(rows.bytes, own->data, tensor_bytes(own));
			rows_place(&rows, ranks);
		}
	}
	void *mine = NULL;
	uint64_t bytes = 0;
	fine = fine && rows_deal(&rows, trainer->comm, &mine, &bytes) &&
	       (trainer->strategy->load
			       ? trainer->strategy->load(trainer, mine, bytes)
			       : train_fail("--strategy %s keeps nothing a rank: this checkpoint is of another",
					 trainer->strategy->name));
	free(mine);
	rows_deinit(&rows);
	return fine;
}

/* The final report covers the whole run. */
static bool hand_out_history(const struct source *source, struct trainer *trainer, const struct heading *heading)
{
	const size_t count = (size_t)heading->history_count;
	double *rows = calloc(count + 1, 4 * sizeof(*rows));
	trainer->history = calloc(count + 1, sizeof(*trainer->history));
	bool fine = (rows && trainer->history) || train_fail("no memory for a checkpoint");
	if (fine && count > 0 && collet_comm_rank(trainer->comm) == 0)
		memcpy(rows, safetensors_tensor(&source->file, "history")->data, count * 4 * sizeof(*rows));
	fine = fine && train_check(collet_broadcast(trainer->comm, rows, rows, 4 * count, COLLET_F64, 0, NULL),
		"--resume");
	for (size_t e = 0; fine && e < count; e++)
		trainer->history[trainer->history_count++] = (struct trainer_epoch){ .epoch = (uint32_t)rows[4 * e],
			.loss = rows[4 * e + 1], .test_accuracy = rows[4 * e + 2], .images_per_s = rows[4 * e + 3] };
	free(rows);
	return fine;
}

/* Images, not steps, are what another number of ranks has in common with this one. */
static void take_place(struct trainer *trainer, const struct heading *heading)
{
	const uint64_t steps = order_steps(trainer);
	trainer->epochs_done = (uint32_t)heading->epochs;
	trainer->steps_done = (uint32_t)heading->steps;
	if (trainer->scaling.dynamic && heading->has_scale)
		trainer->scaling = (struct scaling){ .dynamic = true, .factor = (float)heading->scale,
			.good_steps = (uint32_t)heading->scale_steps, .skipped = heading->scale_skipped };
	trainer->epoch_step = 0;
	while (trainer->epoch_step < steps && order_images_before(trainer, trainer->epoch_step + 1) <= heading->images)
		trainer->epoch_step++;
	/* Counts the images that the losses cover; some of them may come again. */
	if (trainer->share_count > 0)
		trainer->epoch_images = heading->images / trainer->workers;
	if (collet_comm_rank(trainer->comm) == 0)
		trainer->epoch_images += heading->images % trainer->workers;
	trainer->resumed_steps = trainer->steps_done;
}

static bool hand_out(const struct source *source, struct trainer *trainer, const struct heading *heading)
{
	take_place(trainer, heading);
	return hand_out_values(source, trainer) &&
		hand_out_state(source, trainer, "optimizer.velocity.", trainer->flat.velocity) &&
		(trainer->options->optimiser == OPTIMISER_SGD ||
			hand_out_state(source, trainer, "optimizer.squares.", trainer->flat.squares)) &&
		hand_out_losses(source, trainer) && hand_out_history(source, trainer, heading) &&
		hand_out_own(source, trainer, heading);
}

/* Tells the user where the run is: where it goes on, or that it was finished and there is nothing to do. */
static void say_place(const struct source *source, const struct options *options)
{
	const struct heading *heading = &source->heading;
	const bool out_of_steps = options->steps > 0 && heading->steps >= options->steps;
	if (out_of_steps || heading->epochs >= options->epochs)
		train_fail("%s: this run has finished: %" PRIu64 " steps, %" PRIu64 " of %u epochs; a larger --%s "
			   "would go on",
			source->path, heading->steps, heading->epochs, options->epochs,
			out_of_steps ? "steps" : "epochs");
	else
		train_fail("goes on from %s: after %" PRIu64 " steps, in epoch %" PRIu64, source->path, heading->steps,
			heading->epochs + 1);
}

bool checkpoint_resume(struct trainer *trainer)
{
	struct source *source = calloc(1, sizeof(*source));
	const bool reads = collet_comm_rank(trainer->comm) == 0;
	if (!trainer->options->resume || !source) {
		free(source);
		return !trainer->options->resume || train_fail("no memory for a checkpoint");
	}
	struct heading heading = { 0 };
	if (reads) {
		source->heading.verdict = find_source(source, trainer);
		heading = source->heading;
	}
	enum { WORDS = sizeof(heading) / sizeof(uint64_t) };
	bool fine = train_check(
		collet_broadcast(trainer->comm, &heading, &heading, WORDS, COLLET_U64, 0, NULL), "--resume");
	fine = fine && heading.verdict != VERDICT_REFUSED;  /* rank 0 has said why */
	if (fine && heading.verdict == VERDICT_GOES_ON)
		fine = hand_out(source, trainer, &heading);
	if (fine && reads && heading.verdict == VERDICT_GOES_ON)
		say_place(source, trainer->options);
	safetensors_deinit(&source->file);
	free(source);
	return fine;
}
