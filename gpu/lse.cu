#include "gpu/lse.h"

#include "gpu/fit.cuh"

__global__ void lse_kernel(struct column by_row, float *by_head, int64_t rows, int64_t seq,
                           int64_t heads, int out)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; /* place in by_head */
    int64_t line = i / seq, batch = line / heads;
    float *at = by_row.data + (batch * seq + i - line * seq) * by_row.stride + line - batch * heads;

    if (i >= rows * heads)
        return;
    if (out)
        by_head[i] = *at;
    else
        *at = by_head[i];
}

extern "C" enum status gpu_lse_turn(struct gpu_device *dev, const struct tensor *by_row,
                                    float *by_head, int64_t seq, int out)
{
    struct column c;
    int64_t n = tensor_count(by_row);

    TRY(fit_column_alone(&c, by_row));
    lse_kernel<<<(unsigned)((n + 255) / 256), 256, 0, dev->stream>>>(c, by_head, by_row->rows, seq,
                                                                     by_row->cols, out);
    return gpu_launched(dev, "log-sum-exp of attention");
}
