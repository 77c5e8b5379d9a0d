/* narrows export: a model as a folder that transformers loads. */
#include "common/base/log.h"
#include "common/checkpoint/model_files.h"
#include "common/checkpoint/weights.h"
#include "common/cli/commands.h"
#include "common/cli/export_tokenizer.h"
#include "common/cli/options.h"
#include "common/cli/saved.h"

#include <stdlib.h>
#include <string.h>

struct export_options {
    const char *output, *dtype, *tokenizer;
    bool merge;
};

enum { OPTIONS = 5 };

static void fill_options(struct option *table, struct export_options *o)
{
    const struct option options[OPTIONS] = {
        {"--output", 'o', "FOLDER", OPTION_TEXT, &o->output, 0, 0,
         "where the model goes; must not be there yet"},
        {"--dtype", 'd', "TYPE", OPTION_TEXT, &o->dtype, 0, 0,
         "of the weights: f32, bf16, f16, f64 (f32)"},
        {"--merge", 'm', NULL, OPTION_SWITCH, &o->merge, 0, 0,
         "SVD: one dense matrix B A for each layer, computed in float64 and rounded once"},
        {"--tokenizer", 't', "NAME", OPTION_TEXT, &o->tokenizer, 0, 0,
         "the tokenizer's file instead of the one that the model was trained with; none = leave "
         "it out"},
        {0}};

    memcpy(table, options, sizeof options);
}

static enum status parse_dtype(enum safetensors_type *type, const char *word)
{
    static const struct {
        const char *word;
        enum safetensors_type type;
    } types[] = {{"f32", SAFETENSORS_F32},
                 {"bf16", SAFETENSORS_BF16},
                 {"f16", SAFETENSORS_F16},
                 {"f64", SAFETENSORS_F64}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!word || !strcmp(word, types[i].word)) {
            *type = types[i].type;
            return ST_OK;
        }
    return fail(ST_EUSAGE, "--dtype is f32, bf16, f16 or f64, not '%s'", word);
}

/* The tokenizer that the weights' settings name, "" when there are none, and their sample.frame. */
static enum status named_tokenizer(char name[CONFIG_TEXT], int *framed, const char *folder)
{
    struct config *cfg = malloc(sizeof *cfg);
    int found;
    enum status st;

    if (!cfg)
        return fail(ST_ENOMEM, "no memory for a configuration");
    st = saved_read(cfg, &found, folder);
    if (st == ST_OK) {
        memcpy(name, found ? cfg->data.tokenizer : "", found ? CONFIG_TEXT : 1);
        *framed = !found || cfg->sample.frame;
    }
    free(cfg);
    return st;
}

static void report(const struct model_files *f, const struct export_options *o,
                   const struct export_form *form, const char *tokenizer)
{
    static const char *const loads[] = {
        [HF_LLAMA] = "LlamaForCausalLM",
        [HF_QWEN2] = "Qwen2ForCausalLM",
        [HF_NARROWS] = "NarrowsForCausalLM (modeling_narrows.py: trust_remote_code=True)",
        [HF_COLA] = "ColaForCausalLM of modeling_narrows.py (trust_remote_code=True)"};

    log_info("source      %s", f->source.where);
    log_info("loads as    %s", loads[model_files_kind(f, form->merge)]);
    log_info("weights     %s%s", outlet_dtype(form->type), form->merge ? ", factors merged" : "");
    log_info("tokenizer   %s", tokenizer);
    log_info("written to  %s", o->output);
}

static enum status write_folder(const struct model_files *f, const struct export_options *o,
                                struct export_form *form, const char *tokenizer, int framed)
{
    struct outlet out;
    enum status st;

    form->ids = f->source.ids;
    TRY(export_ids(&form->ids, tokenizer));
    TRY(model_files_export(&out, f, o->output, form));
    st = export_tokenizer(&out, tokenizer, &form->ids, framed);
    if (st == ST_OK)
        return outlet_commit(&out);
    outlet_drop(&out);
    return st;
}

static enum status export_from(const char *where, const struct export_options *o,
                               struct export_form *form)
{
    struct device_options cpu = {.threads = 1, .local_size = 1};
    char folder[FOLDER_PATH], name[CONFIG_TEXT];
    struct model_files *f;
    enum status st;
    int framed = 1;

    TRY(weights_find(folder, where));
    TRY(named_tokenizer(name, &framed, folder));
    if (o->tokenizer)
        snprintf(name, sizeof name, "%s", o->tokenizer);
    TRY(device_open(&form->products, &ref64_backend, &cpu));
    f = malloc(sizeof *f);
    st = f ? model_files_open(f, folder) : fail(ST_ENOMEM, "no memory for a model");
    if (st == ST_OK) {
        st = write_folder(f, o, form, name, framed);
        if (st == ST_OK)
            report(f, o, form, name[0] ? name : "none known");
        model_files_close(f);
    }
    free(f);
    device_close(form->products);
    return st;
}

enum status command_export(struct host *job, int argc, char **argv)
{
    struct export_options o = {0};
    struct export_form form = {0};
    struct option table[OPTIONS];
    struct options words;
    const struct options_spec spec = {
        "export",
        "makes a folder for transformers from the weights of a run, or of a saved or imported "
        "model",
        "RUN|FOLDER",
        1,
        1,
        false,
        table,
        "narrows export runs/quickstart --output quickstart-hf\n"
        "narrows export runs/my-svd --output my-dense --merge --dtype bf16"};

    (void)job;
    fill_options(table, &o);
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    if (!o.output)
        return fail(ST_EUSAGE, "say where the model goes: --output FOLDER");
    TRY(parse_dtype(&form.type, o.dtype));
    form.merge = o.merge;
    return export_from(words.word[0], &o, &form);
}
