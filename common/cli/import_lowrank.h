/* `narrows import --to-lowrank`: factors from a full-rank model. */
#ifndef COMMON_CLI_IMPORT_LOWRANK_H
#define COMMON_CLI_IMPORT_LOWRANK_H

#include "common/backend/host.h"
#include "common/checkpoint/model_files.h"

struct lowrank_wish {
    int64_t rank;          /* of every layer; 0: the model stays as it is */
    int cola;              /* B SiLU(A x), begun near the factors of B A x */
    const char *text;      /* whose activations weigh the error; NULL: plain */
    const char *tokenizer; /* for it, and for the settings that are written; NULL: the source's */
    const char *output;
};

/* A folder of this program's with the low-rank form of f, which must be full rank; prints what each
 * layer keeps. Embedding, head, gains and biases stay.
 *
 * Factors: ref/factor.h. A layer whose smaller side n is below the rank keeps n exact latents; the
 * rows of A beyond are drawn as CoLA's start values and the columns of B are zero, so that they add
 * nothing and can learn. CoLA: A is scaled so that the largest latent has second moment
 * (1/LOWRANK_LATENT)^2, and B by the inverse times two. SiLU(z) = z/2 + z^2/4 + ..., so the layer
 * begins as the SVD's up to about |z|/2 = 1/(2 LOWRANK_LATENT) of each latent; the outer SiLU stays
 * on, as in the full-rank model.
 *
 * Errors: ST_EUSAGE for a model that is low rank already; those of model_files.h and
 * calibrate.h. */
enum status import_lowrank(const struct model_files *f, struct host *job,
                           const struct lowrank_wish *w);

enum { LOWRANK_LATENT = 16 };

#endif
