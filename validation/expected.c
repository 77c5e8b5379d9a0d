#include "validation/expected.h"

#include "common/base/arena.h"
#include "common/model/runs.h"

/* What a block, or an end, sends for one token. */
struct share {
    int64_t calls, reduced, scattered;
};

struct sizes {
    int64_t d, k, f, r, p;
};

static struct sizes sizes_of(const struct config *c)
{
    const struct config_model *m = &c->model;

    return (struct sizes){.d = m->width,
                          .k = m->kv_heads * (m->width / m->heads),
                          .f = m->ffn,
                          .r = m->rank,
                          .p = c->parallel.tp};
}

static int is_strong(const struct config *c)
{
    return c->parallel.vanilla == VANILLA_STRONG;
}

static struct share block_forward_share(const struct config *c)
{
    struct sizes s = sizes_of(c);

    switch (c->parallel.strategy) {
    case STRATEGY_FULL:
        return (struct share){2, 2 * s.d, 0};
    case STRATEGY_VANILLA:
        if (is_strong(c)) /* q, k, v scattered; o gathered; P_o; gate and up; P_w */
            return (struct share){5, 2 * s.d + 2 * s.f, 2 * s.d + 2 * s.k};
        return (struct share){7, 3 * s.d + 2 * s.k + 2 * s.f, 0};
    default:
        return (struct share){c->parallel.grouping ? 4 : 7,
                              7 * s.r + (c->parallel.norm == NORM_SYNC ? 0 : 2), 0};
    }
}

static struct share block_backward_share(const struct config *c)
{
    struct sizes s = sizes_of(c);

    switch (c->parallel.strategy) {
    case STRATEGY_FULL:
        return (struct share){2, 2 * s.d, 0};
    case STRATEGY_VANILLA:
        if (is_strong(c)) /* e; second norm; o scattered; q, k, v gathered; first norm */
            return (struct share){5, 2 * s.d + s.f, 2 * s.d + 2 * s.k};
        return (struct share){4, 3 * s.d + s.f, 0};
    default:
        return (struct share){c->parallel.grouping ? 4 : 7, 7 * s.r, 0};
    }
}

static struct share statistics_share(const struct config *c)
{
    int sync = c->parallel.strategy == STRATEGY_BTP && c->parallel.norm == NORM_SYNC;

    return sync ? (struct share){2, 2, 0} : (struct share){0};
}

/* Forward goes in half-batches, each with messages of its own: the same elements in all. */
static struct share in_halves(struct share whole, const struct config *c)
{
    if (c->parallel.overlap == OVERLAP_ALL && c->train.micro_batch > 1)
        whole.calls *= 2;
    return whole;
}

static struct share recompute_share(const struct config *c)
{
    struct share forward = block_forward_share(c), norm = statistics_share(c);

    if (c->parallel.recompute != RECOMPUTE_BLOCK)
        return (struct share){0};
    if (c->parallel.strategy == STRATEGY_FULL)
        return (struct share){1, c->model.width, 0};
    forward.calls += norm.calls;
    forward.reduced += norm.reduced;
    return forward;
}

static struct share embed_share(const struct config *c)
{
    if (c->parallel.strategy != STRATEGY_BTP)
        return (struct share){1, c->model.width, 0};
    return c->model.tied ? (struct share){2, 0, 2 * c->model.width} : (struct share){0};
}

/* The same for each chunk of the head: its calls are per chunk, its elements per token. */
static struct share head_share(const struct config *c)
{
    int64_t d = c->model.width, p = c->parallel.tp, chunk = config_head_chunk(c);
    int64_t chunks = (c->train.micro_batch + chunk - 1) / chunk;

    if (c->parallel.strategy != STRATEGY_BTP)
        return (struct share){2 * chunks, d, 3 * p};
    return (struct share){5 * chunks, 2, 2 * d + 3 * p}; /* the statistic, h, losses; dh, its dot */
}

