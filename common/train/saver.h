/* Saving checkpoints beside the training.
 *
 * A save has three parts. The snapshot (here, on all ranks) copies what each rank owns to host
 * memory: that is the stall. Then a thread on each rank writes its file and reads it back while
 * training goes on. Once all have, a thread on rank 0 commits and prunes. Threads never
 * communicate: ranks learn of each other's progress from flags that they exchange once a step.
 * There is never more than one save under way: the next one waits for its end.
 *
 * A save that fails is said aloud and remembered; training goes on.
 */
#ifndef COMMON_TRAIN_SAVER_H
#define COMMON_TRAIN_SAVER_H

#include "common/backend/host.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/folder.h"
#include "common/train/place.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SAVER_MESSAGE = 512, SAVER_FLAGS = 2 };

enum saver_phase { SAVER_IDLE, SAVER_WRITING, SAVER_COMMITTING };

struct saver {
    struct host *job; /* borrowed, as are dev and params */
    struct device *dev;
    char root[FOLDER_PATH];
    struct checkpoint_keep keep;
    int async;
    struct snapshot snap;
    struct manifest manifest; /* rank 0: of the save under way */
    char folder[FOLDER_PATH]; /* where it goes */
    enum saver_phase phase;
    pthread_t thread;
    int joinable;
    atomic_int done; /* set by the thread, last */
    enum status st;  /* the thread's; message: why */
    char message[SAVER_MESSAGE];
    int64_t step, saved;         /* of the save under way; of the newest complete one, or -1 */
    char failure[SAVER_MESSAGE]; /* why the last save failed; "" when it did not */
    double stall, began, wrote;  /* seconds: of the snapshot; on a clock; of file and read-back */
    double written;              /* of the file alone, on this rank */
    int removed;                 /* checkpoints pruned by the last commit */
    char trouble[SAVER_MESSAGE]; /* why not more */
};

/* Plans the files and takes the memory of snapshots. root: the folder of checkpoints. saved: step
 * of the newest one there, -1 for none. Removes what ended processes left there. Collective.
 * Errors: ST_ENOMEM, ST_EIO. */
enum status saver_open(struct saver *s, const struct place *place, const struct params *p,
                       const struct config *cfg, const char *root, int64_t saved);

/* Waits for a save under way, then releases everything. Local. */
void saver_close(struct saver *s);

/* Takes a snapshot and begins to write it; wait: returns when it is complete, or has failed, which
 * is no error here: see failure. cfg and state go into the manifest. Waits for the save before it.
 * Collective. Errors: ST_EDEVICE, ST_ECOMM, ST_EPEER. */
enum status saver_save(struct saver *s, const struct config *cfg,
                       const struct manifest_state *state, int wait);

/* This rank's flags, for a maximum over the job: its part is not done; it failed. Local. */
void saver_flags(const struct saver *s, double flag[SAVER_FLAGS]);

/* Goes on with the save under way as far as the flags of all ranks allow. Collective. */
enum status saver_advance(struct saver *s, const double flag[SAVER_FLAGS]);

/* Waits for the save under way. Collective. */
enum status saver_wait(struct saver *s);

#endif
