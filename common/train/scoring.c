#include "common/train/scoring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The best answers of a question so far. */
struct best {
    double mean, sum;
    int by_mean, by_sum;
};

/* Rows wait until a batch is full; each is the next answer of the next question. */
struct queue {
    struct scoring *s;
    struct evaluation *e;
    const struct choices *c;
    int64_t rows;             /* in the batch that is being filled */
    int64_t question, answer; /* whose loss comes next */
    struct best best;
    double *sum; /* [batch] */
};

/* The loss of the next answer in order. */
static void take(struct queue *q, const struct choices_question *now, double loss)
{
    int64_t n = now->answer_tokens[q->answer];
    int a = (int)q->answer;

    if (a == 0 || loss / (double)n < q->best.mean) {
        q->best.mean = loss / (double)n;
        q->best.by_mean = a;
    }
    if (a == 0 || loss < q->best.sum) {
        q->best.sum = loss;
        q->best.by_sum = a;
    }
    if (a == now->right) {
        q->s->loss_right += loss;
        q->s->tokens_right += n;
    }
    q->s->answers++;
    q->s->tokens += n;
    q->answer++;
    if (q->answer < now->answers)
        return;
    q->s->right_mean += q->best.by_mean == now->right;
    q->s->right_sum += q->best.by_sum == now->right;
    q->s->questions++;
    q->question++;
    q->answer = 0;
}

/* Runs the batch and takes the losses of its rows. */
static enum status flush(struct queue *q)
{
    int64_t seq = q->e->cfg.train.seq, batch = q->e->cfg.train.batch;

    for (int64_t i = q->rows * seq; i < batch * seq; i++) {
        q->e->tokens[i] = 0;
        q->e->targets[i] = LOADER_IGNORED;
    }
    TRY(evaluation_rows(q->e, q->sum));
    for (int64_t i = 0; i < q->rows; i++) {
        struct choices_question now;

        choices_question(&now, q->c, q->question);
        take(q, &now, q->sum[i]);
    }
    q->rows = 0;
    return ST_OK;
}

/* Context and answer as one row: its last token is a target only, the context's are none. */
static void fill_row(struct queue *q, const struct choices_question *now, int a)
{
    int64_t seq = q->e->cfg.train.seq, context = now->context_tokens, n = now->answer_tokens[a];
    int32_t *tokens = q->e->tokens + q->rows * seq, *targets = q->e->targets + q->rows * seq;

    for (int64_t i = 0; i < seq; i++) {
        tokens[i] = i < context           ? now->context[i]
                    : i < context + n - 1 ? now->answer[a][i - context]
                                          : 0;
        targets[i] = i >= context - 1 && i < context + n - 1 ? now->answer[a][i + 1 - context]
                                                             : LOADER_IGNORED;
    }
    q->rows++;
}

static enum status add_question(struct queue *q, int64_t i)
{
    struct choices_question now;

    choices_question(&now, q->c, i);
    for (int a = 0; a < now.answers; a++) {
        fill_row(q, &now, a);
        if (q->rows == q->e->cfg.train.batch)
            TRY(flush(q));
    }
    return ST_OK;
}

static enum status run_all(struct queue *q, int64_t questions)
{
    for (int64_t i = 0; i < questions; i++)
        TRY(add_question(q, i));
    return q->rows ? flush(q) : ST_OK;
}

enum status scoring_run(struct scoring *s, struct evaluation *e, const struct choices *c,
                        int64_t limit)
{
    struct queue q = {.s = s, .e = e, .c = c};
    enum status st;

    memset(s, 0, sizeof *s);
    FAIL_IF(e->cfg.train.seq < c->longest - 1, ST_EINTERNAL);
    if (c->largest >= e->cfg.model.vocab)
        return fail(ST_EFORMAT, "%s holds token %d; the model's vocabulary ends at %lld", c->path,
                    c->largest, (long long)e->cfg.model.vocab - 1);
    q.sum = malloc((size_t)e->cfg.train.batch * sizeof *q.sum);
    if (!q.sum)
        return fail(ST_ENOMEM, "no memory for the losses of a batch");
    st = run_all(&q, limit && limit < c->questions ? limit : c->questions);
    free(q.sum);
    return st;
}
