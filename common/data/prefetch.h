/* The batch after the one that is trained on, read by a thread meanwhile.
 *
 * What a batch holds is a function of its number (mixture.h), so reading ahead leaves no state: who
 * saves a run saves the number of steps that it has made, and whatever had been read beyond them is
 * read again. One batch is read ahead, while the caller holds another. The texts must not be closed
 * before the thread is.
 */
#ifndef COMMON_DATA_PREFETCH_H
#define COMMON_DATA_PREFETCH_H

#include "common/data/mixture.h"

#include <pthread.h>

/* Rows of a global batch on the host: tokens, targets and starts [rows, seq]. */
struct batch {
    int32_t *tokens, *targets;
    int32_t *starts; /* where the document of each token begins in its row; NULL: nobody asks */
    int64_t valid;   /* targets of the whole global batch */
};

struct prefetch {
    const struct mixture *from;
    int64_t first, rows;
    struct batch next; /* the thread's, from asked to ready */
    int64_t step;      /* whose batch that is; -1: none was asked for */
    int ready, over;
    enum status st; /* how reading it went, */
    char message[512];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked, done;
    int running;
};

/* Memory for `rows` rows of seq tokens; with_starts: starts too. The caller closes it, also after a
 * failure. Errors: ST_ENOMEM. */
enum status batch_open(struct batch *b, int64_t rows, int64_t seq, int with_starts);
void batch_close(struct batch *b);

/* Starts the thread that reads rows first .. first + rows - 1 of the batches of `from`, which is
 * borrowed. Close it also after a failure. Errors: ST_ENOMEM; ST_EINTERNAL without a thread. */
enum status prefetch_open(struct prefetch *p, const struct mixture *from, int64_t first,
                          int64_t rows, int with_starts);

/* Ends the thread, after the batch that it is at. A zeroed p is allowed. */
void prefetch_close(struct prefetch *p);

/* b, opened alike, becomes the batch of `step` in exchange for its memory, which the batch of
 * `next` (-1: none) is then read into. Waits for the thread when it is not done yet, or was asked
 * for another step. Errors: those of mixture_rows and mixture_valid for `step`; b is then
 * undefined, and nothing is read ahead. */
enum status prefetch_take(struct prefetch *p, struct batch *b, int64_t step, int64_t next);

#endif
