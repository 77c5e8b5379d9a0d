/* A training run from configuration to final weights. */
#ifndef COMMON_TRAIN_TRAINER_H
#define COMMON_TRAIN_TRAINER_H

#include "common/backend/trace.h"
#include "common/data/dataset.h"
#include "common/data/prefetch.h"
#include "common/model/config.h"
#include "common/train/lr.h"
#include "common/train/metrics.h"
#include "common/train/place.h"
#include "common/train/run_dir.h"
#include "common/train/saver.h"
#include "common/train/shadow.h"
#include "common/train/start.h"

enum { TRAINER_MAX_SKIPS = 10 }; /* updates in a row that may be skipped before the run stops */

struct trainer_pending;

struct trainer {
    struct config cfg; /* resolved */
    struct host *job;  /* borrowed */
    struct place place;
    struct tokenizer tokenizer;
    struct dataset data;
    struct lr lr;
    struct step step;
    struct run_dir dir;
    struct metrics metrics;
    struct saver saver;       /* open while run.save is on */
    struct shadow shadow;     /* open with shadow.every */
    struct trace *trace;      /* while a profile is taken */
    char resume[CONFIG_TEXT]; /* checkpoint.resume, which the run's own configuration leaves out */
    struct batch batch;       /* this rank's rows of the one that is worked on       */
    struct prefetch ahead;    /* reads the next                                      */
    struct trainer_pending *pending; /* [step_slots]: of the steps that have not been read  */
    struct step_result *found;       /* [step_slots]                                        */
    int (*stop_requested)(void);
    int64_t done;                /* updates given to the device; some may not have been read */
    int64_t first;               /* those made before this process: the step it went on from */
    char from[FOLDER_PATH];      /* the checkpoint it went on from */
    int resumed, skipped_damage; /* from a checkpoint; passing over damaged ones */
    int skips;                   /* in a row */
    double loss, best;           /* last training loss read; best validation loss so far */
    struct start start;          /* up to the first step */
    double opened, started;      /* on a clock: trainer_open, trainer_run */
    double since;                /* the first step that has not been read began; what is no step
                                  * left out */
    double stop_after;           /* seconds after `opened`; 0: never */
    int opened_dir, saving;
};

/* Resolves and validates cfg against the job (ranks, tokenizer), opens data, device, step and run
 * folder, draws the start values, prints the table of settings. stop_requested (may be NULL) is
 * polled once a step. Collective; all ranks return the same status. On failure nothing is left
 * open. */
enum status trainer_open(struct trainer *t, const struct config *cfg, struct host *job,
                         int (*stop_requested)(void));

/* All steps, validations and saves. ST_ESTOP when asked to stop, at checkpoint.stop_at, or after
 * checkpoint.stop_after: the current step is finished, a checkpoint and the weights are saved
 * first. ST_EIO when all went well but the last checkpoint could not be saved. Collective. */
enum status trainer_run(struct trainer *t);

/* Mean loss over the validation set, exact for any batch and layout. Collective. */
enum status trainer_validate(struct trainer *t, double *loss, int64_t *valid);

/* Closes everything; returns the first thing that could not be written. */
enum status trainer_close(struct trainer *t);

/* Seconds since trainer_run began. */
double trainer_seconds(const struct trainer *t);

/* Seconds on a clock that only goes forward. */
double trainer_now(void);

/* out [FOLDER_PATH] = <run folder>/checkpoints. */
void trainer_checkpoints_path(char *out, const struct trainer *t);

/* The path of the weights that a run leaves: <run folder>/final. */
void trainer_weights_path(char *out, size_t n, const struct trainer *t, const char *which);

#endif
