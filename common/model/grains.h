/* The (tensor, grain) pairs that a rank holds, and who owns them.
 *
 * A pair is the unit of the gradient's norm, of hashes, of ZeRO's shards and of what a checkpoint
 * stores. Each has one owner among the replicas (dp ranks with the same place in the other
 * dimensions): with parallel.zero 1 only the owner holds its master and moments and updates it;
 * without, every replica does, and the owner is the one to store it.
 *
 * Pairs lie in buckets, runs of whole layers: what data parallelism reduces in one call. Within a
 * bucket the pairs, largest first, go to the replica that has least of the bucket so far, so that
 * any number of replicas gets even shares; a pair is never cut.
 */
#ifndef COMMON_MODEL_GRAINS_H
#define COMMON_MODEL_GRAINS_H

#include "common/model/params.h"

struct grain {
    int item;      /* row of the table of parameters                                     */
    int32_t grain; /* of those that this rank holds; 0 for a tensor that is not cut      */
    int owner;     /* dp rank                                                            */
    int bucket;
    int64_t rows, cols;     /* its shape                                              */
    int64_t at, at2;        /* elements before it in its owner's shares: of g; of g2  */
    int64_t entry;          /* where its sum of squares stands on this rank           */
    struct tensor w, g, g2; /* views; g and g2 (tied alone) of a sharded piece: the   */
    struct tensor master;   /* reduced sum, on its owner. data NULL where this rank   */
    struct tensor m, v;     /* does not hold it                                       */
};

struct grains {
    struct grain *item; /* grain-major over the cut tensors, then the whole ones */
    int n, buckets;
    int *bucket_of;     /* [params]                                                 */
    int64_t *share;     /* [buckets] elements of the largest share of g             */
    int64_t *share2;    /* the same of g2; 0 where no tensor of the bucket is tied  */
    void **sum, **sum2; /* [buckets] sharded: this rank's shares of reduced sums    */
    int dp_rank, dp_size;
    int sharded; /* zero 1 */
};

/* Lists the pairs of p and deals them to dp_size replicas. bucket_bytes: a bucket is closed by the
 * layer that fills it. Local, and the same on all replicas. Errors: ST_ENOMEM. */
enum status grains_open(struct grains *s, const struct params *p, int dp_rank, int dp_size,
                        int sharded, size_t bucket_bytes);
void grains_close(struct grains *s);

/* A pair; NULL: this rank does not hold it. item: a row of the table; grain: of this rank. */
const struct grain *grains_find(const struct grains *s, int item, int32_t grain);

/* The replica that owns a pair: item a row of the table, grain counted on this rank. */
int grains_owner(const struct grains *s, int item, int32_t grain);

/* Nonzero when this rank holds a pair's master and moments and updates it. */
int grains_mine(const struct grains *s, const struct grain *piece);

/* Sets the views of weights, masters and moments. Sharded: takes the latter, of this rank's pairs
 * alone, from state; params_carve must then have been called without training. */
enum status grains_carve(struct grains *s, const struct params *p, struct arena *state);

/* Sets the views of gradients. Sharded: takes this rank's reduced sums from grads. */
enum status grains_carve_grads(struct grains *s, const struct params *p, struct arena *grads);

/* Sharded, with masters: puts values (this rank's shard of row, packed, wide, host memory) into
 * the masters of its pairs; param_set calls it. Errors: ST_ENOMEM and those of the device. */
enum status grains_set_masters(const struct grains *s, const struct params *p,
                               const struct param *row, struct device *dev, const void *values);

/* Sharded: clears the moments of this rank's pairs; params_init calls it. */
enum status grains_clear_moments(const struct grains *s, struct device *dev);

#endif
