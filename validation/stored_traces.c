/* The program against PyTorch: values stored in validation/data, in float64 and float32. */
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/weights.h"
#include "validation/gradients.h"
#include "validation/stored.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One stored run, and how the program is to repeat it. */
struct replay {
    const char *name, *dir; /* in the folder of stored values */
    const char *words;      /* the model */
    const char *form;       /* further words: precision, strategy, norm */
    int fp32;
};

/* What was found: largest differences. */
struct found {
    double loss, norm, grad_norm, grad_value, weight_norm, weight_value, logits;
};

static double largest(double a, double b)
{
    return b <= a ? a : b; /* keeps what is not a number */
}

/* ---- witness ---- */

/* Tokens and targets [batch, seq] of a step. */
static enum status witness_batch(struct session *s, const struct stored *f, int64_t step)
{
    const json_t *tokens = json_array_get(stored_get(f, "tokens"), (size_t)step);
    const json_t *targets = json_array_get(stored_get(f, "targets"), (size_t)step);
    int64_t batch = s->cfg.train.batch, seq = s->cfg.train.seq;

    if ((int64_t)json_array_size(tokens) != batch || (int64_t)json_array_size(targets) != batch)
        return fail(ST_EFORMAT, "%s holds no batch %lld", f->path, (long long)step);
    s->valid = 0;
    for (int64_t i = 0; i < batch; i++)
        for (int64_t j = 0; j < seq; j++) {
            int64_t at = i * seq + j;

            s->tokens[at] = (int32_t)stored_number(json_array_get(tokens, (size_t)i), (size_t)j);
            s->targets[at] = (int32_t)stored_number(json_array_get(targets, (size_t)i), (size_t)j);
            s->valid += s->targets[at] >= 0;
        }
    return ST_OK;
}

/* The gradient of one parameter against its stored tensor, relative to the largest stored value. */
static enum status whole_gradient(struct session *s, const struct safetensors *f,
                                  const struct param *row, double *worst)
{
    const struct safetensors_tensor *t = safetensors_find(f, row->name);
    int64_t n = row->real_rows * row->cols;
    double *want, most = 0.0, off = 0.0;
    enum status st;

    if (!t || t->count != n)
        return fail(ST_EFORMAT, "%s holds no gradient of %s", f->path, row->name);
    want = malloc((size_t)n * sizeof *want);
    if (!want)
        return fail(ST_ENOMEM, "no memory for a stored gradient");
    st = safetensors_read(want, DT_F64, t, 0, n);
    if (st == ST_OK)
        st = session_read(s, s->values, &row->g);
    for (int64_t i = 0; st == ST_OK && i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; st == ST_OK && i < n; i++)
        off = largest(off, stored_apart(s->values[i], want[i], most));
    free(want);
    *worst = largest(*worst, off);
    return st;
}

static enum status witness_gradients(struct session *s, const char *dir, struct found *d)
{
    struct params *p = &s->step.model.params;
    char path[4096];
    struct safetensors f;
    enum status st = ST_OK;

    snprintf(path, sizeof path, "%s/grads.safetensors", dir);
    TRY(safetensors_open(&f, path));
    if (f.n != p->n)
        st = fail(ST_EFORMAT, "%s holds %d gradients of %d parameters", path, f.n, p->n);
    for (int i = 0; st == ST_OK && i < p->n; i++)
        st = whole_gradient(s, &f, &p->item[i], &d->grad_value);
    safetensors_close(&f);
    return st;
}

static enum status witness_logits(struct session *s, const struct stored *f, struct found *d)
{
    const json_t *list = stored_get(f, "logits_step0");
    int64_t vocab = s->cfg.model.vocab, token[8];
    int n = (int)json_array_size(list);
    double *out;
    enum status st;

    if (n < 1 || n > 8)
        return fail(ST_EFORMAT, "%s holds %d rows of logits, 1 to 8 are expected", f->path, n);
    for (int i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, (size_t)i);

        token[i] = json_integer_value(json_object_get(o, "row")) * s->cfg.train.seq +
                   json_integer_value(json_object_get(o, "position"));
    }
    out = malloc((size_t)n * (size_t)vocab * sizeof *out);
    st = out ? stored_logits(s, out, token, n) : fail(ST_ENOMEM, "no memory for logits");
    for (int i = 0; st == ST_OK && i < n; i++)
        stored_compare(&d->logits, out + i * vocab, vocab,
                       json_object_get(json_array_get(list, (size_t)i), "logits"));
    free(out);
    return st;
}

/* ---- stories260K ---- */

