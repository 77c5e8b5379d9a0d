/* All that a run reads: the corpora of its sources, and the two mixtures over them. */
#ifndef COMMON_DATA_DATASET_H
#define COMMON_DATA_DATASET_H

#include "common/data/mixture.h"
#include "common/model/config.h"

struct dataset {
    struct corpus *train_text, *validation_text; /* [sources] each */
    int train_sources, validation_sources;
    struct mixture train, validation;
};

/* Opens data.train and data.validation as cfg says; where data.validation is "", the last
 * data.validation_fraction of each source's documents or tokens is held out. Ids of shards are
 * checked against model.vocab: this is part `part` of `parts` equal ones, so that the ranks of a
 * job share the work and must agree on the result. Release with dataset_close; on failure there is
 * nothing to release. Local. Errors: those of sources_read, corpus_open_any, corpus_split,
 * corpus_check_ids and mixture_open; ST_ECONFIG for data.reset_documents without known borders. */
enum status dataset_open(struct dataset *d, const struct config *cfg, const struct tokenizer *t,
                         int part, int parts);
void dataset_close(struct dataset *d);

/* Tokens, documents, and tokens that packing off leaves out of an epoch, of n corpora together. */
int64_t dataset_tokens(const struct corpus *c, int n);
int64_t dataset_documents(const struct corpus *c, int n);

#endif
