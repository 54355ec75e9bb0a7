/* Holds a checkpoint until it is on disk: the data that rank 0 has gathered, and the tensors and notes of the file.
 * A filled snapshot shares nothing with the trainer, which continues with the next step. */
#ifndef TRAIN_SNAPSHOT_H
#define TRAIN_SNAPSHOT_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/collect.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/settings.h"

enum {
	SNAPSHOT_NAME = 96,
	SNAPSHOT_TENSORS = 3 * MODEL_PARAMETERS + 2 * MODEL_STATISTICS + 8,
	SNAPSHOT_NOTES = SETTINGS + 16
};

struct snapshot {
	/* Filled in by who gathers. */
	float *velocity, *squares;        /* of all parameters; NULL: the optimiser has none */
	double *loss_sums;                /* a rank and share */
	struct rows own;                  /* what each rank keeps for itself */

	char path[CHECKPOINT_PATH];
	uint32_t step;
	double *history;
	char *copies;                     /* of what the trainer goes on to change */
	uint32_t tensor_count, trainers_count, note_count;
	struct tensor tensors[SNAPSHOT_TENSORS];
	char names[SNAPSHOT_TENSORS][SNAPSHOT_NAME];
	struct tensor_note notes[SNAPSHOT_NOTES];
	char note_names[SNAPSHOT_NOTES][SNAPSHOT_NAME], note_texts[SNAPSHOT_NOTES][SNAPSHOT_NAME];
};

/* Fills the file's contents from the gathered data and the trainer. Returns false after a line on standard error. */
bool snapshot_fill(struct snapshot *snapshot, const struct trainer *trainer);
bool snapshot_write(const struct snapshot *snapshot);
/* NULL is fine. */
void snapshot_free(struct snapshot *snapshot);

#endif
