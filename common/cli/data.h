/* The verbs of `narrows data`: each takes the words after its name. Errors: those of what they do,
 * and ST_EUSAGE. */
#ifndef COMMON_CLI_DATA_H
#define COMMON_CLI_DATA_H

#include "common/base/status.h"

/* Text to a token shard. */
enum status data_prepare(int argc, char **argv);

/* What a shard is; every check of it; figures of its documents and ids; its first documents. */
enum status data_inspect(int argc, char **argv);
enum status data_verify(int argc, char **argv);
enum status data_stats(int argc, char **argv);
enum status data_head(int argc, char **argv);

/* Shards of either format to one shard of either format. */
enum status data_convert(int argc, char **argv);

#endif
