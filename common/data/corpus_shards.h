/* Token shards behind a corpus: what corpus.c asks of them. */
#ifndef COMMON_DATA_CORPUS_SHARDS_H
#define COMMON_DATA_CORPUS_SHARDS_H

#include "common/data/corpus.h"

/* Nonzero when path names a shard, or is a pattern that is no file's name. */
int corpus_shards_named(const char *path);

/* One more user of the same shards; and one less, the last one closes them (NULL is allowed). */
struct corpus_shards *corpus_shards_share(struct corpus_shards *s);
void corpus_shards_release(struct corpus_shards *s);

/* corpus_start and corpus_read on shards. */
int64_t corpus_shards_start(const struct corpus *c, int64_t j);
void corpus_shards_read(int32_t *out, const struct corpus *c, int64_t first, int64_t n);

#endif
