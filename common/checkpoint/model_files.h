/* A model's files made into others: import, export, merging. Tensor by tensor on one process, no
 * layout, no training state. What is written is a folder (outlet.h). */
#ifndef COMMON_CHECKPOINT_MODEL_FILES_H
#define COMMON_CHECKPOINT_MODEL_FILES_H

#include "common/checkpoint/outlet.h"
#include "common/checkpoint/source.h"
#include "common/model/model.h"

/* A model in files, checked against the shape that they claim. */
struct model_files {
    struct source source;
    struct config cfg;  /* resolved for one rank */
    struct model table; /* names and shapes of its parameters; no memory behind them */
    int framed;         /* its prompts get what its tokenizer puts around a text: 1 when opened */
};

/* Opens path (see source_open): every parameter must be there with its shape and nothing else may
 * be. Release with model_files_close; on failure nothing is left open. Local. Errors: those of
 * source_open; ST_EFORMAT naming the tensor that is missing, left over or of another shape;
 * ST_ECONFIG for sizes that this program does not allow. */
enum status model_files_open(struct model_files *f, const char *path);
void model_files_close(struct model_files *f);

/* The table of another configuration's parameters (cfg resolved here; it must outlive the table).
 * Release with model_close. Errors: as config_validate. */
enum status model_files_table(struct model *table, struct config *cfg);

/* Nothing when s holds every parameter of the table with its shape, and nothing that the whole
 * model has no place for (a table may be that of one pipeline stage). Errors: ST_EFORMAT with file
 * and tensor. */
enum status model_files_check(const struct model *table, const struct source *s);

/* *values = all of t in the type `wide`; free() them. Errors: those of source_read_all;
 * ST_ENOMEM. */
enum status model_files_values(void **values, const struct source_tensor *t, enum dtype wide);

/* Begins the folder dir for the parameters of a table, under this program's names (or CoLA's:
 * factors turned). Errors: those of outlet_begin. */
enum status model_files_begin(struct outlet *o, const char *dir, const struct model *table,
                              enum safetensors_type type, int cola);

/* Puts the values of a table's row; wide: their type. cola: turned and renamed where it is a
 * factor. Errors: those of outlet_put. */
enum status model_files_put(struct outlet *o, const struct param *row, const void *values,
                            enum dtype wide, int cola);

/* Puts a table's row as it stands in f. Errors: those of the two above. */
enum status model_files_copy(struct outlet *o, const struct model_files *f, const struct param *row,
                             int cola);

/* A folder of this program's from f, bit for bit: config.json with f's ids, weights in float32
 * (float64 where the source is), tokenizer files and generation_config.json where f's folder has
 * them; and, when a tokenizer is known, narrows.yaml with the model section, it and sample.frame as
 * f->framed is. tokenizer: its name, or NULL for the file beside f's weights. Errors: those of
 * outlet.h. */
enum status model_files_import(const struct model_files *f, const char *dir, const char *tokenizer);

/* What belongs to an imported folder beside the tensors, into the folder that is being written:
 * for cfg (as its narrows.yaml is to be, unresolved), with what lies beside f's weights. */
enum status model_files_settings(struct outlet *o, const struct model_files *f, struct config *cfg,
                                 const char *tokenizer);

/* name [CONFIG_TEXT] = the tokenizer that goes with f: `given` unless NULL, else the tokenizer.json
 * or tokenizer.model beside its weights. Errors: ST_EUSAGE when there is none. */
enum status model_files_tokenizer(char *name, const struct model_files *f, const char *given);

/* How a model is exported. */
struct export_form {
    enum safetensors_type type;
    struct hf_ids ids;
    int merge;               /* factors become one matrix */
    struct device *products; /* a float64 device, for merge */
};

/* A folder for transformers from f: llama or qwen2 where the model (or, merged, its dense form) is
 * one, CoLA in CoLA's layout, anything else as "narrows"; the last two with modeling_narrows.py.
 * The caller adds tokenizer files and commits o. Errors: ST_EUSAGE for merging CoLA, with the
 * reason, or a full-rank model; those of outlet.h. On failure o needs no dropping. */
enum status model_files_export(struct outlet *o, const struct model_files *f, const char *dir,
                               const struct export_form *form);

/* The kind that an export is of. */
enum hf_kind model_files_kind(const struct model_files *f, int merge);

#endif
