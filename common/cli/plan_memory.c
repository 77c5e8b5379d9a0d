/* `narrows plan memory`: the largest micro-batch of each strategy and form of recomputation. */
#include "common/base/text.h"
#include "common/cli/device_memory.h"
#include "common/cli/options.h"
#include "common/cli/plan.h"
#include "common/cli/yaml.h"
#include "common/tokenizer/tokenizer.h"
#include "common/train/place.h"

#include <stdlib.h>

struct plan_memory_options {
    const char *memory;
    int64_t ranks;
};

/* One row: what it changes in the configuration. */
struct variant {
    enum layer_kind layer;
    enum strategy_kind strategy;
    enum recompute_kind recompute;
};

/* What a device offers: of the machine's memory a rank's part on ref; on gpu what is free when the
 * device is open, and what it then holds already of what is counted. */
static enum status offered(size_t *bytes, const struct config *cfg, int64_t ranks)
{
    struct device_options opt = {.threads = 1, .local_size = 1};
    const struct backend *be = NULL;
    struct device_info info;
    struct device *dev;
    enum status st;

    TRY(place_backend(&be, cfg));
    TRY(device_open(&dev, be, &opt));
    st = device_info(dev, &info);
    device_close(dev);
    TRY(st);
    *bytes = cfg->run.backend == BACKEND_GPU ? info.memory_free + device_memory_opened(cfg)
                                             : info.memory_total / (size_t)ranks;
    return ST_OK;
}

static enum status limit_of(size_t *bytes, const struct plan_memory_options *o,
                            const struct config *cfg, int64_t ranks)
{
    double given;

    if (!o->memory)
        return offered(bytes, cfg, ranks);
    given = text_size(o->memory);
    if (!(given >= 1.0 && given < 0x1p62))
        return fail(ST_EUSAGE, "--memory is '%s': write a size as 80GiB, 512MiB or 141GB",
                    o->memory);
    *bytes = (size_t)given;
    return ST_OK;
}

/* The sizes of cfg, with other layers or another strategy. */
static enum status change(struct config *changed, const struct config *cfg, struct variant v,
                          int64_t ranks)
{
    struct config_model *m = &changed->model;

    *changed = *cfg;
    m->preset[0] = '\0'; /* its sizes are there */
    if (m->layer != v.layer) {
        m->layer = v.layer;
        m->outer_silu = SILU_AUTO;
        m->init = INIT_AUTO;
    }
    changed->parallel.strategy = v.strategy;
    changed->parallel.recompute = v.recompute;
    changed->parallel.grains = 0;
    TRY(config_resolve(changed, ranks, 0));
    return config_validate(changed, ranks);
}

static void print_fit(const struct memory_fit *fit, const struct config *cfg)
{
    long long n = (long long)fit->fits.micro_batch;
    char in[TEXT_NUMBER] = "-", over[TEXT_NUMBER] = "-";

    if (n > 0)
        text_bytes(in, (double)fit->fits.bytes);
    if (fit->over.micro_batch)
        text_bytes(over, (double)fit->over.bytes);
    printf("%11lld %14lld %12s %12s\n", n, n * (long long)cfg->train.seq, in, over);
}

static enum status row(const struct config *cfg, struct variant v, int64_t ranks, size_t bytes)
{
    struct memory_limit limit = {.bytes = bytes, .beside = device_memory_beside};
    struct config *changed = malloc(sizeof *changed);
    struct memory_fit fit;
    enum status st = changed ? ST_OK : fail(ST_ENOMEM, "no memory for a configuration");

    if (st == ST_OK)
        st = change(changed, cfg, v, ranks);
    printf("%-8s %-9s %-11s ", config_choice_name("model.layer", (int)v.layer),
           config_choice_name("parallel.strategy", (int)v.strategy),
           config_choice_name("parallel.recompute", (int)v.recompute));
    if (st == ST_ECONFIG) { /* these do not go together */
        printf("%11s  %s\n", "-", status_message());
        status_clear();
        st = ST_OK;
    } else if (st == ST_OK) {
        st = memory_fit(&fit, changed, &limit);
        if (st == ST_OK)
            print_fit(&fit, changed);
    }
    free(changed);
    return st;
}

