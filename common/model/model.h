/* A model: its parameters, their roles in blocks and ends, and the shapes of this rank. */
#ifndef COMMON_MODEL_MODEL_H
#define COMMON_MODEL_MODEL_H

#include "common/model/block.h"
#include "common/model/params.h"

/* Which part of the model a rank holds. */
struct model_part {
    int tp_rank, tp_size;
    int stage, stages; /* of the pipeline                                    */
    int chunks;        /* runs of blocks that a stage holds: virtual stages */
};

/* Sizes that follow from the configuration and the layout. */
struct model_shape {
    int64_t width, head_dim, vocab_padded;
    int64_t stream;                     /* columns of the residual stream on this rank           */
    int64_t heads_l, kv_heads_l, ffn_l; /* heads and FFN units that this rank computes           */
    int64_t latent_l;                   /* columns of one latent on this rank: r or r / p        */
    int heads_cut;                      /* this rank computes a part of the heads                */
    int32_t grains;                     /* of each cut dimension on this rank                    */
    int32_t head_grains, ffn_grains;    /* the same, or 1 where heads or units are not cut       */
    int32_t latent_grains;              /* of one member's latents: more than 1 where r is cut   */
    int32_t stream_grains;
};

struct model {
    const struct config *cfg; /* resolved and validated */
    const struct tp_strategy *strategy;
    int tp_rank, tp_size;
    struct model_part part;
    int *first;     /* [runs + 1]: run k of all stages x chunks holds blocks first[k] ...      */
    int building;   /* while the table is filled: the layer, as struct param has it           */
    double weights; /* of the products of the whole model, padding left out                   */
    int64_t params_all; /* elements of all parameters of the whole model, padding left out     */
    struct model_shape shape;
    struct params params;
    struct block *blocks, *dblocks; /* weights and gradients, cfg->model.layers of each; those
                                     * of other stages are empty */
    struct ends ends, dends;
};

/* The strategy that a resolved configuration names. */
const struct tp_strategy *model_strategy(const struct config *cfg);

/* Lays out the table of parameters of the whole model. cfg is borrowed. wide: DT_F32 or DT_F64. No
 * device memory is taken: that is params_carve. Errors: ST_ENOMEM. */
enum status model_open(struct model *m, const struct config *cfg, int tp_rank, int tp_size,
                       enum dtype wide);

/* The same for one stage of a pipeline. Errors: ST_ENOMEM, ST_ECONFIG of runs_deal. */
enum status model_open_part(struct model *m, const struct config *cfg,
                            const struct model_part *part, enum dtype wide);
void model_close(struct model *m);

/* Nonzero when this rank looks tokens up; when it has the head. */
int model_embeds(const struct model *m);
int model_heads(const struct model *m);

/* The stage that has a layer (as in struct param); of a tied matrix the first. */
int model_stage_of(const struct model *m, int layer);

/* Blocks [*begin, *end) of chunk c of this rank. */
void model_chunk(const struct model *m, int c, int *begin, int *end);

/* The environment of the strategies, all but dev, tp, ledger and scratch. */
void model_env(struct block_env *env, const struct model *m);

/* table [positions, head_dim] of host memory: cos and sin of position * theta^(-2j/head_dim),
 * j < head_dim/2, computed in float64. */
void model_rope_table(void *table, enum dtype dt, const struct model *m, int64_t positions);

/* Floating-point operations of a training step per token (forward and backward): 6 a weight of the
 * blocks' and the head's products, and causal attention counted by half, 6 heads head_dim
 * (seq + 1); whole model. Recomputation is not counted. */
double model_flops_per_token(const struct model *m);

#endif
