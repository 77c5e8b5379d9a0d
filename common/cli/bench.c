#include "common/cli/bench.h"

#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/cli/blas_kernel.h"
#include "common/cli/commands.h"
#include "common/cli/options.h"
#include "common/cli/yaml.h"
#include "common/tokenizer/tokenizer.h"

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

/* ---- cases ---- */

static enum status random_batch(struct bench_case *c)
{
    size_t n = (size_t)((c->step.end - c->step.begin) * c->cfg.train.seq);
    struct rng_key key = rng_key(1, RNG_TEST, (uint64_t)c->step.begin);

    c->tokens = malloc(n * sizeof *c->tokens);
    c->targets = malloc(n * sizeof *c->targets);
    if (!c->tokens || !c->targets)
        return fail(ST_ENOMEM, "no memory for %zu random tokens", n);
    for (size_t i = 0; i < n; i++) {
        c->tokens[i] = (int32_t)rng_below(&key, 2 * i, (uint64_t)c->cfg.model.vocab);
        c->targets[i] = (int32_t)rng_below(&key, 2 * i + 1, (uint64_t)c->cfg.model.vocab);
    }
    return ST_OK;
}

static enum status settle(struct bench_case *c, int ranks)
{
    struct tokenizer t;

    TRY(tokenizer_open(&t, c->cfg.data.tokenizer));
    TRY(config_resolve(&c->cfg, ranks, t.vocab));
    tokenizer_close(&t);
    return config_validate(&c->cfg, ranks);
}

static enum status open_case(struct bench *b, struct bench_case *c)
{
    struct step_memory memory;

    TRY(host_agree(b->job, settle(c, host_size(b->job))));
    host_set_timeout(b->job, c->cfg.parallel.timeout);
    TRY(place_open(&c->place, &c->cfg, b->job));
    TRY(place_measure_peak(&c->place, &c->cfg)); /* before the memory of steps is taken */
    TRY(step_plan_at(&memory, NULL, NULL, &c->cfg, &c->place.mesh, place_wide(&c->cfg), 1));
    TRY(host_agree(b->job, step_open(&c->step, &c->cfg, &c->place.at, &memory, 1)));
    TRY(step_init(&c->step));
    return random_batch(c);
}

static void close_case(struct bench_case *c)
{
    free(c->tokens);
    free(c->targets);
    if (c->step.cfg)
        step_close(&c->step);
    if (c->place.job)
        place_close(&c->place);
}

enum status bench_add(struct bench *b, const char *name, const struct config *cfg)
{
    struct bench_case *c;

    FAIL_IF(!b->item, ST_EINTERNAL);
    if (b->cases == BENCH_CASES)
        return fail(ST_EUSAGE, "at most %d configurations in one bench", BENCH_CASES);
    c = &b->item[b->cases];
    memset(c, 0, sizeof *c);
    c->name = name;
    c->cfg = *cfg;
    b->cases++;
    return open_case(b, c);
}

void bench_close(struct bench *b)
{
    for (int i = 0; i < b->cases; i++)
        close_case(&b->item[i]);
    free(b->item);
}

/* ---- command ---- */

struct bench_options {
    int64_t rounds;
    const char *compare;
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

static enum status run(struct bench *b, const char *what)
{
    static const struct {
        const char *name;
        enum status (*run)(struct bench *b);
    } table[] = {{"gemm", bench_products},   {"attention", bench_attention},
                 {"kernels", bench_kernels}, {"layer", bench_layers},
                 {"step", bench_steps},      {"checkpoint", bench_checkpoint}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(what, table[i].name)) {
            const struct place *p = &b->item[0].place;

            log_info(
                "%s  OpenBLAS %s  %d rank(s) x %d thread(s)  large products %.1f GFLOP/s in all",
                p->at.dev->be->name, blas_kernel_name(), host_size(b->job), p->at.dev->threads,
                1e-9 * p->peak);
            return table[i].run(b);
        }
    return fail(ST_EUSAGE,
                "bench knows gemm, attention, kernels, layer, step and checkpoint, not '%s'", what);
}

static enum status bench(struct host *job, const struct bench_options *o,
                         const struct options *words)
{
    struct bench b = {.job = job, .rounds = (int)o->rounds};
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
         "further configurations: overrides as 'key=value key=value; key=value'"},
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

    TRY(host_agree(job, options_parse(&words, &spec, argc, argv)));
    if (words.help)
        return host_rank(job) == 0 ? options_help(stdout, &spec) : ST_OK;
    return bench(job, &o, &words);
}