/* Step s, row i reads tokens [(s batch + i) seq, + seq + 1) of the stream. */
static enum status stories_batch(struct session *s, const char *dir, int64_t step)
{
    int64_t batch = s->cfg.train.batch, seq = s->cfg.train.seq;
    char path[4096];
    unsigned char two[2];
    FILE *f;
    int short_read = 0;

    snprintf(path, sizeof path, "%s/train_tokens.u16", dir);
    f = fopen(path, "rb");
    if (!f)
        return fail(ST_EIO, "%s cannot be read", path);
    for (int64_t i = 0; i < batch && !short_read; i++) {
        short_read = fseek(f, 2 * (long)((step * batch + i) * seq), SEEK_SET) != 0;
        for (int64_t j = 0; j <= seq && !short_read; j++) {
            short_read = fread(two, 1, 2, f) != 2;
            if (j < seq)
                s->tokens[i * seq + j] = two[0] | two[1] << 8;
            if (j > 0)
                s->targets[i * seq + j - 1] = two[0] | two[1] << 8;
        }
    }
    fclose(f);
    s->valid = batch * seq;
    return short_read ? fail(ST_EFORMAT, "%s ends before batch %lld", path, (long long)step)
                      : ST_OK;
}

/* ---- both ---- */

static enum status summaries(double *norm, double *value, struct session *s, const json_t *stored,
                             int gradients)
{
    struct params *p = &s->step.model.params;

    for (int i = 0; i < p->n; i++) {
        const struct param *row = &p->item[i];

        TRY(stored_summary(norm, value, s, row, gradients ? &row->g : param_value(row),
                           json_object_get(stored, row->name)));
    }
    return ST_OK;
}

static int is_witness(const struct replay *w)
{
    return strncmp(w->dir, "witness/", 8) == 0;
}

static enum status batch_of(struct session *s, const struct replay *w, const struct stored *f,
                            const char *dir, int64_t step)
{
    return is_witness(w) ? witness_batch(s, f, step) : stories_batch(s, dir, step);
}

/* The whole trace; losses and norms relative to themselves. */
static enum status run_trace(struct session *s, const struct replay *w, const struct stored *f,
                             const char *dir, struct found *d)
{
    const json_t *trace = stored_get(f, "trace");
    int64_t steps = (int64_t)json_array_size(trace);

    if (steps != s->cfg.train.steps)
        return fail(ST_EFORMAT, "%s holds %lld steps, %lld are expected", f->path, (long long)steps,
                    (long long)s->cfg.train.steps);
    for (int64_t i = 0; i < steps; i++) {
        const json_t *row = json_array_get(trace, (size_t)i);
        double loss = stored_number(row, 1), norm = stored_number(row, 2);
        struct step_result got;

        TRY(batch_of(s, w, f, dir, i));
        TRY(step_train(&s->step, s->tokens, s->targets, s->valid, i + 1, s->cfg.train.lr, &got));
        d->loss = largest(d->loss, stored_apart(got.loss, loss, loss));
        d->norm = largest(d->norm, stored_apart(got.grad_norm, norm, norm));
    }
    return summaries(&d->weight_norm, &d->weight_value, s,
                     stored_get(f, is_witness(w) ? "weights_after" : "weights_after_50"), 0);
}

static enum status run_replay(struct session *s, const struct replay *w, const struct stored *f,
                              const char *dir, struct found *d)
{
    char path[4096];
    double loss;

    snprintf(path, sizeof path, "%s/%s", dir,
             is_witness(w) ? "weights.safetensors" : "model.safetensors");
    TRY(weights_load_file(&s->step.model, s->place.at.dev, path));
    TRY(batch_of(s, w, f, dir, 0));
    TRY(session_gradients(s, &loss));
    if (is_witness(w)) {
        TRY(witness_gradients(s, dir, d));
        TRY(witness_logits(s, f, d));
    } else {
        TRY(summaries(&d->grad_norm, &d->grad_value, s, stored_get(f, "grads_at_step0"), 1));
    }
    return run_trace(s, w, f, dir, d);
}

