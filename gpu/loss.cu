#include "gpu/fit.cuh"
#include "gpu/gpu.h"
#include "gpu/tree.cuh"

/* A softmax over part of the vocabulary: largest logit, sum of exp(l - largest), target's logit. */
struct ce_stat {
    float most, sum, target;

    static __device__ __forceinline__ ce_stat join(const ce_stat &a, const ce_stat &b)
    {
        ce_stat s = {fmaxf(a.most, b.most), 0.0f, a.target + b.target};

        if (s.most > -INFINITY) /* else nothing but padding on either side */
            s.sum = a.sum * expf(a.most - s.most) + b.sum * expf(b.most - s.most);
        return s;
    }
};

struct ce_args {
    struct view logits;
    struct column st, loss;
    const int32_t *targets;
    int64_t target_stride, rows, cols;
    int64_t real; /* columns that stand for tokens; the rest is padding */
    struct vocab_cut cut;
    float scale;
    int ranks, ignore_grad;
};

/* The pairs of a warp joined lane by lane, the same bits in every lane; `lanes` of them count. */
static __device__ struct ce_stat ce_warp_join(struct ce_stat s, int lanes)
{
    for (int step = 1; step < lanes; step *= 2) {
        struct ce_stat other = {__shfl_xor_sync(0xffffffffu, s.most, step),
                                __shfl_xor_sync(0xffffffffu, s.sum, step), 0.0f};

        s = threadIdx.x & step ? ce_stat::join(other, s) : ce_stat::join(s, other);
    }
    return s;
}

/* The pair of the whole block, in its first warp: warps join in theirs as lanes do. Joining takes
 * two exponentials, so that not every thread should join everything. */
static __device__ struct ce_stat ce_block_join(struct ce_stat s)
{
    __shared__ struct ce_stat part[32];
    int warps = blockDim.x / 32, lane = threadIdx.x;

    s = ce_warp_join(s, 32);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = s;
    __syncthreads();
    if (lane >= 32)
        return s;
    return ce_warp_join(lane < warps ? part[lane] : ce_stat{-INFINITY, 0.0f, 0.0f}, warps);
}

/* V more logits join a thread's pair; those from column `real` on are padding, which has
 * probability 0. __expf (2 units in the last place near 0, where sums are made): an exact
 * exponential would take twice as long as the memory. */
template <int V>
static __device__ __forceinline__ void ce_add(struct ce_stat *s, float (&x)[V], int64_t col,
                                              int64_t real)
{
    float most = s->most;

    if (col + V > real)
#pragma unroll
        for (int i = 0; i < V; i++)
            x[i] = col + i < real ? x[i] : -INFINITY;
#pragma unroll
    for (int i = 0; i < V; i++)
        most = fmaxf(most, x[i]);
    if (most == -INFINITY)
        return;
    if (most > s->most)
        s->sum *= __expf(s->most - most);
#pragma unroll
    for (int i = 0; i < V; i++)
        s->sum += __expf(x[i] - most);
    s->most = most;
}

/* One block a row, one pass. */
template <int FORM, int V> __global__ void ce_stats_kernel(struct ce_args a)
{
    int64_t row = blockIdx.x, target = a.targets[row * a.target_stride] - a.cut.first;
    struct ce_stat s = {-INFINITY, 0.0f, 0.0f};
    float x[V], *out = a.st.data + row * a.st.stride, at[1] = {0.0f};

    for (int64_t col = threadIdx.x * V; col < a.real; col += blockDim.x * V) {
        load<FORM, V>(x, a.logits, row * a.logits.stride + col);
        ce_add<V>(&s, x, col, a.real);
    }
    s = ce_block_join(s);
    if (threadIdx.x > 0)
        return;
    if (a.targets[row * a.target_stride] >= 0 && target >= 0 && target < a.cols)
        load<FORM, 1>(at, a.logits, row * a.logits.stride + target);
    out[0] = s.most;
    out[1] = s.sum;
    out[2] = at[0];
}

static enum status ce_args_of(struct ce_args *a, struct fit *f, const struct tensor *logits,
                              const struct tensor *targets, struct vocab_cut cut)
{
    int64_t real = cut.valid - cut.first;

    if (targets->dtype != DT_I32)
        return fail(ST_EDTYPE, "targets of type %s; they are i32", dtype_name(targets->dtype));
    a->logits = fit_view(f, logits);
    a->targets = static_cast<const int32_t *>(targets->data);
    a->target_stride = targets->stride;
    a->rows = logits->rows;
    a->cols = logits->cols;
    a->real = real < 0 ? 0 : real < logits->cols ? real : logits->cols;
    a->cut = cut;
    return fit_check(f, "cross-entropy");
}

