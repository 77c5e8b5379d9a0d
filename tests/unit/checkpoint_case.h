/* Checkpoints of a small model in layouts that one process plays: each rank's model in turn. */
#ifndef TESTS_UNIT_CHECKPOINT_CASE_H
#define TESTS_UNIT_CHECKPOINT_CASE_H

#include "common/checkpoint/checkpoint.h"
#include "tests/unit/tiny_model.h"

/* Models to save: changes of tiny_model_config, as each function below takes them. */
enum { CHECKPOINT_VARIANTS = 6 };
extern const char *const checkpoint_variants[CHECKPOINT_VARIANTS][6];

/* Opens TP rank `rank` of `size`, with weights, masters and moments that depend on the place in
 * the whole tensor alone; seed 0: all zero. changes: as tiny_model_config. */
void checkpoint_case_open(struct tiny_model *t, const char *const *changes, int rank, int size,
                          uint64_t seed);

/* Writes root/step-N as tp x dp ranks would. */
void checkpoint_case_save(const char *root, const char *const *changes, int tp, int dp,
                          int64_t step);

/* Nonzero when every tensor of two models of one layout holds the same bytes. */
int checkpoint_case_same(const struct tiny_model *a, const struct tiny_model *b);

/* Writes m as folder's manifest, its hash renewed. */
void checkpoint_case_manifest(const char *folder, const struct manifest *m);

/* Removes root with its checkpoints. */
void checkpoint_case_remove(const char *root);

/* `found` is st, and the message holds both words; clears it. */
void checkpoint_case_refused(enum status found, enum status st, const char *a, const char *b);

/* Changes one bit of a file. */
void checkpoint_case_flip(const char *folder, const char *name, size_t at, int bit);

#endif