/* Tensors of which a rank holds a part. */
static int64_t cut_tensors(const struct config *c)
{
    int heads_cut = c->parallel.strategy != STRATEGY_VANILLA || is_strong(c);
    int64_t block = c->parallel.strategy == STRATEGY_FULL      ? 7
                    : c->parallel.strategy == STRATEGY_VANILLA ? 14
                                                               : 16;
    int64_t ends = 1 + !c->model.tied + (c->parallel.strategy == STRATEGY_BTP); /* final gain */

    block += c->model.qkv_bias && heads_cut ? 3 : 0;
    return c->model.layers * block + ends;
}

/* This rank's share of a tensor of n elements, rounded up to the alignment of arenas. */
static int64_t aligned(int64_t n, int64_t p, int64_t bytes)
{
    int64_t unit = ARENA_ALIGN / bytes;

    return (n / p + unit - 1) / unit * unit;
}

/* Tensors that every TP rank holds whole. */
static int64_t whole_tensors(const struct config *c)
{
    int64_t biases = c->model.qkv_bias && c->parallel.strategy == STRATEGY_VANILLA && !is_strong(c)
                         ? 3 * c->model.layers
                         : 0;

    return c->parallel.strategy == STRATEGY_BTP ? 0 : 2 * c->model.layers + 1 + biases;
}

/* What a stage holds. */
struct holding {
    int64_t layers, runs; /* runs: virtual stages */
    int first, last;
};

static struct holding holding_of(const struct config *c, int stage)
{
    int pp = (int)c->parallel.pp, v = pp > 1 ? (int)c->parallel.virtual_stages : 1;
    int first[RUNS_MAX + 1] = {0, (int)c->model.layers};
    struct holding h = {.runs = v, .first = stage == 0, .last = stage == pp - 1};

    if (pp > 1 && runs_deal(first, c, pp * v) != ST_OK)
        return h; /* a configuration that config_validate refuses */
    for (int i = stage; i < pp * v; i += pp)
        h.layers += first[i + 1] - first[i];
    return h;
}

/* Elements of this rank's gradients as they lie in memory; a tied matrix has two, on both its
 * stages. */
static int64_t gradient_elements(const struct config *c, const struct holding *h, int64_t bytes)
{
    struct sizes s = sizes_of(c);
    int64_t gain_p = c->parallel.strategy == STRATEGY_BTP ? s.p : 1, r = s.r, sum = 0;
    int64_t heads_p = c->parallel.strategy != STRATEGY_VANILLA || is_strong(c) ? s.p : 1;
    int64_t ends = c->model.tied ? 2 * (h->first || h->last) : h->first + h->last;
    const int64_t io[7][2] = {{s.d, s.d}, {s.d, s.k}, {s.d, s.k}, {s.d, s.d},
                              {s.d, s.f}, {s.d, s.f}, {s.f, s.d}};

    for (int i = 0; i < 7; i++)
        if (config_low_rank(c))
            sum += aligned(io[i][0] * r, s.p, bytes) + aligned(io[i][1] * r, s.p, bytes);
        else
            sum += aligned(io[i][0] * io[i][1], s.p, bytes);
    sum += 2 * aligned(s.d, gain_p, bytes);
    if (c->model.qkv_bias)
        sum += aligned(s.d, heads_p, bytes) + 2 * aligned(s.k, heads_p, bytes);
    return h->layers * sum + h->last * aligned(s.d, gain_p, bytes) +
           ends * aligned(config_vocab_padded(c) * s.d, s.p, bytes);
}

/* calls with `elements` in all; times: how often a rank sends its (n-1)/n of them. */
static void add(struct expected_row *row, int64_t calls, int64_t elements, int64_t bytes, int64_t n,
                int times)
{
    if (n == 1 || calls == 0)
        return;
    row->calls += calls;
    row->elements += elements;
    row->bytes += times * elements * bytes * (n - 1) / n;
}