extern "C" enum status gpu_ce_stats(struct device *dev, struct tensor *st,
                                    const struct tensor *logits, const struct tensor *targets,
                                    struct vocab_cut cut)
{
    struct fit f = fit_start(logits->rows, logits->cols);
    struct ce_args a = {};

    a.st = fit_column(&f, st);
    TRY(ce_args_of(&a, &f, logits, targets, cut));
    if (logits->rows == 0)
        return ST_OK;
    fit_launch(&f, [&](auto form, auto v) {
        unsigned threads = row_threads(f.cols, v, 256);

        ce_stats_kernel<form, v><<<(unsigned)f.rows, threads, 0, gpu_of(dev)->stream>>>(a);
    });
    return gpu_launched(gpu_of(dev), "ce_stats");
}

/* The gradient of the V logits from column col on. */
template <int V>
static __device__ __forceinline__ void ce_slope(float (&x)[V], const struct ce_stat &s, float scale,
                                                int64_t target, int64_t col, int64_t real)
{
    float inverse = 1.0f / s.sum;

#pragma unroll
    for (int i = 0; i < V; i++) {
        float p = expf(x[i] - s.most) * inverse;

        x[i] = col + i < real ? (p - (col + i == target ? 1.0f : 0.0f)) * scale : 0.0f;
    }
}

/* One block a row: joins the ranks' statistics, then one pass in place. */
template <int FORM, int V, int DEPTH> __global__ void ce_grad_kernel(struct ce_args a)
{
    __shared__ struct ce_stat shared;
    int64_t row = blockIdx.x, token = a.targets[row * a.target_stride];
    int64_t target = token - a.cut.first, at = row * a.logits.stride;
    struct ce_stat s;
    float x[V];

    if (threadIdx.x == 0) {
        auto leaf = [&](int i) {
            const float *p = a.st.data + (i * a.rows + row) * a.st.stride;

            return ce_stat{p[0], p[1], p[2]};
        };

        s = tree_join<struct ce_stat, DEPTH>(leaf, 0, a.ranks);
        a.loss.data[row * a.loss.stride] = token < 0 ? 0.0f : logf(s.sum) + s.most - s.target;
        shared = s;
    }
    if (a.ignore_grad)
        return;
    __syncthreads();
    s = shared;
    for (int64_t col = threadIdx.x * V; col < a.cols; col += blockDim.x * V) {
        load<FORM, V>(x, a.logits, at + col);
        if (token >= 0) {
            ce_slope<V>(x, s, a.scale, target, col, a.real);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++)
                x[i] = 0.0f;
        }
        store<FORM, V>(a.logits, at + col, x);
    }
}

extern "C" enum status gpu_ce_grad(struct device *dev, struct tensor *loss, struct tensor *logits,
                                   const struct tensor *st, const struct tensor *targets,
                                   struct vocab_cut cut, double scale)
{
    struct fit f = fit_start(logits->rows, logits->cols);
    struct ce_args a = {};

    if (logits->rows == 0)
        return ST_OK;
    a.st = fit_column(&f, st);
    a.loss = fit_column(&f, loss);
    a.scale = (float)scale;
    a.ranks = (int)(st->rows / logits->rows);
    a.ignore_grad = scale == 0.0;
    TRY(ce_args_of(&a, &f, logits, targets, cut));
    if (a.ranks > 1 << TREE_LARGE)
        return fail(ST_ESHAPE, "cross-entropy over %d ranks; at most %d", a.ranks, 1 << TREE_LARGE);
    fit_launch(&f, [&](auto form, auto v) {
        unsigned threads = a.ignore_grad ? 32 : row_threads(f.cols, v, 512);
        auto kernel = a.ranks <= 1 << TREE_SMALL ? ce_grad_kernel<form, v, TREE_SMALL>
                                                 : ce_grad_kernel<form, v, TREE_LARGE>;

        kernel<<<(unsigned)f.rows, threads, 0, gpu_of(dev)->stream>>>(a);
    });
    return gpu_launched(gpu_of(dev), "ce_grad");
}
