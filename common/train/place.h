/* Where a job runs: its device, its groups of ranks, its communicators, its ledger.
 *
 * Ranks of the job are numbered as parallel/mesh.h says.
 */
#ifndef COMMON_TRAIN_PLACE_H
#define COMMON_TRAIN_PLACE_H

#include "common/backend/host.h"
#include "common/train/step.h"

struct place {
    struct host *job;        /* borrowed */
    struct step_place at;    /* device, communicators, host groups, ledger: what a step borrows */
    struct mesh mesh;        /* where this rank stands                                           */
    struct mesh_nodes nodes; /* where all do */
    struct ledger ledger;
    double peak; /* measured rate of large products, FLOP/s of all ranks; 0: not measured */
};

/* The backend that a configuration asks for. Errors: ST_ECONFIG when it was not built. */
enum status place_backend(const struct backend **be, const struct config *cfg);

/* The wide type of a configuration: DT_F64 under fp64, else DT_F32. */
enum dtype place_wide(const struct config *cfg);

/* Where this rank of the job stands, by parallel.placement. Collective. Errors: ST_ENOMEM. */
enum status place_mesh(struct mesh *m, const struct config *cfg, struct host *job);

/* Opens the groups and communicators of this rank at at->dev, over the ranks of `job`; at->dev and
 * at->ledger must be set. Collective over job. Errors: ST_ECOMM. */
enum status place_groups_open(struct step_place *at, const struct config *cfg, struct host *job);
void place_groups_close(struct step_place *at);

/* Opens device, groups and communicators for a resolved, validated configuration. Collective over
 * the job. Errors: ST_EDEVICE, ST_ECOMM. */
enum status place_open(struct place *p, const struct config *cfg, struct host *job);
void place_close(struct place *p);

/* Random values in [-1, 1), type dt, all over `bytes` of device memory, for measurements: products
 * of zeros draw less power and run faster than real ones. A block made on the host is repeated. */
enum status place_fill_random(struct device *dev, void *memory, enum dtype dt, size_t bytes);

/* Measures p->peak: products of 512^3 on each thread (ref) or of 8192^3 (gpu), best of a few.
 * Takes some tens of milliseconds. Collective over the job. */
enum status place_measure_peak(struct place *p, const struct config *cfg);

#endif
