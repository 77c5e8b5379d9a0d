/* What a tokenizer file says: its tokens, its merges, and the way of a text to them.
 *
 *     text -> added tokens (raw) -> edits -> added tokens (edited) -> lead -> cuts -> words -> BPE
 *
 * A reader of a file format fills a recipe in; recipe_finish makes a tokenizer of it, and
 * recipe_encode.c runs it.
 */
#ifndef COMMON_TOKENIZER_RECIPE_H
#define COMMON_TOKENIZER_RECIPE_H

#include "common/tokenizer/added.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/edit.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/vocab.h"

#include <pthread.h>

enum cut_kind {
    CUT_GPT2,   /* by hand: SCAN_GPT2 */
    CUT_CL100K, /* by hand: SCAN_CL100K; digits: 1 or 3 */
    CUT_PATTERN,
    CUT_DIGIT,  /* each digit apart */
    CUT_DIGITS, /* runs of digits apart */
    CUT_BEFORE, /* before each `mark` */
    CUT_GAPS    /* before each `mark` that does not follow another one */
};

struct cut {
    enum cut_kind kind;
    int digits;
    int drop_rest, drop_matches; /* of a pattern: what is left out of the text */
    struct pattern pattern;
};

enum { CUTS = 8, FRAME = 8 };

struct recipe {
    struct vocab vocab;
    struct bpe bpe;
    struct added raw, edited; /* added tokens, looked for before and after the edits */
    struct edits edits, lead; /* of what lies between raw tokens; of each piece after all */
    struct cut cuts[CUTS];
    int cut_count;
    int edited_as_is; /* the texts of `edited` stand in the form that edits give */
    char mark[8];     /* what stands for a space: "\xe2\x96\x81" in SentencePiece's files */
    int mark_n;

    int byte_level;        /* symbols are bytes, else characters */
    int byte_fallback;     /* characters without a token become tokens of their bytes */
    int fuse_unknown;      /* characters in a row without a token become one `unknown` */
    int whole_words;       /* a word that is a token is not built of merges */
    int32_t unknown;       /* id, or -1 */
    int32_t byte_id[256];  /* of single bytes; -1: none */
    int32_t ascii_id[128]; /* of ASCII characters, where symbols are characters */
    int32_t before[FRAME], after[FRAME]; /* what goes around a text */
    int before_n, after_n;

    pthread_mutex_t lock; /* of idle */
    int lock_made;
    struct recipe_worker *idle; /* memory of threads that encode, not in use now */
};

/* An empty recipe. Release with recipe_close, at any time. Errors: ST_ENOMEM. */
enum status recipe_open(struct recipe **r);
void recipe_close(struct recipe *r);

/* Adds an added token to the vocabulary (where its id may be already; it gets its text) and to
 * those that are looked for, before or after the edits. A special one does not come out of the
 * merges any more. Errors: those of vocab_put and added_put. */
enum status recipe_added(struct recipe *r, const struct added_token *t, int edited);

/* Adds a step that cuts. Errors: ST_EFORMAT when there are too many. */
enum status recipe_cut(struct recipe *r, enum cut_kind kind, struct cut **made);

/* Seals and checks all, and makes the tokenizer's functions those of recipes; r then belongs to t.
 * Errors: those of the parts; ST_EFORMAT. On failure r is still the caller's. */
enum status recipe_finish(struct tokenizer *t, struct recipe *r, const char *kind);

/* See tokenizer_encode; part of what recipe_finish hands to t. */
enum status recipe_encode(struct token_list *out, const struct tokenizer *t, const void *bytes,
                          int64_t n, unsigned how);

/* Releases the memory of a thread that encoded; and the one after it in the list of idle ones. */
void recipe_worker_free(struct recipe_worker *w);
struct recipe_worker *recipe_next_idle(const struct recipe_worker *w);

#endif
