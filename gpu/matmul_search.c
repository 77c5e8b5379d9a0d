/* Candidates of a product beyond those that cuBLASLt's heuristic lists.
 *
 * The lead's algorithm takes other tiles of the result, other clusters of blocks and other options,
 * which have numbers and no description; the library says which go together. On an H200 the fastest
 * of them beats the fastest of the list by 0 to 16 %, most where the listed tiles leave
 * multiprocessors idle in their last round. So those tiles are tried that cost the least by
 *
 *   rounds * rows * cols * (1 + EDGE / rows + EDGE / cols),
 *   rounds = ceil(tiles of the result / multiprocessors)
 *
 * and those of the list; then clusters of the fastest. Of 36 products this finds what is within 1 %
 * of the fastest of some 250 forms on average, within 3 % always (docs/performance.md).
 */
#include "gpu/matmul_plan.h"

#include <string.h>

enum {
    EDGE = 20,     /* what reading operands costs, in rows and columns of a tile */
    TILES = 8,     /* tried by cost */
    CLUSTERED = 4, /* forms whose clusters are tried */
    OPTIONS = 8    /* custom options from 0 */
};

/* Tiles of the library's column-major result (its rows are our columns): numbers of
 * cublasLtMatmulTile_t that follow each other, with sizes that grow by a step. A library that does
 * not know one refuses it. */
struct tile_run {
    uint32_t id;
    int rows, cols, more_rows, more_cols, count;
};

static const struct tile_run table[] = {
    {17, 64, 128, 0, 0, 1},    {18, 128, 64, 0, 0, 1},    {19, 64, 256, 0, 0, 1},
    {20, 128, 128, 0, 0, 1},   {21, 256, 64, 0, 0, 1},    {23, 128, 256, 0, 0, 1},
    {24, 256, 128, 0, 0, 1},   {29, 128, 160, 0, 0, 1},   {30, 160, 128, 0, 0, 1},
    {31, 192, 128, 0, 0, 1},   {32, 128, 192, 0, 0, 1},   {33, 128, 96, 0, 0, 1},
    {197, 168, 128, 0, 64, 3}, {201, 176, 128, 0, 64, 3}, {205, 184, 128, 0, 64, 3},
    {212, 200, 128, 0, 0, 1},  {215, 208, 128, 0, 0, 1},  {218, 216, 128, 0, 0, 1},
    {221, 224, 128, 0, 0, 1},  {224, 232, 128, 0, 0, 1},  {227, 240, 128, 0, 0, 1},
    {230, 248, 128, 0, 0, 1},  {234, 264, 128, 0, 0, 1},  {399, 128, 72, 0, 8, 3},
    {402, 128, 104, 0, 8, 3},  {405, 128, 136, 0, 8, 3},  {408, 128, 168, 0, 8, 3},
    {411, 128, 200, 0, 8, 7},  {418, 128, 264, 0, 8, 7},  {425, 128, 328, 0, 8, 7},
    {492, 256, 72, 0, 8, 7},   {499, 256, 136, 0, 8, 7},  {506, 256, 200, 0, 8, 1},
};

struct tile {
    uint32_t id;
    double cost;
};

/* A form of the product and how long it took. */
struct form {
    cublasLtMatmulAlgo_t algo;
    float ms;
};

struct search {
    struct gpu_device *dev;
    struct matmul_plan *plan;
    const struct gpu_product *p;
    const cublasLtMatmulAlgo_t *lead;
    void *y;
    struct form best[GPU_SEARCHED]; /* the fastest first */
    int n;
};

static double cost_of(const struct matmul_key *k, int sms, int rows, int cols)
{
    int64_t tiles = (k->n + rows - 1) / rows * ((k->m + cols - 1) / cols) * k->batch;
    int64_t rounds = (tiles + sms - 1) / sms;

    return (double)(rounds * rows * cols) * (1.0 + (double)EDGE / rows + (double)EDGE / cols);
}

/* Keeps the `most` cheapest of n so far, in order. Returns how many. */
static int keep_tile(struct tile *tile, int n, int most, struct tile t)
{
    int at = n;

    while (at > 0 && tile[at - 1].cost > t.cost)
        at--;
    if (at == most)
        return n;
    n = n < most ? n + 1 : most;
    memmove(tile + at + 1, tile + at, (size_t)(n - 1 - at) * sizeof *tile);
    tile[at] = t;
    return n;
}

