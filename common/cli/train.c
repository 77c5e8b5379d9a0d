#include "common/checkpoint/weights.h"
#include "common/cli/commands.h"
#include "common/cli/dry_run.h"
#include "common/cli/interrupt.h"
#include "common/cli/options.h"
#include "common/cli/train_report.h"
#include "common/cli/yaml.h"
#include "common/train/trainer.h"

#include <stdlib.h>

enum { OPTIONS = 5 };

struct train_options {
    bool print_config, dry_run, resume;
    int64_t ranks; /* of a dry run */
};

static enum status train(struct host *job, const struct config *cfg, const char *cfg_path)
{
    struct trainer *t = malloc(sizeof *t);
    enum status st, end;

    if (!t)
        return fail(ST_ENOMEM, "no memory for a trainer");
    st = trainer_open(t, cfg, job, interrupt_requested);
    if (st == ST_OK) {
        train_settings(t);
        st = trainer_run(t);
        if (st == ST_OK)
            st = train_sample(t);
        if (st == ST_OK || st == ST_ESTOP)
            train_summary(t, cfg_path);
        end = trainer_close(t);
        st = st == ST_OK ? host_agree(job, end) : st;
    }
    free(t);
    return st;
}

/* Without a file the keys can be printed, no more. */
static enum status read_config(struct config *cfg, const struct options *words,
                               const struct train_options *o)
{
    config_default(cfg);
    if (words->words > 0)
        TRY(yaml_read(cfg, words->word[0]));
    else if (!o->print_config)
        return fail(ST_EUSAGE, "narrows train needs CONFIG: see narrows train --help");
    TRY(options_override(cfg, words));
    if (o->resume)
        TRY(config_override(cfg, "checkpoint.resume=auto"));
    return weights_adopt(cfg);
}

static enum status print_config(const struct host *job, struct config *cfg)
{
    TRY(config_resolve(cfg, host_size(job), 0));
    return host_rank(job) == 0 ? config_table(stdout, cfg) : ST_OK;
}

/* One process rehearses whatever the configuration says. */
static int64_t dry_ranks(const struct host *job, const struct train_options *o)
{
    if (o->ranks)
        return o->ranks;
    return host_size(job) > 1 ? host_size(job) : 0;
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
        {"--resume", 0, NULL, OPTION_SWITCH, &o->resume, 0, 0,
         "go on from the newest whole checkpoint of the run (checkpoint.resume=auto); begin it "
         "when "
         "it has none yet"},
        {"--ranks", 0, "N", OPTION_INT, &o->ranks, 1, 1 << 20,
         "with --dry-run: as if on N ranks (default: the job's; of one process, parallel.tp x dp)"},
        {0}};

    for (int i = 0; i < OPTIONS; i++)
        table[i] = options[i];
    *spec = (struct options_spec){
        "train",
        "trains a model as CONFIG (YAML) says; key=value arguments win over the file",
        "CONFIG",
        0,
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
    struct option table[OPTIONS];
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
    st = host_agree(job, read_config(cfg, &words, &o));
    if (st == ST_OK && o.print_config)
        st = host_agree(job, print_config(job, cfg));
    else if (st == ST_OK && o.dry_run)
        st = host_agree(job, dry_run(job, cfg, dry_ranks(job, &o)));
    else if (st == ST_OK)
        st = train(job, cfg, words.word[0]);
    free(cfg);
    return st;
}
