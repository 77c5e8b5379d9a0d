#include "common/cli/bench.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/blas_kernel.h"
#include "common/cli/commands.h"
#include "common/cli/options.h"
#include "common/cli/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* ---- command ---- */

struct bench_options {
    int64_t rounds;
    const char *compare, *memory;
    bool floor;
};

/* cfg with the overrides of one variant, "key=value key=value", which win over the command line. */
static enum status apply(struct config *cfg, char *words)
{
    for (int i = 0; i < CONFIG_KEYS; i++)
        if (cfg->origin[i] == ORIGIN_ARGUMENT)
            cfg->origin[i] = ORIGIN_FILE;
    for (char *save = NULL, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        TRY(config_override(cfg, w));
    return ST_OK;
}

/* The base configuration, then each of "A; B; C". text is cut up and must outlive b. */
static enum status add_variants(struct bench *b, const struct config *base, char *text)
{
    TRY(bench_add(b, "", base));
    for (char *save = NULL, *v = text ? strtok_r(text, ";", &save) : NULL; v;
         v = strtok_r(NULL, ";", &save)) {
        struct config cfg = *base;
        char *copy = strdup(v);
        enum status st = copy ? apply(&cfg, copy) : fail(ST_ENOMEM, "no memory");

        free(copy);
        TRY(host_agree(b->job, st));
        TRY(bench_add(b, v + strspn(v, " "), &cfg));
    }
    return ST_OK;
}

/* What is measured. alone: the first configuration and no other, which stays open. */
struct bench_kind {
    const char *name;
    enum status (*run)(struct bench *b);
    int alone;
};

static const struct bench_kind *find_kind(const char *name)
{
    static const struct bench_kind table[] = {
        {"gemm", bench_products, 1},   {"attention", bench_attention, 1},
        {"kernels", bench_kernels, 1}, {"checkpoint", bench_checkpoint, 1},
        {"layer", bench_layers, 0},    {"step", bench_steps, 0}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(name, table[i].name))
            return &table[i];
    return NULL;
}

/* What can be said before anything is opened. */
static enum status check_words(const struct bench_options *o, const char *what, size_t *memory)
{
    const struct bench_kind *kind = find_kind(what);
    double given = o->memory ? text_size(o->memory) : 0.0;

    if (!kind)
        return fail(ST_EUSAGE,
                    "bench knows gemm, attention, kernels, layer, step and checkpoint, not '%s'",
                    what);
    if ((o->compare || o->floor) && kind->alone)
        return fail(ST_EUSAGE,
                    "bench %s measures one configuration: --compare and --floor are for layer and "
                    "step",
                    what);
    if (o->memory && !(given >= 1.0 && given < 0x1p62))
        return fail(ST_EUSAGE, "--memory is '%s': write a size as 80GiB, 512MiB or 141GB",
                    o->memory);
    *memory = (size_t)given;
    return ST_OK;
}

static enum status run(struct bench *b, const char *what)
{
    const struct place *p = &b->item[0].place;
    const struct bench_kind *kind = find_kind(what);

    log_info("%s  OpenBLAS %s  %d rank(s) x %d thread(s)  large products %.1f GFLOP/s in all",
             p->at.dev->be->name, blas_kernel_name(), host_size(b->job), p->at.dev->threads,
             1e-9 * p->peak);
    if (kind->alone)
        TRY(bench_case_open(b, &b->item[0]));
    return kind->run(b);
}

static enum status bench(struct host *job, const struct bench_options *o,
                         const struct options *words, size_t memory)
{
    struct bench b = {.job = job, .rounds = (int)o->rounds, .floor = o->floor, .memory = memory};
    struct config *base = malloc(sizeof *base);
    char *text = o->compare ? strdup(o->compare) : NULL;
    enum status st = ST_OK;

    b.item = calloc(BENCH_CASES, sizeof *b.item);
    if (!base || !b.item || (o->compare && !text))
        st = fail(ST_ENOMEM, "no memory for a bench");
    if (st == ST_OK) {
        config_default(base);
        st = yaml_read(base, words->word[1]);
    }
    if (st == ST_OK)
        st = options_override(base, words);
    st = host_agree(job, st);
    if (st == ST_OK)
        st = add_variants(&b, base, text);
    if (st == ST_OK)
        st = run(&b, words->word[0]);
    if (b.item)
        bench_close(&b);
    free(base);
    free(text);
    return st;
}

enum status command_bench(struct host *job, int argc, char **argv)
{
    struct bench_options o = {.rounds = 5};
    const struct option table[] = {
        {"--rounds", 'r', "N", OPTION_INT, &o.rounds, 1, BENCH_ROUNDS,
         "timed rounds of each configuration, in turn; the median counts"},
        {"--compare", 'c', "LIST", OPTION_TEXT, &o.compare, 0, 0,
         "further configurations of layer or step, in turn with the first: overrides as 'key=value "
         "key=value; key=value'"},
        {"--floor", 'f', NULL, OPTION_SWITCH, &o.floor, 0, 0,
         "with layer or step: print beside the measured time the floor of its parts in this run: "
         "each "
         "product, attention and message of the configuration launched alone, the best of the "
         "rounds, "
         "and the bytes that all else must move over the rate of a copy; takes some seconds a "
         "configuration"},
        {"--memory", 'm', "SIZE", OPTION_TEXT, &o.memory, 0, 0,
         "memory of a rank, as 80GiB (default: on gpu what is free, on ref the machine's divided "
         "by "
         "the ranks); configurations that do not fit together are opened one after another, up to "
         "three times each"},
        {0}};
    const struct options_spec spec = {
        "bench",
        "times gemm, attention, kernels (what moves memory, beside a copy), layer (the blocks), "
        "step (a whole training step) or checkpoint (saves and loads beside plain writes and "
        "reads)",
        "WHAT CONFIG",
        2,
        2,
        true,
        table,
        "narrows bench step examples/quickstart.yaml parallel.tp=1\n"
        "narrows bench step examples/full.yaml --compare 'model.layer=cola parallel.strategy=btp'\n"
        "narrows launch -n 4 -- bench layer examples/vanilla.yaml parallel.tp=4 "
        "--compare 'parallel.strategy=btp'"};
    struct options words;
    size_t memory = 0;

    TRY(host_agree(job, options_parse(&words, &spec, argc, argv)));
    if (words.help)
        return host_rank(job) == 0 ? options_help(stdout, &spec) : ST_OK;
    TRY(host_agree(job, check_words(&o, words.word[0], &memory)));
    return bench(job, &o, &words, memory);
}
