/* `narrows data`: from text to token shards, and what is in them. */
#include "common/cli/data.h"
#include "common/cli/commands.h"
#include "common/cli/verbs.h"

#include <stddef.h>

enum status command_data(struct host *job, int argc, char **argv)
{
    static const struct verb verbs[] = {
        {"prepare", "turns text, JSON lines, gzip and zstd into a token shard", data_prepare},
        {"inspect", "says what shards are: format, type, tokens, documents", data_inspect},
        {"verify", "checks every number of a shard, and its ids against a vocabulary", data_verify},
        {"stats", "counts lengths of documents and how often ids occur", data_stats},
        {"head", "prints the first documents of a shard, as ids or as text", data_head},
        {"convert", "joins shards into one, of either format", data_convert},
        {NULL, NULL, NULL},
    };

    return verbs_run(job, "data",
                     "makes token shards and looks into them.\n\n"
                     "A shard holds token ids: Megatron's X.bin with its index X.idx, or llm.c's\n"
                     "X.bin. Name one by X.bin, X.idx or, for Megatron's, X. data.train and\n"
                     "data.validation of a configuration take the same names.",
                     verbs, argc, argv);
}
