/* The host's side of a launch: which form of a kernel fits its tensors, and how many blocks.
 *
 * A launch starts a struct fit with the op's shape, adds each tensor (which gives the kernel's view
 * of it), and then calls fit_launch with the launch as a function of the form.
 */
#ifndef GPU_FIT_CUH
#define GPU_FIT_CUH

#include "gpu/kernel.cuh"

#include <type_traits>

/* What a launch has learned of its tensors. */
struct fit {
    int bf16, f32, others; /* how many of each type */
    bool wide;             /* eight elements at a time will do */
    bool flat;             /* every row follows the one before */
    int64_t rows, cols;
    enum dtype odd; /* the last type that is neither */
};

/* Of an op whose tensors are [rows, cols]. */
static inline struct fit fit_start(int64_t rows, int64_t cols)
{
    return fit{0, 0, 0, cols % 8 == 0, true, rows, cols, DT_F32};
}

/* Adds a tensor of the op's shape (or one row of it, as a gain: broadcast). */
static inline struct view fit_view(struct fit *f, const struct tensor *t, bool broadcast = false)
{
    f->bf16 += t->dtype == DT_BF16;
    f->f32 += t->dtype == DT_F32;
    if (t->dtype != DT_BF16 && t->dtype != DT_F32) {
        f->others++;
        f->odd = t->dtype;
    }
    f->wide = f->wide && reinterpret_cast<uintptr_t>(t->data) % 16 == 0 &&
              (t->rows <= 1 || t->stride % 8 == 0);
    f->flat = f->flat && !broadcast && tensor_packed(t);
    return view{t->data, t->stride, t->dtype == DT_BF16, 0};
}

/* The f32 column of a statistic; other types are counted as odd. NULL gives an empty one. */
static inline struct column fit_column(struct fit *f, const struct tensor *t)
{
    if (!t)
        return column{nullptr, 0};
    if (t->dtype != DT_F32) {
        f->others++;
        f->odd = t->dtype;
    }
    return column{static_cast<float *>(t->data), t->stride};
}

/* ST_EDTYPE when a tensor was neither bf16 nor f32; op names the operation. */
static inline enum status fit_check(const struct fit *f, const char *op)
{
    if (!f->others)
        return ST_OK;
    return fail(ST_EDTYPE,
                "%s: a tensor of type %s; the gpu backend takes bf16 and f32 (precision "
                "fp64: run.backend=ref)",
                op, dtype_name(f->odd));
}

/* Treats everything as one long row when rows follow each other. */
static inline void fit_flatten(struct fit *f)
{
    if (!f->flat)
        return;
    f->cols *= f->rows;
    f->rows = 1;
}

/* The f32 column t of a statistic; an empty one for NULL. */
static inline enum status fit_column_alone(struct column *c, const struct tensor *t)
{
    struct fit f = fit_start(1, 1);

    *c = fit_column(&f, t);
    return fit_check(&f, "statistic of a norm");
}

template <int N> using constant = std::integral_constant<int, N>;

/* Calls launch(constant<FORM>, constant<V>) with the form that fits. */
template <class L> static inline void fit_launch(const struct fit *f, L &&launch)
{
    if (!f->wide)
        launch(constant<FORM_MIXED>(), constant<1>());
    else if (!f->f32)
        launch(constant<FORM_BF16>(), constant<8>());
    else if (!f->bf16)
        launch(constant<FORM_F32>(), constant<8>());
    else
        launch(constant<FORM_MIXED>(), constant<8>());
}

/* Threads for a row of cols elements, v at a time: whole warps, at most `most`. */
static inline unsigned row_threads(int64_t cols, int v, int most)
{
    int64_t want = (cols / v + 31) / 32 * 32;

    return (unsigned)(want < 32 ? 32 : want > most ? most : want);
}

/* Elementwise launches: a block does one piece of one row. */
struct grid {
    unsigned blocks, threads;
    unsigned pieces; /* of a row */
};

/* The launch for f's rows and columns, v elements a thread. */
static inline struct grid grid_of(const struct fit *f, int v)
{
    unsigned threads = row_threads(f->cols, v, 256);
    int64_t span = (int64_t)threads * v, pieces = (f->cols + span - 1) / span;

    return grid{(unsigned)(f->rows * pieces), threads, (unsigned)pieces};
}

/* Launches a kernel that may start before the one in front of it has ended, where it was compiled
 * for devices that can (9.0 and later). Before it touches memory, each of its blocks calls
 * await_kernel_before. */
template <class A>
static inline enum status launch_behind(struct gpu_device *dev, void (*kernel)(A), dim3 blocks,
                                        unsigned threads, const A &args)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    cudaFuncAttributes compiled;

    CUDA_TRY(cudaFuncGetAttributes(&compiled, kernel));
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = blocks;
    config.blockDim = dim3(threads);
    config.stream = dev->stream;
    config.attrs = &early;
    /* Older code would not wait; a recorded graph launches one after the other. */
    config.numAttrs = compiled.ptxVersion >= 90 && !gpu_capturing(dev);
    CUDA_TRY(cudaLaunchKernelEx(&config, kernel, args));
    return ST_OK;
}

#endif
