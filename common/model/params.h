/* The table of parameters: one row a tensor of the model, with its cut, start values and memory.
 *
 * Names follow Hugging Face's LLaMA; the factors of a low-rank projection are `.down.weight`
 * (A, [r, in]) and `.up.weight` (B, [out, r]). Shapes in the table are whole; tensors are this
 * rank's shards. Start values depend on (seed, name, element) alone, never on the layout.
 */
#ifndef COMMON_MODEL_PARAMS_H
#define COMMON_MODEL_PARAMS_H

#include "common/backend/device.h"
#include "common/base/arena.h"
#include "common/model/config.h"
#include "common/parallel/strategy.h"

struct grains;

struct param {
    char name[96];
    enum param_role role;
    enum cut cut;
    int64_t rows, cols;   /* whole                                                           */
    int64_t real_rows;    /* rows that are not padding of the vocabulary: rows elsewhere      */
    int32_t grains;       /* of the cut dimension, whole; 1 when not cut                      */
    double sigma;         /* of the start values; 0: ones, for a bias zeros                   */
    int decay;            /* AdamW's decay applies                                            */
    int twice;            /* tied: gradients come from both ends, into g and g2               */
    int layer;            /* -1: the embedding; the number of layers: final norm and head     */
    int index, entry;     /* among all of the model; among those that are cut, or are whole  */
    int copy;             /* tied, last stage: the first one counts and stores it            */
    struct tensor w;      /* what the model reads                                             */
    struct tensor master; /* wide copy; data NULL when w is the only one                      */
    struct tensor m, v;   /* moments                                                          */
    struct tensor g, g2;  /* gradient, slot 0; wide. g2: data NULL unless twice               */
    struct tensor *use_w[2], *use_g[2]; /* views elsewhere (struct proj, ends) to be filled    */
};

struct params {
    struct param *item;
    int n, room;
    int tp_rank, tp_size;
    enum dtype work, wide, moments; /* of w; of master and gradients; of m and v               */
    int masters;                    /* w has a wide copy beside it                             */
    size_t flat, second;       /* bytes of slot 0: of all gradients but the second of tied matrices;
                          * of those, which lie behind                                        */
    int64_t plane, head_plane; /* from a gradient's slot j to slot j + 1: of the embedding and the
                                * blocks; of the final norm and the head                       */
    int all, all_cut, all_whole; /* tensors of the whole model, whatever stage holds them   */
    uint64_t *known;             /* [all] hashes of their names                             */
    const struct grains *pieces; /* who holds masters and moments; NULL: this rank, all     */
    struct host *dp, *pp;        /* borrowed: the replicas; the stages; NULL: this one alone */
};

/* Room for `room` rows. Errors: ST_ENOMEM. */
enum status params_open(struct params *p, int room, int tp_rank, int tp_size);
void params_close(struct params *p);

/* Sets the data types from a precision. */
void params_types(struct params *p, const struct config *cfg, enum dtype wide);

/* Appends a row; use_w, use_g: where the views go once memory is carved. Errors: ST_EINTERNAL. */
enum status params_add(struct params *p, const struct param *row);

/* This rank's shape of a parameter, and where its shard begins in the whole. */
void param_shard(const struct params *p, const struct param *row, int64_t *rows, int64_t *cols,
                 int64_t *row0, int64_t *col0);

/* A packed view of that shape over data, grains set. */
struct tensor param_view(const struct params *p, const struct param *row, void *data,
                         enum dtype dt);

/* Weights, masters and moments from `state`. training: with masters and moments. */
enum status params_carve(struct params *p, struct arena *state, int training);

/* Slots that gradients need (sample_plan.h). The head's samples may come in smaller parts than a
 * micro-batch, so that more of its sums wait. */
struct grad_slots {
    int blocks, head;
    int head_layer; /* of the final norm and the head: the number of layers */
};

/* Gradients from `grads`; sets flat, second and planes. Slot 0 lies in one piece, the head's end
 * of it last; further slots of the head follow it, those of all else stand before it. */
enum status params_carve_grads(struct params *p, struct arena *grads, const struct grad_slots *n);

/* Draws the start values and clears the moments. */
enum status params_init(struct params *p, struct device *dev, uint64_t seed);

/* The tensor that holds a parameter's exact value: the master where there is one, else w. */
const struct tensor *param_value(const struct param *row);

/* Puts values from host memory (this rank's shard, packed, wide type) into w and master. */
enum status param_set(struct params *p, struct param *row, struct device *dev, const void *values);

/* Elements of the largest tensor on this rank. */
int64_t params_largest(const struct params *p);

/* Elements of all parameters, whole (padding left out); and on this rank. */
int64_t params_count(const struct params *p);
int64_t params_count_local(const struct params *p);

/* Nonzero for a gain or a bias: [1, cols] here, [cols] in files. */
int param_is_vector(const struct param *row);

/* Nonzero when the whole model has a tensor called name, on this stage or another. */
int params_known(const struct params *p, const char *name);

/* The row called name, or NULL. */
struct param *params_find(struct params *p, const char *name);

/* Grain i of a shard's tensor: its rows or columns. */
struct tensor param_grain(const struct param *row, const struct tensor *t, int32_t i);

/* 64-bit hash of all weights, the same in every layout: of the (tensor, grain) pairs' hashes in
 * grain-major order. Collective over `tp` (the host group of the TP ranks), over p->pp, and, when
 * masters are sharded, over p->dp. Errors: ST_EINTERNAL when a parameter that every rank holds
 * whole is not the same on all of them, or a tied matrix on both stages that hold it. */
enum status params_hash(uint64_t *hash, const struct params *p, struct device *dev,
                        struct host *tp);

#endif
