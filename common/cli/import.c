/* narrows import: somebody else's model as a folder that narrows trains, evaluates and exports. */
#include "common/base/log.h"
#include "common/checkpoint/model_files.h"
#include "common/cli/commands.h"
#include "common/cli/import_lowrank.h"
#include "common/cli/options.h"
#include "common/cli/saved.h"
#include "common/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct import_options {
    const char *output, *method, *family, *text, *tokenizer;
    int64_t rank;
};

enum { OPTIONS = 7 };

static void fill_options(struct option *table, struct import_options *o)
{
    const struct option options[OPTIONS] = {
        {"--output", 'o', "FOLDER", OPTION_TEXT, &o->output, 0, 0,
         "where the model goes; must not be there yet"},
        {"--to-lowrank", 'r', "R", OPTION_INT, &o->rank, 1, 1 << 17,
         "factor every linear layer of a full-rank model to rank R"},
        {"--method", 'm', "NAME", OPTION_TEXT, &o->method, 0, 0,
         "svd = nearest to the matrix; activation-aware = nearest to its outputs on --text (svd)"},
        {"--family", 'f', "NAME", OPTION_TEXT, &o->family, 0, 0,
         "svd = y = B A x; cola = y = B SiLU(A x), begun near it (svd)"},
        {"--tokenizer", 0, "NAME", OPTION_TEXT, &o->tokenizer, 0, 0,
         "its tokenizer, where no tokenizer.json or tokenizer.model lies beside the weights"},
        {"--text", 't', "FILE", OPTION_TEXT, &o->text, 0, 0,
         "text whose activations weigh the error, for activation-aware"},
        {0}};

    memcpy(table, options, sizeof options);
}

/* What was found, as a table; its last line says where it went. */
static void report(const struct model_files *f, const char *output)
{
    static const char *const kinds[] = {
        [HF_LLAMA] = "LLaMA", [HF_QWEN2] = "Qwen2", [HF_NARROWS] = "narrows", [HF_COLA] = "CoLA"};
    const struct config_model *m = &f->cfg.model;

    log_info("source      %s (%s%s)", f->source.where,
             f->source.bin ? "llama2.c" : kinds[f->source.kind],
             f->source.files > 1 ? ", several files" : "");
    log_info("model       %s, width %" PRId64 ", %" PRId64 " blocks, %" PRId64 " heads (%" PRId64
             " of keys), FFN %" PRId64 ", vocabulary %" PRId64 "%s%s",
             config_choice_name("model.layer", (int)m->layer), m->width, m->layers, m->heads,
             m->kv_heads, m->ffn, m->vocab, m->tied ? ", tied" : "",
             m->qkv_bias ? ", biases of q, k, v" : "");
    if (m->layer != LAYER_FULL)
        log_info("rank        %" PRId64, m->rank);
    log_info("tensors     %d, %" PRId64 " parameters", f->table.params.n,
             params_count(&f->table.params));
    log_info("written to  %s", output);
}

static enum status choose(int *chosen, const char *option, const char *word, const char *first,
                          const char *second)
{
    *chosen = word && !strcmp(word, second);
    if (!word || *chosen || !strcmp(word, first))
        return ST_OK;
    return fail(ST_EUSAGE, "%s is %s or %s, not '%s'", option, first, second, word);
}

static enum status check(struct lowrank_wish *w, const struct import_options *o)
{
    int aware, cola;

    if (!o->output)
        return fail(ST_EUSAGE, "say where the model goes: --output FOLDER");
    TRY(choose(&aware, "--method", o->method, "svd", "activation-aware"));
    TRY(choose(&cola, "--family", o->family, "svd", "cola"));
    if (!o->rank && (o->method || o->family || o->text))
        return fail(ST_EUSAGE, "--method, --family and --text belong to --to-lowrank R");
    if (aware && !o->text)
        return fail(ST_EUSAGE, "activation-aware needs a text: --text FILE");
    if (o->text && !aware)
        return fail(ST_EUSAGE, "--text is used by --method activation-aware alone");
    *w = (struct lowrank_wish){.rank = o->rank,
                               .cola = cola,
                               .text = o->text,
                               .tokenizer = o->tokenizer,
                               .output = o->output};
    return ST_OK;
}

/* settings: those that lie beside the weights of this program's models. */
static enum status import_with(struct host *job, const char *path, struct lowrank_wish *w,
                               const struct config *settings)
{
    struct model_files *f = malloc(sizeof *f);
    enum status st;

    if (!f)
        return fail(ST_ENOMEM, "no memory for a model");
    st = model_files_open(f, path);
    if (st == ST_OK) {
        if (settings)
            f->framed = settings->sample.frame;
        if (settings && !w->tokenizer && !tokenizer_in(path))
            w->tokenizer = settings->data.tokenizer;
        st = w->rank ? import_lowrank(f, job, w) : model_files_import(f, w->output, w->tokenizer);
        if (st == ST_OK)
            report(f, w->output);
        model_files_close(f);
    }
    free(f);
    return st;
}

static enum status import(struct host *job, const char *path, struct lowrank_wish *w)
{
    struct config *settings = malloc(sizeof *settings);
    int found;
    enum status st;

    if (!settings)
        return fail(ST_ENOMEM, "no memory for a configuration");
    st = saved_read(settings, &found, path);
    if (st == ST_OK)
        st = import_with(job, path, w, found ? settings : NULL);
    free(settings);
    return st;
}

enum status command_import(struct host *job, int argc, char **argv)
{
    struct import_options o = {0};
    struct option table[OPTIONS];
    struct lowrank_wish wish;
    struct options words;
    const struct options_spec spec = {
        "import",
        "makes a folder of narrows from a model of others: LLaMA or Qwen2 (Hugging Face), CoLA, "
        "llama2.c",
        "FOLDER|FILE.bin",
        1,
        1,
        false,
        table,
        "narrows import stories260K.bin --output stories\n"
        "narrows import Qwen2.5-0.5B --output qwen\n"
        "narrows import stories --output stories-r16 --to-lowrank 16\n"
        "narrows import stories --output stories-r16 --to-lowrank 16 --method activation-aware "
        "--text train.txt"};

    fill_options(table, &o);
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    TRY(check(&wish, &o));
    return import(job, words.word[0], &wish);
}
