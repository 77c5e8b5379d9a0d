#include "ref/comm.h" /* ref_comm_ops: one set for both precisions */
#include "ref/ref.h"

const struct math_ops ref_math_ops = {
    .gemm = ref_gemm,
    .weight_grad = ref_weight_grad,
    .rms_norm = ref_rms_norm,
    .rms_norm_backward = ref_rms_norm_backward,
    .rms_partial = ref_rms_partial,
    .rms_stat = ref_rms_stat,
    .rms_apply = ref_rms_apply,
    .rms_dot = ref_rms_dot,
    .rms_coef = ref_rms_coef,
    .rms_backward = ref_rms_backward,
    .latent_forward = ref_latent_forward,
    .latent_act = ref_latent_act,
    .latent_backward = ref_latent_backward,
    .rope = ref_rope,
    .attention_forward = ref_attention_forward,
    .attention_backward = ref_attention_backward,
    .swiglu_forward = ref_swiglu_forward,
    .swiglu_backward = ref_swiglu_backward,
    .gemm_swiglu_forward = ref_gemm_swiglu_forward,
    .gemm_swiglu_backward = ref_gemm_swiglu_backward,
    .add = ref_add,
    .bias_forward = ref_bias_forward,
    .bias_backward = ref_bias_backward,
    .embed_forward = ref_embed_forward,
    .embed_backward = ref_embed_backward,
    .ce_stats = ref_ce_stats,
    .ce_grad = ref_ce_grad,
    .cols_join = ref_cols_join,
    .cols_split = ref_cols_split,
    .sum_tree = ref_sum_tree,
    .convert = ref_convert,
    .sumsq = ref_sumsq,
    .clip = ref_clip,
    .adamw = ref_adamw,
};

#ifdef REF_F64
const struct backend ref64_backend = {.name = "ref64",
#else
const struct backend ref_backend = {.name = "ref",
#endif
                                      .device = &ref_device_ops,
                                      .math = &ref_math_ops,
                                      .comm = &ref_comm_ops};
