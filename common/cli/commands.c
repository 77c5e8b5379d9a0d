#include "common/cli/commands.h"

#include "common/cli/launch.h"
#include "common/cli/options.h"
#include "common/model/presets.h"

#include <stddef.h>

const struct command *commands(void)
{
    static const struct command table[] = {
        {"train", "trains a model as a configuration says", 1, command_train, NULL},
        {"data", "makes token shards from text, and looks into them", 0, command_data, NULL},
        {"launch", "runs a command as a job of several ranks", 0, NULL, launch_command},
        {"import", "makes a folder of narrows from a model of others", 1, command_import, NULL},
        {"export", "makes a folder for transformers from a model", 0, command_export, NULL},
        {"eval", "computes loss, perplexity, bits per byte; or answers questions", 1, command_eval,
         NULL},
        {"generate", "writes text with a trained model", 1, command_generate, NULL},
        {"tokenize", "turns text into token ids, and back", 0, command_tokenize, NULL},
        {"checkpoint", "looks into, checks, prunes and exports checkpoints of training", 1,
         command_checkpoint, NULL},
        {"bench", "times products, attention, blocks or whole steps", 1, command_bench, NULL},
        {"validate", "compares with formulas, stored values, other layouts", 0, command_validate,
         NULL},
        {"validate-job", NULL, 1, command_validate_job, NULL},
        {"plan", "draws a pipeline's order; finds the micro-batch that a memory holds", 0,
         command_plan, NULL},
        {"presets", "lists the named model sizes", 0, command_presets, NULL},
        {"config", "writes the reference of all configuration keys as Markdown", 0, command_config,
         NULL},
        {NULL, NULL, 0, NULL, NULL},
    };

    return table;
}

enum status command_presets(struct host *job, int argc, char **argv)
{
    static const struct option none[] = {{0}};
    const struct options_spec spec = {
        "presets",
        "lists the named model sizes, with parameters and the tensor parallelism they allow",
        "",
        0,
        0,
        false,
        none,
        "narrows presets\nnarrows train CONFIG model.preset=60m-cola"};
    struct options words;

    (void)job;
    TRY(options_parse(&words, &spec, argc, argv));
    return words.help ? options_help(stdout, &spec) : preset_table(stdout);
}

enum status command_config(struct host *job, int argc, char **argv)
{
    static const struct option none[] = {{0}};
    const struct options_spec spec = {
        "config", "writes the reference of all configuration keys as Markdown",
        "",       0,
        0,        false,
        none,     "narrows config > docs/config.md"};
    struct options words;

    (void)job;
    TRY(options_parse(&words, &spec, argc, argv));
    return words.help ? options_help(stdout, &spec) : config_markdown(stdout);
}
