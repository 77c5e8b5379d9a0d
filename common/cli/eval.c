/* narrows eval: how well a model predicts a text, or answers multiple-choice questions. */
#include "common/base/elementary.h"
#include "common/base/log.h"
#include "common/checkpoint/weights.h"
#include "common/cli/commands.h"
#include "common/cli/options.h"
#include "common/cli/saved.h"
#include "common/data/choices.h"
#include "common/train/evaluation.h"
#include "common/train/scoring.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct eval_options {
    int64_t sequences; /* or questions */
};

/* ---- texts and shards ---- */

static void report(const struct evaluation *e, const struct evaluation_result *r)
{
    double mean = r->loss / (double)r->targets, nats = 0.69314718055994530942;
    int64_t tokens = r->sequences * e->cfg.train.seq;

    log_info("sequences   %" PRId64 " of %" PRId64 " tokens; %" PRId64 " targets, %" PRId64
             " bytes of text",
             r->sequences, e->cfg.train.seq, r->targets, r->bytes);
    log_info("loss        %.9f nats a token", mean);
    log_info("perplexity  %.6f", elementary_exp(mean));
    if (r->bytes)
        log_info("bits/byte   %.9f", r->loss / nats / (double)r->bytes);
    log_info("exactly     %a nats in all", r->loss);
    log_info("time        %.2f s, %.0f tokens/s", r->seconds,
             r->seconds > 0 ? (double)tokens / r->seconds : 0.0);
}

static enum status eval_text(struct evaluation *e, const struct config *cfg, struct host *job,
                             const char *const word[2], const struct eval_options *o)
{
    struct evaluation_result r;
    enum status st;

    TRY(evaluation_open(e, cfg, job, word[0], word[1], o->sequences));
    st = evaluation_run(e, &r);
    if (st == ST_OK && host_rank(job) == 0)
        report(e, &r);
    evaluation_close(e);
    return st;
}

/* ---- questions ---- */

static void report_score(const struct choices *c, const struct scoring *s)
{
    log_info("questions   %" PRId64 " of %" PRId64 ", %" PRId64 " answers, %" PRId64
             " tokens of them",
             s->questions, c->questions, s->answers, s->tokens);
    log_info("accuracy    %.4f (%" PRId64 " right) by loss a token, llm.c's rule",
             (double)s->right_mean / (double)s->questions, s->right_mean);
    log_info("            %.4f (%" PRId64 " right) by loss of the whole answer",
             (double)s->right_sum / (double)s->questions, s->right_sum);
    log_info("loss        %.9f nats a token of the right answers",
             s->loss_right / (double)s->tokens_right);
}

/* Sequences as long as the longest question needs; more than the model has seen is said. */
static void fit_questions(struct config *cfg, const struct choices *c)
{
    int64_t need = c->longest > 3 ? c->longest - 1 : 2;

    if (need > cfg->train.seq)
        log_warn("the longest question takes %" PRId64
                 " positions; the model was made for %" PRId64,
                 need, cfg->train.seq);
    cfg->train.seq = need;
}

static enum status eval_questions(struct evaluation *e, struct config *cfg, struct host *job,
                                  const char *const word[2], const struct eval_options *o)
{
    struct choices c;
    struct scoring s;
    enum status st;

    TRY(host_agree(job, choices_open(&c, word[1])));
    fit_questions(cfg, &c);
    st = evaluation_open(e, cfg, job, word[0], NULL, 0);
    if (st == ST_OK) {
        st = scoring_run(&s, e, &c, o->sequences);
        if (st == ST_OK && host_rank(job) == 0)
            report_score(&c, &s);
        evaluation_close(e);
    }
    choices_close(&c);
    return st;
}

/* ---- the command ---- */

/* Nonzero when the command line sets the key. */
static int given(const struct config *cfg, const char *key)
{
    return cfg->origin[config_find(key) - config_keys()] == ORIGIN_ARGUMENT;
}

static enum status read_settings(struct config *cfg, char *folder, const struct options *words)
{
    TRY(weights_find(folder, words->word[0]));
    TRY(saved_settings(cfg, folder, words));
    if (!given(cfg, "parallel.dp"))
        cfg->parallel.dp = 0; /* all ranks of the job */
    if (!given(cfg, "train.micro_batch"))
        cfg->train.micro_batch = 0;
    if (!given(cfg, "train.head_chunk"))
        cfg->train.head_chunk = 0;
    return ST_OK;
}

/* What an evaluation takes: too much for the stack. */
struct work {
    struct config cfg;
    struct evaluation e;
    char folder[WEIGHTS_PATH];
};

static enum status eval(struct host *job, const struct options *words, const struct eval_options *o)
{
    struct work *w = malloc(sizeof *w);
    enum status st;

    if (!w)
        return host_agree(job, fail(ST_ENOMEM, "no memory for an evaluation"));
    st = host_agree(job, read_settings(&w->cfg, w->folder, words));
    if (st == ST_OK) {
        const char *const word[2] = {w->folder, words->word[1]};

        log_info("model       %s", word[0]);
        log_info("data        %s", word[1]);
        st = choices_is(word[1]) ? eval_questions(&w->e, &w->cfg, job, word, o)
                                 : eval_text(&w->e, &w->cfg, job, word, o);
    }
    free(w);
    return st;
}

enum status command_eval(struct host *job, int argc, char **argv)
{
    struct eval_options o = {0};
    const struct option table[] = {{"--sequences", 'n', "N", OPTION_INT, &o.sequences, 1, 1 << 30,
                                    "only the first N sequences, or questions"},
                                   {0}};
    struct options words;
    const struct options_spec spec = {
        "eval",
        "computes loss, perplexity and bits per byte of a model on a text or on token shards, or "
        "its "
        "accuracy on multiple-choice questions (llm.c's files)",
        "RUN|FOLDER|FILE.bin DATA",
        2,
        2,
        true,
        table,
        "narrows eval runs/quickstart examples/data/tinyshakespeare/val.txt\n"
        "narrows launch -n 2 -- eval imported val.txt train.seq=512 train.batch=16\n"
        "narrows eval imported hellaswag_val.bin"};

    TRY(host_agree(job, options_parse(&words, &spec, argc, argv)));
    if (words.help)
        return host_rank(job) == 0 ? options_help(stdout, &spec) : ST_OK;
    return eval(job, &words, &o);
}
