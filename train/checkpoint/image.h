/* A checkpoint on its way to the disk: what rank 0 has gathered, and the tensors and notes of the file it becomes. Once
 * it is filled nothing in it is the trainer's, which goes on with the next step. */
#ifndef TRAIN_IMAGE_H
#define TRAIN_IMAGE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/collect.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/settings.h"

enum {
	IMAGE_NAME = 96,
	IMAGE_TENSORS = 3 * MODEL_PARAMETERS + 2 * MODEL_STATISTICS + 8,
	IMAGE_NOTES = SETTINGS + 16
};

struct image {
	/* Filled in by who gathers. */
	float *velocity, *squares;        /* of all parameters; NULL: the optimiser has none */
	double *loss_sums;                /* a rank and share */
	struct rows own;                  /* what each rank keeps for itself */

	char path[CHECKPOINT_PATH];
	uint32_t step;
	double *history;
	char *copies;                     /* of what the trainer goes on to change */
	uint32_t tensor_count, trainers_count, note_count;
	struct tensor tensors[IMAGE_TENSORS];
	char names[IMAGE_TENSORS][IMAGE_NAME];
	struct tensor_note notes[IMAGE_NOTES];
	char note_names[IMAGE_NOTES][IMAGE_NAME], note_texts[IMAGE_NOTES][IMAGE_NAME];
};

/* Of what has been gathered, and of the trainer as it is now. False after a line on standard error. */
bool image_fill(struct image *image, const struct trainer *trainer);
bool image_write(const struct image *image);
/* NULL is fine. */
void image_free(struct image *image);

#endif
