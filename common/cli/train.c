#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/blas_kernel.h"
#include "common/cli/commands.h"
#include "common/cli/dry_run.h"
#include "common/cli/interrupt.h"
#include "common/cli/options.h"
#include "common/cli/yaml.h"
#include "common/train/trainer.h"

#include <math.h>
#include <stdlib.h>

struct train_options {
    bool print_config, dry_run;
    int64_t ranks; /* of a dry run */
};

static void settings(const struct trainer *t)
{
    const struct config *c = &t->cfg;
    const struct step_memory *m = &t->step.memory;
    char a[TEXT_NUMBER], b[TEXT_NUMBER], d[TEXT_NUMBER], e[TEXT_NUMBER], f[TEXT_NUMBER];

    log_info("model      %s  d %lld  layers %lld  heads %lld/%lld  ffn %lld  rank %lld  vocab %lld "
             "(%lld padded)  %s parameters",
             config_choice_name("model.layer", (int)c->model.layer), (long long)c->model.width,
             (long long)c->model.layers, (long long)c->model.heads, (long long)c->model.kv_heads,
             (long long)c->model.ffn, config_low_rank(c) ? (long long)c->model.rank : 0LL,
             (long long)c->model.vocab, (long long)t->step.model.shape.vocab_padded,
             text_count(a, (double)params_count(&t->step.model.params)));
    log_info(
        "layout     tp %lld x dp %lld  strategy %s  norm %s  recompute %s  grains %lld  %s  %s",
        (long long)c->parallel.tp, (long long)c->parallel.dp, t->step.model.strategy->name,
        config_choice_name("parallel.norm", (int)c->parallel.norm),
        config_choice_name("parallel.recompute", (int)c->parallel.recompute),
        (long long)c->parallel.grains,
        c->parallel.layout_exact ? "same bits in every layout"
                                 : "layout_exact off: sums in rank order",
        config_choice_name("train.precision", (int)c->train.precision));
    log_info("batch      %lld sequences x %lld tokens  micro-batch %lld  steps %lld  lr %g %s",
             (long long)c->train.batch, (long long)c->train.seq, (long long)t->step.micro,
             (long long)c->train.steps, c->train.lr,
             config_choice_name("train.schedule", (int)c->train.schedule));
    log_info("data       %s  %lld sequences  validation %lld sequences  vocabulary of '%s'",
             c->data.train, (long long)t->train.samples, (long long)t->validation.samples,
             c->data.tokenizer);
    log_info("memory     weights and optimiser %s  gradients %s  activations %s  scratch %s a rank",
             text_bytes(b, (double)m->state), text_bytes(d, (double)m->grads),
             text_bytes(e, (double)m->acts), text_bytes(f, (double)m->scratch));
    log_info("device     %s (OpenBLAS %s)  %d thread(s) a rank  products at %sFLOP/s in all",
             t->place.at.dev->be->name, blas_kernel_name(), t->place.at.dev->threads,
             text_count(a, t->place.peak));
    log_info("run        %s", t->dir.path);
}

static void summary(const struct trainer *t, double seconds)
{
    double tokens = (double)t->done * (double)(t->cfg.train.batch * t->cfg.train.seq);
    char a[TEXT_NUMBER], b[TEXT_NUMBER], d[TEXT_NUMBER];

    log_info("done       %lld steps in %s  %s tokens  %s tok/s  best validation loss %.4f "
             "(perplexity %.2f)",
             (long long)t->done, text_duration(a, seconds), text_count(b, tokens),
             text_count(d, tokens / seconds), t->best, exp(t->best));
    log_info("run folder %s: config.yaml, metrics.jsonl, train.log%s", t->dir.path,
             t->cfg.run.save ? ", best/, final/" : "");
}

static enum status train(struct host *job, const struct config *cfg)
{
    struct trainer *t = malloc(sizeof *t);
    enum status st, end;

    if (!t)
        return fail(ST_ENOMEM, "no memory for a trainer");
    st = trainer_open(t, cfg, job, interrupt_requested);
    if (st == ST_OK) {
        settings(t);
        st = trainer_run(t);
        if (st == ST_OK || st == ST_ESTOP)
            summary(t, trainer_seconds(t));
        end = trainer_close(t);
        st = st == ST_OK ? host_agree(job, end) : st;
    }
    free(t);
    return st;
}

static enum status read_config(struct config *cfg, const struct options *words)
{
    config_default(cfg);
    TRY(yaml_read(cfg, words->word[0]));
    return options_override(cfg, words);
}

static enum status print_config(const struct host *job, struct config *cfg)
{
    TRY(config_resolve(cfg, host_size(job), 0));
    return host_rank(job) == 0 ? config_table(stdout, cfg) : ST_OK;
}

static const struct options_spec *spec_of(struct train_options *o, struct option *table,
                                          struct options_spec *spec)
{
    const struct option options[] = {
        {"--print-config", 0, NULL, OPTION_SWITCH, &o->print_config, 0, 0,
         "print every key with its value, default, unit and meaning, then stop"},
        {"--dry-run", 0, NULL, OPTION_SWITCH, &o->dry_run, 0, 0,
         "print parameters, memory, traffic and FLOPs of a step, then stop; allocates nothing "
         "large"},
        {"--ranks", 0, "N", OPTION_INT, &o->ranks, 1, 1 << 20, "with --dry-run: as if on N ranks"},
        {0}};

    for (int i = 0; i < 4; i++)
        table[i] = options[i];
    *spec = (struct options_spec){
        "train",
        "trains a model as CONFIG (YAML) says; key=value arguments win over the file",
        "CONFIG",
        1,
        1,
        true,
        table,
        "narrows train examples/quickstart.yaml parallel.tp=1\n"
        "narrows launch -n 4 -- train examples/quickstart.yaml parallel.tp=2 train.lr=1e-3\n"
        "narrows train examples/quickstart.yaml --dry-run model.preset=7b-cola parallel.tp=4 "
        "--ranks 8"};
    return spec;
}

enum status command_train(struct host *job, int argc, char **argv)
{
    struct train_options o = {0};
    struct option table[4];
    struct options_spec spec;
    struct options words;
    struct config *cfg;
    enum status st;

    st = options_parse(&words, spec_of(&o, table, &spec), argc, argv);
    TRY(host_agree(job, st));
    if (words.help)
        return host_agree(job, host_rank(job) == 0 ? options_help(stdout, &spec) : ST_OK);
    cfg = malloc(sizeof *cfg);
    if (!cfg)
        return fail(ST_ENOMEM, "no memory for a configuration");
    st = host_agree(job, read_config(cfg, &words));
    if (st == ST_OK && o.print_config)
        st = host_agree(job, print_config(job, cfg));
    else if (st == ST_OK && o.dry_run)
        st = host_agree(job, dry_run(job, cfg, o.ranks ? o.ranks : host_size(job)));
    else if (st == ST_OK)
        st = train(job, cfg);
    free(cfg);
    return st;
}
