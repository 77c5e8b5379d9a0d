/* Text from a model, token by token, on one rank or on the TP ranks of one replica.
 *
 * The model sees a window of at most train.seq positions, as in training. When the window is full,
 * its older half is dropped and the rest run again from position 0: text of any length can be
 * written, and each token is a function of the tokens before it, whether or not a cache is used.
 */
#ifndef COMMON_TRAIN_GENERATE_H
#define COMMON_TRAIN_GENERATE_H

#include "common/model/decode.h"
#include "common/tokenizer/decoder.h"
#include "common/train/sampler.h"
#include "common/train/step.h"

struct generator {
    struct decode decode;
    struct device *dev;
    struct arena memory, scratch;
    int32_t *context; /* [window] tokens that the model sees */
    int64_t window;
    int64_t n;      /* tokens in context */
    int64_t cached; /* of them, those whose keys and values stand in the cache */
    int64_t total;  /* tokens pushed so far */
    int uncached;   /* all of the context is run again for each token */
    void *raw;      /* logits as they come from the device */
    float *logits;  /* [padded vocabulary] */
};

/* Sets up g over the weights of m; takes device memory that a rehearsal has measured. window:
 * positions that the model sees, 2 or more. Local. Errors: ST_ENOMEM, ST_ECONFIG for a window
 * below 2. On failure nothing is left open. */
enum status generator_open(struct generator *g, struct model *m, const struct step_place *at,
                           int64_t window, int uncached);
void generator_close(struct generator *g);

/* Appends a token to the context. Local. Errors: ST_EINTERNAL for one outside the vocabulary. */
enum status generator_push(struct generator *g, int32_t token);

/* *logits = those of the token after the context (at least one must have been pushed), the same
 * on every rank; they stay until the next call. Collective over TP. */
enum status generator_logits(struct generator *g, const float **logits);

/* What is to be written, and where to. */
struct generate_request {
    const char *prompt; /* continued; it is not written. Empty: a document begins */
    int64_t prompt_bytes;
    int64_t tokens; /* most tokens to write */
    struct sampler sampler;
    int uncached;         /* no cache: slower, the same text */
    int past_end;         /* does not stop at the end of a document */
    int framed;           /* the prompt gets what the tokenizer puts around a text (a begin id) */
    const int32_t *stops; /* more ids that end the text, stop_count of them; not owned */
    int stop_count;
    int (*stop)(void); /* polled for each token on one rank, may be NULL */

    /* Takes text as it comes, in whole UTF-8 characters (and bytes that are none). May be NULL. */
    enum status (*write)(void *context, const char *bytes, int64_t n);
    void *context;
};

struct generate_result {
    int64_t prompt_tokens, tokens; /* tokens: an end of document that stopped it is not counted */
    int ended;                     /* stopped at the end of a document, or at one of stops */
    double prompt_seconds;         /* to the logits after the prompt */
    double seconds;                /* for the tokens after that */
};

/* The request that the section `sample` of a configuration makes, without write. */
struct generate_request generate_request(const struct config *cfg);

/* Writes text with the weights of m (window: train.seq of its configuration). The model may have
 * more ids than the tokenizer: those are never chosen. Collective over TP; a rank that fails leaves
 * the others waiting until it calls host_agree. Errors: those of sampler and tokenizer, ST_ENOMEM,
 * ST_ESTOP when stop() says so (r is then valid), what write returns. */
enum status generate_text(struct generate_result *r, struct model *m, const struct step_place *at,
                          const struct tokenizer *t, const struct generate_request *q);

#endif
