/* One LLaMA block, for every tensor-parallel strategy and both backends:
 *
 *     x1 = x0 + out(attention(rope(in(x0)))),   x2 = x1 + out(swiglu(in(x1)))
 *
 * where in() begins with RMSNorm. Shapes are this rank's.
 */
#ifndef COMMON_MODEL_BLOCK_H
#define COMMON_MODEL_BLOCK_H

#include "common/parallel/strategy.h"

struct block {
    struct proj qkv, wo, gate_up, down;
};

/* What forward leaves for backward. h_l query and k_l key heads, f_l FFN units on this rank. */
struct block_acts {
    struct tensor x0, x1, x2; /* [M, d_l or d] the stream: in, between, out            */
    struct tensor qkv;        /* [M, (h_l + 2 k_l) head_dim], q | k | v                 */
    struct tensor q, k, v;    /* its columns (or rows of a KV cache): where in() writes */
    struct attention at;      /* q, k, v as attention reads them; o; lse                */
    struct tensor gu;         /* [M, 2 f_l], gate | up                                  */
    struct tensor gate, up;   /* its columns                                            */
    struct tensor f;          /* [M, f_l] after SwiGLU                                  */
    struct proj_acts qkv_a, wo_a, gate_up_a, down_a;
};

/* What is the same for all blocks of a model. */
struct block_env {
    struct tp_env tp;
    const struct tp_strategy *strategy;
    const struct tensor *rope_table; /* [positions, head_dim] */
};

/* The projections of a block in their order. Forward is, for each of them, a begin, which leaves a
 * message under way, and an end. Between the two another micro-batch may begin or end, in an env
 * with a communicator and scratch of its own. */
enum { BLOCK_QKV, BLOCK_WO, BLOCK_GATE_UP, BLOCK_DOWN, BLOCK_PROJECTIONS };

/* What comes before a projection's message, and the message's begin; f is for block_end. Collective
 * over env->tp.tp. */
enum status block_begin(struct block_env *env, const struct block *b, struct block_acts *a,
                        int projection, struct proj_flight *f);

/* Waits for it and does what follows: o after q, k and v, f after gate and up. */
enum status block_end(struct block_env *env, const struct block *b, struct block_acts *a,
                      int projection, struct proj_flight *f);

/* All of them: fills a from a->x0. Collective over env->tp.tp. */
enum status block_forward(struct block_env *env, const struct block *b, struct block_acts *a);

/* Fills again what backward needs of a and recomputation threw away: everything up to f, and the
 * down-projection's latents unless they are known; a->x2 is left alone. With known latents
 * (z_known) nothing is sent; else the block's forward collectives are repeated. */
enum status block_recompute(struct block_env *env, const struct block *b, struct block_acts *a);

/* Turns dx, the gradient of x2, into that of x0; weight gradients join db. Collective. */
enum status block_backward(struct block_env *env, const struct block *b, struct block *db,
                           struct block_acts *a, struct tensor *dx);

#endif