static enum status table(const struct config *cfg, int64_t ranks, size_t bytes)
{
    static const struct variant variants[] = {
        {LAYER_FULL, STRATEGY_FULL, RECOMPUTE_NONE},
        {LAYER_FULL, STRATEGY_FULL, RECOMPUTE_ELEMENTWISE},
        {LAYER_FULL, STRATEGY_FULL, RECOMPUTE_BLOCK},
        {LAYER_COLA, STRATEGY_VANILLA, RECOMPUTE_NONE},
        {LAYER_COLA, STRATEGY_VANILLA, RECOMPUTE_ELEMENTWISE},
        {LAYER_COLA, STRATEGY_VANILLA, RECOMPUTE_BLOCK},
        {LAYER_COLA, STRATEGY_BTP, RECOMPUTE_NONE},
        {LAYER_COLA, STRATEGY_BTP, RECOMPUTE_ELEMENTWISE},
        {LAYER_COLA, STRATEGY_BTP, RECOMPUTE_BLOCK},
        {LAYER_COLA, STRATEGY_BTP, RECOMPUTE_BOTTLENECK},
    };
    char text[TEXT_NUMBER];

    printf("%s on %s, sequences of %lld tokens, tp %lld x dp %lld x pp %lld, micro-batches of a "
           "step: %lld\nmemory of a rank: %s\n\n",
           config_choice_name("train.precision", (int)cfg->train.precision),
           config_choice_name("run.backend", (int)cfg->run.backend), (long long)cfg->train.seq,
           (long long)cfg->parallel.tp, (long long)cfg->parallel.dp, (long long)cfg->parallel.pp,
           (long long)(cfg->train.batch / cfg->parallel.dp / cfg->train.micro_batch),
           text_bytes(text, (double)bytes));
    printf("%-8s %-9s %-11s %11s %14s %12s %12s\n", "layers", "strategy", "recompute",
           "micro-batch", "tokens at once", "needs", "one more");
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct variant v = variants[i];

        if (v.layer != LAYER_FULL && !config_low_rank(cfg))
            break; /* there is no rank to compare with */
        v.layer = v.layer == LAYER_FULL ? LAYER_FULL : cfg->model.layer;
        TRY(row(cfg, v, ranks, bytes));
    }
    return ST_OK;
}

static enum status read_config(struct config *cfg, const struct options *words, int64_t *ranks)
{
    struct tokenizer tokenizer;
    enum status st;

    config_default(cfg);
    TRY(yaml_read(cfg, words->word[0]));
    TRY(options_override(cfg, words));
    TRY(tokenizer_open(&tokenizer, cfg->data.tokenizer));
    st = config_resolve(cfg, *ranks, tokenizer.vocab);
    tokenizer_close(&tokenizer);
    TRY(st);
    TRY(config_validate(cfg, *ranks));
    *ranks = cfg->parallel.tp * cfg->parallel.dp * cfg->parallel.pp;
    return ST_OK;
}

static enum status plan(const struct options *words, const struct plan_memory_options *o)
{
    struct config *cfg = malloc(sizeof *cfg);
    int64_t ranks = o->ranks;
    size_t bytes = 0;
    enum status st = cfg ? ST_OK : fail(ST_ENOMEM, "no memory for a configuration");

    if (st == ST_OK)
        st = read_config(cfg, words, &ranks);
    if (st == ST_OK)
        st = limit_of(&bytes, o, cfg, ranks);
    if (st == ST_OK)
        st = table(cfg, ranks, bytes);
    free(cfg);
    return st;
}

enum status plan_memory(struct host *job, int argc, char **argv)
{
    struct plan_memory_options o = {0};
    const struct option table[] = {
        {"--memory", 'm', "SIZE", OPTION_TEXT, &o.memory, 0, 0,
         "memory of a rank, as 80GiB or 141GB (default: on gpu what the first device has free, on "
         "ref the machine's divided by the ranks)"},
        {"--ranks", 0, "N", OPTION_INT, &o.ranks, 1, 1 << 20,
         "as if on N ranks (default: parallel.tp x pp x dp)"},
        {0}};
    const struct options_spec spec = {
        "plan memory",
        "finds the largest micro-batch of each strategy and form of recomputation by rehearsal: "
        "'needs' fits the memory, 'one more' sequence does not",
        "CONFIG",
        1,
        1,
        true,
        table,
        "narrows plan memory examples/quickstart.yaml --memory 256MiB parallel.tp=1\n"
        "narrows plan memory examples/quickstart.yaml --memory 141GB model.preset=7b-cola "
        "run.backend=gpu\n    train.precision=bf16 train.seq=4096 parallel.tp=4 "
        "parallel.layout_exact=off"};
    struct options words;

    (void)job;
    TRY(options_parse(&words, &spec, argc, argv));
    return words.help ? options_help(stdout, &spec) : plan(&words, &o);
}