/* The cheapest tiles, and those of the listed candidates. Returns how many. */
static int choose_tiles(struct tile *tile, const struct matmul_key *k, int sms,
                        const struct matmul_trial *t)
{
    int n = 0;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int j = 0; j < table[i].count; j++) {
            int rows = table[i].rows + j * table[i].more_rows;
            int cols = table[i].cols + j * table[i].more_cols;
            struct tile next = {table[i].id + (uint32_t)j, cost_of(k, sms, rows, cols)};

            n = keep_tile(tile, n, TILES, next);
        }
    for (int i = 0; i < t->n; i++) {
        uint32_t id = gpu_matmul_config(&t->algo[i], CUBLASLT_ALGO_CONFIG_TILE_ID);
        int known = 0;

        for (int j = 0; j < n; j++)
            known |= tile[j].id == id;
        if (!known)
            tile[n++] = (struct tile){id, 0.0};
    }
    return n;
}

static void keep_form(struct search *s, const struct form *f)
{
    int at = s->n;

    while (at > 0 && s->best[at - 1].ms > f->ms)
        at--;
    if (at == GPU_SEARCHED)
        return;
    s->n += s->n < GPU_SEARCHED;
    memmove(s->best + at + 1, s->best + at, (size_t)(s->n - 1 - at) * sizeof *s->best);
    s->best[at] = *f;
}

/* Sets one number of a form; zero where the algorithm has no such thing. */
static int set(cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what,
               const void *value, size_t bytes)
{
    return cublasLtMatmulAlgoConfigSetAttribute(algo, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

/* Times the lead with another tile, cluster and option; what the library refuses is passed over. */
static enum status try_form(struct search *s, uint32_t tile, uint16_t cluster, uint32_t option)
{
    struct matmul_plan *plan = s->plan;
    struct form f = {.algo = *s->lead};
    cublasLtMatmulHeuristicResult_t told;

    if (!set(&f.algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile) ||
        !set(&f.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster, sizeof cluster) ||
        !set(&f.algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &option, sizeof option) ||
        cublasLtMatmulAlgoCheck(s->dev->matmul->lt, &plan->desc, &plan->b, &plan->a, &plan->c,
                                &plan->y, &f.algo, &told) != CUBLAS_STATUS_SUCCESS ||
        told.workspaceSize > GPU_WORKSPACE)
        return ST_OK;
    if (gpu_matmul_launch(s->dev, plan, s->p, &f.algo, s->y) != ST_OK) { /* loads it, too */
        status_clear();
        return ST_OK;
    }
    TRY(gpu_matmul_time(&f.ms, s->dev, plan, s->p, &f.algo, s->y, 1));
    keep_form(s, &f);
    return ST_OK;
}

static enum status try_tiles(struct search *s, const struct matmul_trial *t)
{
    struct tile tile[TILES + GPU_CANDIDATES];
    int n = choose_tiles(tile, &s->plan->key, s->dev->sms, t);

    for (int i = 0; i < n; i++)
        for (uint32_t option = 0; option < OPTIONS; option++)
            TRY(try_form(s, tile[i].id, CUBLASLT_CLUSTER_SHAPE_1x1x1, option));
    return ST_OK;
}

static enum status try_clusters(struct search *s)
{
    const uint16_t cluster[] = {CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1};
    struct form from[CLUSTERED];
    int n = s->n < CLUSTERED ? s->n : CLUSTERED;

    memcpy(from, s->best, (size_t)n * sizeof *from);
    for (int i = 0; i < n; i++)
        for (size_t j = 0; j < sizeof cluster / sizeof *cluster; j++)
            TRY(try_form(s, gpu_matmul_config(&from[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
                         cluster[j],
                         gpu_matmul_config(&from[i].algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION)));
    return ST_OK;
}

enum status gpu_matmul_search(struct gpu_device *dev, struct matmul_plan *plan,
                              const struct gpu_product *p, struct matmul_trial *t, void *y)
{
    struct search s = {.dev = dev, .plan = plan, .p = p, .lead = &t->algo[0], .y = y};

    TRY(try_tiles(&s, t));
    TRY(try_clusters(&s));
    for (int i = 0; i < s.n; i++)
        t->algo[t->n++] = s.best[i].algo;
    return ST_OK;
}
