#include "common/train/place.h"

#include "common/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum status place_backend(const struct backend **be, const struct config *cfg)
{
    if (cfg->run.backend == BACKEND_REF) {
        *be = cfg->train.precision == PRECISION_FP64 ? &ref64_backend : &ref_backend;
        return ST_OK;
    }
#ifdef HAVE_CUDA
    *be = &gpu_backend;
    return ST_OK;
#else
    return fail(ST_ECONFIG, "run.backend is gpu, but this narrows was built without CUDA; build it "
                            "with --with-cuda=DIR, or set run.backend=ref");
#endif
}

enum dtype place_wide(const struct config *cfg)
{
    return cfg->train.precision == PRECISION_FP64 ? DT_F64 : DT_F32;
}

static int threads(const struct config *cfg, const struct host *job)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), ranks = host_local_size(job);
    const char *set = getenv("OMP_NUM_THREADS"); /* launch --threads sets it, too */
    long wanted = set ? strtol(set, NULL, 10) : 0;

    if (cfg->run.threads > 0)
        return (int)cfg->run.threads;
    if (wanted > 0 && wanted <= 4096)
        return (int)wanted;
    return cores > ranks ? (int)(cores / ranks) : 1;
}

enum status place_mesh(struct mesh *m, const struct config *cfg, struct host *job)
{
    const struct config_parallel *p = &cfg->parallel;
    int n = host_size(job), rank = host_rank(job), own = host_node(job);
    int *node = malloc((size_t)n * sizeof *node);
    enum status st = node ? ST_OK : fail(ST_ENOMEM, "no memory for the nodes of %d ranks", n);

    if (st == ST_OK)
        st = host_gather(job, node, &own, sizeof own);
    if (st == ST_OK && p->placement == PLACEMENT_NODE)
        rank = mesh_by_node(node, n, rank);
    *m = mesh_at(rank, (int)p->tp, (int)p->dp, (int)p->pp);
    free(node);
    return st;
}

/* Where all ranks stand, as they say. */
static enum status look(struct place *p)
{
    int n = host_size(p->job), node = host_node(p->job), at = mesh_rank(&p->mesh);
    int *nodes = malloc((size_t)n * sizeof *nodes), *places = malloc((size_t)n * sizeof *places);
    enum status st =
        nodes && places ? ST_OK : fail(ST_ENOMEM, "no memory for the places of %d ranks", n);

    if (st == ST_OK)
        st = host_gather(p->job, nodes, &node, sizeof node);
    if (st == ST_OK)
        st = host_gather(p->job, places, &at, sizeof at);
    if (st == ST_OK)
        p->nodes = mesh_look(nodes, places, n, p->mesh.tp);
    free(nodes);
    free(places);
    return st;
}

/* n communicators over the ranks of one colour; a negative colour joins none. */
static enum status open_comms(struct step_place *at, struct host *job, int colour, int key,
                              struct comm **c, int n)
{
    struct host *group;
    enum status st = ST_OK;

    TRY(host_split(&group, job, colour, key));
    for (int i = 0; group && st == ST_OK && i < n; i++)
        st = comm_create(&c[i], at->dev, group, at->ledger);
    host_free(group);
    return st;
}

/* The edges of the ring of stages, one after another; all ranks take part in each. */
static enum status open_edges(struct step_place *at, const struct config *cfg, struct host *job,
                              const struct mesh *m)
{
    int round = cfg->parallel.virtual_stages > 1, pipe = m->dp_rank * m->tp + m->tp_rank;

    for (int e = 0; e < m->pp - !round; e++) {
        int begins = m->pp_rank == e, ends = m->pp_rank == (e + 1) % m->pp;

        TRY(open_comms(at, job, begins || ends ? pipe : -1, ends,
                       begins ? at->edges.next : at->edges.prev, PIPE_DIRECTIONS));
    }
    return ST_OK;
}

static enum status open_pipeline(struct step_place *at, const struct config *cfg, struct host *job,
                                 const struct mesh *m)
{
    int pipe = m->dp_rank * m->tp + m->tp_rank;
    int end = m->pp_rank == 0 || m->pp_rank == m->pp - 1;

    if (m->pp == 1)
        return ST_OK;
    TRY(host_split(&at->pp_host, job, pipe, m->pp_rank));
    TRY(comm_create(&at->pp, at->dev, at->pp_host, at->ledger));
    if (cfg->model.tied)
        TRY(open_comms(at, job, end ? pipe : -1, m->pp_rank, &at->ends, 1));
    return open_edges(at, cfg, job, m);
}

enum status place_groups_open(struct step_place *at, const struct config *cfg, struct host *job)
{
    struct mesh m;

    TRY(place_mesh(&m, cfg, job));
    TRY(host_split(&at->tp_host, job, m.pp_rank * m.dp + m.dp_rank, m.tp_rank));
    TRY(host_split(&at->dp_host, job, m.pp_rank * m.tp + m.tp_rank, m.dp_rank));
    TRY(comm_create(&at->tp, at->dev, at->tp_host, at->ledger));
    if (cfg->parallel.overlap == OVERLAP_ALL)
        TRY(comm_create(&at->second, at->dev, at->tp_host, at->ledger));
    TRY(comm_create(&at->dp, at->dev, at->dp_host, at->ledger));
    return open_pipeline(at, cfg, job, &m);
}

