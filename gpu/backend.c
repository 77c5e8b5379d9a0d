#include "gpu/gpu.h"

static const struct device_ops gpu_device_ops = {
    .open = gpu_open,
    .close = gpu_close,
    .alloc = gpu_alloc,
    .release = gpu_release,
    .upload = gpu_upload,
    .download = gpu_download,
    .copy = gpu_copy,
    .zero = gpu_zero,
    .sync = gpu_sync,
    .info = gpu_info,
    .stamp = gpu_stamp,
    .stamps = gpu_stamps,
};

static const struct math_ops gpu_math_ops = {
    .gemm = gpu_gemm,
    .weight_grad = gpu_weight_grad,
    .rms_norm = gpu_rms_norm,
    .rms_norm_backward = gpu_rms_norm_backward,
    .rms_partial = gpu_rms_partial,
    .rms_stat = gpu_rms_stat,
    .rms_apply = gpu_rms_apply,
    .rms_dot = gpu_rms_dot,
    .rms_coef = gpu_rms_coef,
    .rms_backward = gpu_rms_backward,
    .latent_forward = gpu_latent_forward,
    .latent_act = gpu_latent_act,
    .latent_backward = gpu_latent_backward,
    .rope = gpu_rope,
    .attention_forward = gpu_attention_forward,
    .attention_backward = gpu_attention_backward,
    .swiglu_forward = gpu_swiglu_forward,
    .swiglu_backward = gpu_swiglu_backward,
    .add = gpu_add,
    .bias_forward = gpu_bias_forward,
    .bias_backward = gpu_bias_backward,
    .embed_forward = gpu_embed_forward,
    .embed_backward = gpu_embed_backward,
    .ce_stats = gpu_ce_stats,
    .ce_grad = gpu_ce_grad,
    .cols_join = gpu_cols_join,
    .cols_split = gpu_cols_split,
    .sum_tree = gpu_sum_tree,
    .convert = gpu_convert,
    .sumsq = gpu_sumsq,
    .clip = gpu_clip,
    .adamw = gpu_adamw,
};

static const struct comm_ops gpu_comm_ops = {
    .create = gpu_comm_create,
    .destroy = gpu_comm_destroy,
    .reserve = gpu_comm_reserve,
    .all_reduce_begin = gpu_all_reduce_begin,
    .all_gather_begin = gpu_all_gather_begin,
    .reduce_scatter_begin = gpu_reduce_scatter_begin,
    .broadcast_begin = gpu_broadcast_begin,
    .send_begin = gpu_send_begin,
    .recv_begin = gpu_recv_begin,
    .start = gpu_comm_start,
    .wait = gpu_comm_wait,
    .stamp = gpu_comm_stamp,
};

const struct backend gpu_backend = {
    .name = "gpu", .device = &gpu_device_ops, .math = &gpu_math_ops, .comm = &gpu_comm_ops};