static void rows(struct report *r, const struct replay *w, const struct found *d, int64_t steps)
{
    enum bound_id trace = w->fp32 ? BOUND_TRACE32 : BOUND_TRACE64;
    enum bound_id norm = w->fp32 ? BOUND_NORM32 : trace;
    enum bound_id stored = w->fp32         ? BOUND_STORED32
                           : is_witness(w) ? BOUND_STORED64
                                           : BOUND_STORED_DIGITS;
    enum bound_id after = w->fp32 ? BOUND_NORM32 : is_witness(w) ? trace : BOUND_STORED_DIGITS;

    report_value(r, trace, d->loss, "%s: loss, %lld steps", w->name, (long long)steps);
    report_value(r, norm, d->norm, "%s: grad norm, %lld steps", w->name, (long long)steps);
    report_value(r, stored, d->grad_value, "%s: gradients of step 0", w->name);
    if (is_witness(w))
        report_value(r, stored, d->logits, "%s: logits of step 0", w->name);
    else
        report_value(r, w->fp32 ? BOUND_STORED32 : BOUND_STORED64, d->grad_norm,
                     "%s: norms of the gradients of step 0", w->name);
    report_value(r, after, d->weight_norm, "%s: norms of weights at the end", w->name);
    report_value(r, after, d->weight_value, "%s: weights at the end", w->name);
}

static enum status replay(const struct check_options *o, struct report *r, struct host *job,
                          struct session *s, const struct replay *w)
{
    char words[1024], dir[2048];
    struct found d = {0};
    struct stored f;
    enum status st;

    snprintf(dir, sizeof dir, "%s/%s", o->data, w->dir);
    snprintf(words, sizeof words,
             "train.lr=1e-3 train.schedule=constant train.warmup=0 train.beta1=0.9 "
             "train.beta2=0.95 train.eps=1e-8 train.weight_decay=0.1 train.clip=1 "
             "run.threads=1 train.batch=4 parallel.dp=1 %s %s",
             w->words, w->form);
    TRY(stored_open(&f, dir, is_witness(w) ? "trace.json" : "stories260k_train_trace.json"));
    st = session_open(s, job, words);
    if (st == ST_OK) {
        st = run_replay(s, w, &f, dir, &d);
        if (st == ST_OK)
            rows(r, w, &d, s->cfg.train.steps);
        session_close(s);
    }
    stored_close(&f);
    return st;
}

#define WITNESS                                                                                \
    "model.width=64 model.layers=2 model.heads=8 model.ffn=192 model.rank=16 model.vocab=264 " \
    "model.norm_eps=1e-6 train.seq=32 train.steps=20 "
#define COLA  WITNESS "model.layer=cola"
#define OUTER WITNESS "model.layer=cola model.outer_silu=on model.kv_heads=4 model.tied=on"
#define SVD   WITNESS "model.layer=svd"
#define FULL  WITNESS "model.layer=full"
#define STORIES                                                                      \
    "model.layer=full model.width=64 model.layers=5 model.heads=8 model.kv_heads=4 " \
    "model.ffn=172 model.vocab=512 model.tied=on model.norm_eps=1e-5 train.seq=64 train.steps=50"
#define F64 "train.precision=fp64 "

static const struct replay replays[] = {
    {"witness cola, fp64", "witness/cola", COLA, F64, 0},
    {"witness cola tied, fp64", "witness/cola_outer_gqa_tied", OUTER, F64, 0},
    {"witness svd, fp64", "witness/svd", SVD, F64, 0},
    {"witness full, fp64", "witness/full", FULL, F64, 0},
    {"stories260K, fp64", "stories260k", STORIES, F64, 0},
    {"witness cola, fp64 sync", "witness/cola", COLA, F64 "parallel.norm=sync", 0},
    {"witness cola, fp64 online_local", "witness/cola", COLA, F64 "parallel.norm=online_local", 0},
    {"witness cola, fp64 vanilla", "witness/cola", COLA, F64 "parallel.strategy=vanilla", 0},
    {"witness svd, fp64 recompute, micro-batch 1", "witness/svd", SVD,
     F64 "parallel.recompute=bottleneck train.micro_batch=1", 0},
    {"witness cola, fp32", "witness/cola", COLA, "", 1},
    {"witness cola tied, fp32", "witness/cola_outer_gqa_tied", OUTER, "", 1},
    {"witness svd, fp32", "witness/svd", SVD, "", 1},
    {"witness full, fp32", "witness/full", FULL, "", 1},
    {"stories260K, fp32", "stories260k", STORIES, "", 1},
};

enum status gradients_stored(const struct check_options *o, struct report *r, struct host *job)
{
    struct session *s = malloc(sizeof *s);
    enum status st = s ? ST_OK : fail(ST_ENOMEM, "no memory for a session");

    for (size_t i = 0; st == ST_OK && i < sizeof replays / sizeof *replays; i++)
        if (check_wanted(o, replays[i].name))
            st = replay(o, r, job, s, &replays[i]);
    free(s);
    return st;
}