/* Sends, and the ring's share of collectives, of a row of section 8 for `times` tokens. */
static void put(struct expected_row *row, struct share share, int64_t layers, int64_t micros,
                int64_t tokens, int64_t p, int64_t bytes)
{
    int64_t times = layers * micros * tokens;

    if (p == 1)
        return;
    row->calls = share.calls * layers * micros;
    row->elements = (share.reduced + share.scattered) * times;
    row->bytes = (2 * share.reduced + share.scattered) * times * bytes * (p - 1) / p;
}

static void put_sends(struct expected_row *row, const struct config *c, const struct holding *h,
                      int64_t micros, int64_t tokens, int64_t wide)
{
    int64_t d = c->model.width, p = c->parallel.tp;
    int64_t act = c->train.precision == PRECISION_BF16 ? 2 : wide;
    int64_t stream = tokens * (c->parallel.strategy == STRATEGY_BTP ? d / p : d);
    int64_t sends = micros * (2 * h->runs - h->first - h->last);

    if (c->parallel.pp == 1)
        return;
    *row = (struct expected_row){
        .calls = sends, .elements = sends * stream, .bytes = sends * stream * act};
    if (c->model.tied && (h->first || h->last)) {
        int64_t matrix = config_vocab_padded(c) * d / p;

        row->calls++;
        row->elements += matrix;
        row->bytes += matrix * wide;
    }
}

static void put_norm(struct expected_row *row, const struct config *c)
{
    int64_t cut = c->parallel.grains * cut_tensors(c), all = cut + whole_tensors(c);
    int sharded = c->parallel.zero && c->parallel.dp > 1;

    add(row, 1, cut, 8, c->parallel.tp, 1);
    add(row, sharded, all, 8, c->parallel.dp, 2);
    add(row, 1, all, 8, c->parallel.pp, 2);
}

void expected_step(struct expected_row row[LEDGER_COUNT], const struct config *c,
                   const struct expected_place *at)
{
    int64_t dp = c->parallel.dp, p = c->parallel.tp;
    int64_t micros = c->train.batch / dp / c->train.micro_batch;
    int64_t tokens = c->train.micro_batch * c->train.seq;
    int64_t wide = c->train.precision == PRECISION_FP64 ? 8 : 4;
    struct holding h = holding_of(c, at->stage);
    int64_t l = h.layers;

    for (int i = 0; i < LEDGER_COUNT; i++)
        row[i] = (struct expected_row){0};
    if (!c->parallel.zero)
        add(&row[LEDGER_DP], 1, gradient_elements(c, &h, wide), wide, dp, 2);
    else
        add(&row[LEDGER_ZERO], 2 + (at->share2 > 0), dp * (2 * at->share + at->share2), wide, dp,
            1);
    put(&row[LEDGER_TP_FORWARD], in_halves(block_forward_share(c), c), l, micros, tokens, p, wide);
    put(&row[LEDGER_TP_BACKWARD], block_backward_share(c), l, micros, tokens, p, wide);
    put(&row[LEDGER_TP_RECOMPUTE], recompute_share(c), l, micros, tokens, p, wide);
    put(&row[LEDGER_NORM_FORWARD], in_halves(statistics_share(c), c), l, micros, tokens, p, wide);
    put(&row[LEDGER_NORM_BACKWARD], statistics_share(c), l, micros, tokens, p, wide);
    put(&row[LEDGER_EMBED], embed_share(c), h.first, micros, tokens, p, wide);
    put(&row[LEDGER_HEAD], head_share(c), h.last, micros, tokens, p, wide);
    put_sends(&row[LEDGER_PP], c, &h, micros, tokens, wide);
    put_norm(&row[LEDGER_NORM2], c);
}

double expected_flops(const struct config *c)
{
    struct sizes s = sizes_of(c);
    int64_t d = s.d, k = s.k, f = s.f, r = s.r;
    int64_t block = config_low_rank(c) ? 4 * d * r + 2 * r * (d + k) + 3 * r * (d + f)
                                       : 2 * d * d + 2 * d * k + 3 * d * f;

    return 6.0 * (double)(c->model.layers * block + c->model.vocab * d) +
           6.0 * (double)(c->model.layers * d * (c->train.seq + 1));
}
