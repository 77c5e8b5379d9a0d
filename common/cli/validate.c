#include "common/cli/blas_kernel.h"
#include "common/cli/commands.h"
#include "common/cli/launch.h"
#include "common/cli/options.h"
#include "validation/agree.h"
#include "validation/cases.h"
#include "validation/chain.h"
#include "validation/check.h"
#include "validation/job.h"

#include <stdio.h>
#include <string.h>

enum { OUTPUT_MOST = 1 << 20, JOB_SECONDS = 600 };

struct validate_options {
    bool quick, all, any_order, bounds;
    const char *only, *data, *backend;
    int64_t steps, ranks;
};

static enum status run_job(char **output, int *failed, int ranks, const char *const *argv)
{
    const struct launch job = {.ranks = ranks, .threads = 1, .timeout = JOB_SECONDS};
    struct launch_result result;

    *output = NULL;
    TRY(launch_run(&result, &job, (char *const *)argv, output, OUTPUT_MOST));
    if (result.interrupted)
        return fail(ST_ESTOP, "stopped on request");
    *failed = result.exit_code != 0;
    return ST_OK;
}

struct subject {
    const char *name;
    enum status (*check)(const struct check_options *o, struct report *r);
    enum status (*check_here)(const struct check_options *o, struct report *r, struct host *job);
    int64_t steps, quick_steps; /* of a run */
    const char *data;
};

static const struct subject subjects[] = {
    {"layouts", check_layouts, NULL, 20, 5, NULL},
    {"resume", check_resume, NULL, 0, 0, NULL},
    {"gradients", NULL, check_gradients, 0, 0, "validation/data"},
    {"strategies", check_strategies, NULL, 0, 0, NULL},
    {"ledger", check_ledger, NULL, 0, 0, NULL},
    {"ops", check_ops, NULL, 0, 0, NULL},
    {"step", NULL, agree_step, 0, 0, NULL},
    {"repeat", NULL, agree_repeat, 5, 5, NULL},
    {"train", NULL, agree_train, 300, 30, "examples/data/tinyshakespeare/train.txt"},
};

#define SUBJECTS "layouts, resume, gradients, strategies, ledger, ops, step, repeat and train"

/* In this process alone, as a job of one rank. */
static enum status check_here(const struct subject *s, const struct check_options *o,
                              struct report *r)
{
    char word[] = "narrows", *args[] = {word, NULL}, **argv = args;
    struct host *job;
    int argc = 1;
    enum status st;

    TRY(host_start(&job, &argc, &argv));
    st = s->check_here(o, r, job);
    host_end(job, st);
    return st;
}

static const struct subject *find(const char *name)
{
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (!strcmp(name, subjects[i].name))
            return &subjects[i];
    return NULL;
}

static enum status check(const char *name, struct check_options *o)
{
    const struct subject *s = find(name);
    struct report r;

    if (!s)
        return fail(ST_EUSAGE, "validate knows " SUBJECTS ", not '%s'", name);
    if (!o->steps)
        o->steps = o->quick ? s->quick_steps : s->steps;
    if (!o->data)
        o->data = s->data;
    report_open(&r, stdout, name, o->backend, o->kernel);
    TRY(s->check ? s->check(o, &r) : check_here(s, o, &r));
    return report_close(&r);
}

static const struct options_spec *spec_of(struct validate_options *v, struct option table[10],
                                          struct options_spec *spec)
{
    const struct option options[] = {
        {"--quick", 0, NULL, OPTION_SWITCH, &v->quick, 0, 0, "a part of it, in a minute or so"},
        {"--all", 0, NULL, OPTION_SWITCH, &v->all, 0, 0,
         "layouts: every TP x PP x DP up to --ranks, other factors pairwise; most of an hour"},
        {"--only", 0, "TEXT", OPTION_TEXT, &v->only, 0, 0,
         "rows whose name holds TEXT; of ops with the type, as 'rms_norm bf16'"},
        {"--data", 0, "PATH", OPTION_TEXT, &v->data, 0, 0,
         "gradients: folder of stored values (validation/data); train: text (tinyshakespeare)"},
        {"--steps", 0, "N", OPTION_INT, &v->steps, 1, 100000,
         "steps of a run: layouts (20, quick 5), repeat (5), train (300, quick 30)"},
        {"--ranks", 0, "N", OPTION_INT, &v->ranks, 1, 64, "layouts: most ranks of a run (8)"},
        {"--backend", 0, "NAME", OPTION_TEXT, &v->backend, 0, 0,
         "ops, step, repeat, train: ref or gpu (ref)"},
        {"--any-order", 0, NULL, OPTION_SWITCH, &v->any_order, 0, 0,
         "ops of gpu: as with run.deterministic=off"},
        {"--bounds", 0, NULL, OPTION_SWITCH, &v->bounds, 0, 0, "print the table of bounds, stop"},
        {0}};

    for (int i = 0; i < 10; i++)
        table[i] = options[i];
    *spec = (struct options_spec){
        "validate",
        "compares: layouts (same bits), resume (same bits after stops and kills), gradients "
        "(differences, stored values), strategies (same "
        "model), ledger (traffic and FLOPs), ops (each operation), and of a backend and the "
        "reference step (gradients), repeat (same bits twice), train (loss curves); exit status 1 "
        "on a miss",
        "WHAT [CONFIG]",
        0,
        2,
        false,
        table,
        "narrows validate ledger --quick\nnarrows validate layouts --steps 5 --ranks 4\n"
        "narrows validate layouts examples/quickstart.yaml --steps 3 --ranks 2\n"
        "narrows validate step --backend gpu\n"
        "narrows validate --bounds"};
    return spec;
}

enum status command_validate(struct host *job, int argc, char **argv)
{
    struct validate_options v = {.backend = "ref", .ranks = 8};
    struct option table[10];
    struct options_spec spec;
    struct options words;
    struct check_options o;

    (void)job;
    TRY(options_parse(&words, spec_of(&v, table, &spec), argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    if (v.bounds) {
        bounds_print(stdout);
        return ST_OK;
    }
    if (words.words == 0)
        return fail(ST_EUSAGE, "validate what? One of " SUBJECTS);
    o = (struct check_options){.quick = v.quick,
                               .all = v.all,
                               .only = v.only,
                               .any_order = v.any_order,
                               .data = v.data,
                               .config = words.words > 1 ? words.word[1] : NULL,
                               .steps = v.steps,
                               .ranks = v.ranks,
                               .kernel = blas_kernel_name(),
                               .backend = v.backend,
                               .launch = {run_job}};
    return check(words.word[0], &o);
}

enum status command_validate_job(struct host *job, int argc, char **argv)
{
    char words[CASE_WORDS] = "";
    size_t used = 0;

    if (argc > 2 && !strcmp(argv[0], "fault"))
        return chain_fault_main(job, argv[1], argc - 2, argv + 2);
    if (argc < 2)
        return fail(ST_EUSAGE, "validate-job is what narrows validate starts: FILE key=value...");
    for (int i = 1; i < argc && used < sizeof words; i++)
        used +=
            (size_t)snprintf(words + used, sizeof words - used, "%s%s", i > 1 ? " " : "", argv[i]);
    if (used >= sizeof words)
        return fail(ST_EUSAGE, "more than %d characters of words", CASE_WORDS);
    return job_main(job, argv[0], words);
}