/* Edge e leads from stage e to the next; the last may lead back to stage 0. In their order each
 * stage but the first has the one behind it before the one ahead. */
int step_pipeline_comms(struct comm *out[STEP_PIPELINE_COMMS], const struct step_place *at)
{
    int first = at->pp && at->pp->rank == 0, n = 0;
    struct comm *const *edge[] = {first ? at->edges.next : at->edges.prev,
                                  first ? at->edges.prev : at->edges.next};

    if (at->pp)
        out[n++] = at->pp;
    if (at->ends)
        out[n++] = at->ends;
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < PIPE_DIRECTIONS; d++)
            if (edge[i][d])
                out[n++] = edge[i][d];
    return n;
}

void place_groups_close(struct step_place *at)
{
    struct comm *c[STEP_PIPELINE_COMMS];
    int n = step_pipeline_comms(c, at);

    while (n > 0)
        comm_destroy(c[--n]);
    comm_destroy(at->tp);
    comm_destroy(at->second);
    comm_destroy(at->dp);
    host_free(at->tp_host);
    host_free(at->dp_host);
    host_free(at->pp_host);
}

enum status place_open(struct place *p, const struct config *cfg, struct host *job)
{
    const struct backend *be = NULL;
    struct device_options opt = {.threads = threads(cfg, job),
                                 .local_rank = host_local_rank(job),
                                 .local_size = host_local_size(job),
                                 .any_order = !cfg->run.deterministic};
    enum status st;

    memset(p, 0, sizeof *p);
    p->job = job;
    p->at.ledger = &p->ledger;
    TRY(place_backend(&be, cfg));
    st = host_agree(job, device_open(&p->at.dev, be, &opt));
    if (st == ST_OK)
        st = place_mesh(&p->mesh, cfg, job);
    if (st == ST_OK)
        st = look(p);
    if (st == ST_OK)
        st = place_groups_open(&p->at, cfg, job);
    if (st != ST_OK)
        place_close(p);
    return st;
}

void place_close(struct place *p)
{
    place_groups_close(&p->at);
    device_close(p->at.dev);
    memset(&p->at, 0, sizeof p->at);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { PEAK_PRODUCTS = 4, PEAK_ROUNDS = 4 };

/* Least seconds that this rank took for PEAK_PRODUCTS times g. */
static enum status time_products(struct place *p, const struct gemm *g, double *seconds)
{
    double start, took;

    TRY(op_gemm(p->at.dev, g, 1)); /* warms up */
    TRY(device_sync(p->at.dev));
    *seconds = INFINITY;
    for (int round = 0; round < PEAK_ROUNDS; round++) { /* the best: some ms are easily disturbed */
        start = now();
        for (int i = 0; i < PEAK_PRODUCTS; i++)
            TRY(op_gemm(p->at.dev, g, 1));
        TRY(device_sync(p->at.dev));
        took = now() - start;
        *seconds = took < *seconds ? took : *seconds;
    }
    return ST_OK;
}

enum status place_fill_random(struct device *dev, void *memory, enum dtype dt, size_t bytes)
{
    const size_t values = 1 << 18, block = values * dtype_size(dt);
    struct rng_key key = rng_key(1, RNG_TEST, 0);
    char *host = malloc(block);
    enum status st = host ? ST_OK : fail(ST_ENOMEM, "no memory for random values");

    for (size_t i = 0; st == ST_OK && i < values; i++)
        dtype_store(host, dt, (int64_t)i, 2.0 * rng_uniform(&key, i) - 1.0);
    for (size_t at = 0; st == ST_OK && at < bytes; at += block)
        st = device_upload(dev, (char *)memory + at, host, bytes - at < block ? bytes - at : block);
    if (st == ST_OK)
        st = device_sync(dev);
    free(host);
    return st;
}

enum status place_measure_peak(struct place *p, const struct config *cfg)
{
    struct device *dev = p->at.dev;
    int gpu = cfg->run.backend == BACKEND_GPU;
    enum dtype dt = cfg->train.precision == PRECISION_BF16 && gpu ? DT_BF16 : dev->wide;
    int64_t n = gpu ? 8192 : 512, pieces = gpu ? 1 : dev->threads;
    size_t square = (size_t)(n * n) * dtype_size(dt), tall = square * (size_t)pieces;
    struct gemm g = {.kind = GEMM_NT};
    void *memory;
    double seconds = 0.0;
    enum status st = device_alloc(dev, &memory, square + 2 * tall);

    if (st == ST_OK) {
        st = place_fill_random(dev, memory, dt, square + 2 * tall);
        g.b = tensor_view(memory, dt, n, n);
        g.a = tensor_grained(tensor_view((char *)memory + square, dt, n * pieces, n),
                             (int32_t)pieces, 1);
        g.y = tensor_grained(tensor_view((char *)memory + square + tall, dt, n * pieces, n),
                             (int32_t)pieces, 1);
        if (st == ST_OK)
            st = time_products(p, &g, &seconds); /* all ranks at once: they may share cores */
        device_release(dev, memory);
    }
    TRY(host_agree(p->job, st));
    TRY(host_max_f64(p->job, &seconds, 1));
    p->peak = 2.0 * (double)(n * n * n * pieces) * PEAK_PRODUCTS * host_size(p->job) / seconds;
    return ST_OK;
}
