/* The element type of the reference arithmetic, and the names that go with it.
 *
 * The sources of ref/ are compiled twice: with float (libref.a), and with -DREF_F64 with double
 * (libref64.a), for gradients that agree with finite differences. `real` is the element type, and
 * under REF_F64 every external name ref_x becomes ref64_x.
 */
#ifndef REF_REAL_H
#define REF_REAL_H

#include "common/tensor/dtype.h"

#include <math.h>

#ifdef REF_F64
#define real             double
#define REAL_DTYPE       DT_F64
#define REAL_EPSILON     0x1p-52
#define real_sqrt        sqrt
#define cblas_rgemm      cblas_dgemm
#define ref_backend      ref64_backend
#define ref_device_ops   ref64_device_ops
#define ref_math_ops     ref64_math_ops
#define ref_host_alloc   ref64_host_alloc
#define ref_scratch      ref64_scratch
#define ref_shared       ref64_shared
#define ref_thread       ref64_thread
#define ref_operand_size ref64_operand_size
#define ref_operand      ref64_operand
#define ref_call         ref64_call
#define ref_fuses        ref64_fuses
#define ref_fuses_blocks ref64_fuses_blocks
#define ref_join         ref64_join
#define ref_joins        ref64_joins
#define ref_tree_planes  ref64_tree_planes

#define attention_load  ref64_attention_load
#define attention_place ref64_attention_place
#define attention_store ref64_attention_store

#define ref_gemm                 ref64_gemm
#define ref_weight_grad          ref64_weight_grad
#define ref_rms_norm             ref64_rms_norm
#define ref_rms_norm_backward    ref64_rms_norm_backward
#define ref_rms_partial          ref64_rms_partial
#define ref_rms_stat             ref64_rms_stat
#define ref_rms_apply            ref64_rms_apply
#define ref_rms_dot              ref64_rms_dot
#define ref_rms_coef             ref64_rms_coef
#define ref_rms_backward         ref64_rms_backward
#define ref_latent_forward       ref64_latent_forward
#define ref_latent_act           ref64_latent_act
#define ref_latent_backward      ref64_latent_backward
#define ref_rope                 ref64_rope
#define ref_attention_forward    ref64_attention_forward
#define ref_attention_backward   ref64_attention_backward
#define ref_swiglu_forward       ref64_swiglu_forward
#define ref_swiglu_backward      ref64_swiglu_backward
#define ref_gemm_swiglu_forward  ref64_gemm_swiglu_forward
#define ref_gemm_swiglu_backward ref64_gemm_swiglu_backward
#define ref_add                  ref64_add
#define ref_bias_forward         ref64_bias_forward
#define ref_bias_backward        ref64_bias_backward
#define ref_embed_forward        ref64_embed_forward
#define ref_embed_backward       ref64_embed_backward
#define ref_ce_stats             ref64_ce_stats
#define ref_ce_grad              ref64_ce_grad
#define ref_cols_join            ref64_cols_join
#define ref_cols_split           ref64_cols_split
#define ref_sum_tree             ref64_sum_tree
#define ref_convert              ref64_convert
#define ref_sumsq                ref64_sumsq
#define ref_clip                 ref64_clip
#define ref_adamw                ref64_adamw

#define row_widen        row64_widen
#define row_narrow       row64_narrow
#define row_add          row64_add
#define row_scale        row64_scale
#define row_sum          row64_sum
#define row_max          row64_max
#define row_dot          row64_dot
#define row_sumsq        row64_sumsq
#define row_rms          row64_rms
#define row_rms_dot      row64_rms_dot
#define row_rms_backward row64_rms_backward
#define row_rms_gain     row64_rms_gain
#define row_exp          row64_exp
#define row_silu         row64_silu
#define row_silu_back    row64_silu_back
#define row_swiglu       row64_swiglu
#define row_swiglu_back  row64_swiglu_back
#define row_product_back row64_product_back
#define row_mul          row64_mul
#define row_score_grad   row64_score_grad
#define row_rotate       row64_rotate
#define row_square_lanes row64_square_lanes
#define row_adamw        row64_adamw
#else
#define real         float
#define REAL_DTYPE   DT_F32
#define REAL_EPSILON 0x1p-23
#define real_sqrt    sqrtf
#define cblas_rgemm  cblas_sgemm
#endif

/* A function that is compiled for several widths of vector; the widest that the processor has is
 * taken when the program starts. Bits do not differ: nothing is contracted (-ffp-contract=off), and
 * sums run over a fixed number of lanes. */
#if defined(__x86_64__) && defined(__linux__) && defined(__OPTIMIZE__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(REF_NO_CLONES)
#define REF_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define REF_CLONES
#endif

#endif
