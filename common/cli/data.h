/* The verbs of `narrows data`: each takes the words after its name. Errors: those of what they do,
 * and ST_EUSAGE. */
#ifndef COMMON_CLI_DATA_H
#define COMMON_CLI_DATA_H

#include "common/backend/host.h"

/* Text to a token shard. */
enum status data_prepare(struct host *job, int argc, char **argv);

/* What a shard is; every check of it; figures of its documents and ids; its first documents. */
enum status data_inspect(struct host *job, int argc, char **argv);
enum status data_verify(struct host *job, int argc, char **argv);
enum status data_stats(struct host *job, int argc, char **argv);
enum status data_head(struct host *job, int argc, char **argv);

/* Shards of either format to one shard of either format. */
enum status data_convert(struct host *job, int argc, char **argv);

#endif
