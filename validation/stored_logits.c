/* stories260K as a published checkpoint: the loss at 200 positions and logits at four of them. */
#include "common/checkpoint/weights.h"
#include "validation/gradients.h"
#include "validation/stored.h"

#include <math.h>
#include <stdlib.h>

#define MODEL                                                                        \
    "model.layer=full model.width=64 model.layers=5 model.heads=8 model.kv_heads=4 " \
    "model.ffn=172 model.vocab=512 model.tied=on model.norm_eps=1e-5 train.seq=200 " \
    "train.batch=1 train.steps=1 parallel.dp=1 run.threads=1 "

/* Inputs are all tokens but the last, targets all but the first. */
static enum status text(struct session *s, const struct stored *f)
{
    const json_t *tokens = stored_get(f, "tokens");
    int64_t seq = s->cfg.train.seq;

    if ((int64_t)json_array_size(tokens) != seq + 1)
        return fail(ST_EFORMAT, "%s holds %zu tokens, %lld are expected", f->path,
                    json_array_size(tokens), (long long)seq + 1);
    for (int64_t i = 0; i < seq; i++) {
        s->tokens[i] = (int32_t)stored_number(tokens, (size_t)i);
        s->targets[i] = (int32_t)stored_number(tokens, (size_t)i + 1);
    }
    s->valid = seq;
    return ST_OK;
}

static enum status losses(struct session *s, const struct stored *f, double *each, double *mean)
{
    int64_t seq = s->cfg.train.seq;
    double *loss = malloc((size_t)seq * sizeof *loss), got;
    double want = json_number_value(stored_get(f, "mean_nll_f32_weights"));
    enum status st = loss ? session_loss(s, &got) : fail(ST_ENOMEM, "no memory for losses");

    if (st == ST_OK) {
        for (int64_t i = 0; i < seq; i++)
            loss[i] = dtype_load(s->step.host_loss, s->place.at.dev->wide, i);
        stored_compare(each, loss, seq, stored_get(f, "nll_per_position"));
        *mean = stored_apart(got, want, want);
    }
    free(loss);
    return st;
}

static enum status logits(struct session *s, const struct stored *f, double *worst)
{
    json_t *list = stored_get(f, "logits");
    int64_t vocab = s->cfg.model.vocab, token[8];
    int n = 0;
    const char *key;
    json_t *value;
    double *out;
    enum status st;

    json_object_foreach(list, key, value) if (n < 8) token[n++] = strtol(key, NULL, 10);
    out = malloc((size_t)(n + 1) * (size_t)vocab * sizeof *out);
    st = out ? stored_logits(s, out, token, n) : fail(ST_ENOMEM, "no memory for logits");
    n = 0;
    json_object_foreach(list, key, value) if (st == ST_OK && n < 8)
        stored_compare(worst, out + vocab * n++, vocab, value);
    free(out);
    return st == ST_OK && n == 0 ? fail(ST_EFORMAT, "%s holds no logits", f->path) : st;
}

static enum status run(struct session *s, const struct check_options *o, struct report *r,
                       const struct stored *f, int fp32)
{
    enum bound_id digits = fp32 ? BOUND_STORED32 : BOUND_STORED_DIGITS;
    double each = 0.0, mean = INFINITY, worst = 0.0;
    char path[4096];

    snprintf(path, sizeof path, "%s/stories260k/model.safetensors", o->data);
    TRY(weights_load_file(&s->step.model, s->place.at.dev, path));
    TRY(text(s, f));
    TRY(losses(s, f, &each, &mean));
    TRY(logits(s, f, &worst));
    report_value(r, fp32 ? BOUND_STORED32 : BOUND_STORED64, mean, "stories260K text, %s: mean loss",
                 fp32 ? "fp32" : "fp64");
    report_value(r, digits, each, "stories260K text, %s: loss at 200 positions",
                 fp32 ? "fp32" : "fp64");
    report_value(r, digits, worst, "stories260K text, %s: logits at 4 positions",
                 fp32 ? "fp32" : "fp64");
    return ST_OK;
}

enum status gradients_logits(const struct check_options *o, struct report *r, struct host *job)
{
    static const char *const words[] = {MODEL "train.precision=fp64", MODEL};
    struct session *s;
    struct stored f;
    char dir[2048];
    enum status st;

    if (!check_wanted(o, "stories260K text"))
        return ST_OK;
    snprintf(dir, sizeof dir, "%s/stories260k", o->data);
    TRY(stored_open(&f, dir, "stories260k_logits.json"));
    s = malloc(sizeof *s);
    st = s ? ST_OK : fail(ST_ENOMEM, "no memory for a session");
    for (int fp32 = 0; st == ST_OK && fp32 < 2; fp32++) {
        st = session_open(s, job, words[fp32]);
        if (st == ST_OK) {
            st = run(s, o, r, &f, fp32);
            session_close(s);
        }
    }
    free(s);
    stored_close(&f);
    return st;
}
