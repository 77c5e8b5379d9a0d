/* Exporting, and merging factors. */
#include "common/checkpoint/model_files.h"
#include "common/checkpoint/modeling.h"
#include "common/checkpoint/weights.h"

#include "common/backend/op.h"

#include <stdlib.h>
#include <string.h>

enum hf_kind model_files_kind(const struct model_files *f, int merge)
{
    const struct config_model *m = &f->cfg.model;

    if (m->layer == LAYER_COLA && !m->qkv_bias) /* CoLA's layout has no place for biases */
        return HF_COLA;
    if (merge && m->outer_silu == SILU_ON)
        return m->qkv_bias ? HF_QWEN2 : HF_LLAMA;
    return hf_config_kind(&f->cfg);
}

static enum status check_merge(const struct model_files *f)
{
    if (f->cfg.model.layer == LAYER_FULL)
        return fail(ST_EUSAGE, "%s is full rank: there are no factors to merge; leave out --merge",
                    f->source.where);
    if (f->cfg.model.layer == LAYER_COLA)
        return fail(ST_EUSAGE,
                    "%s is CoLA, y = B SiLU(A x): with SiLU between its factors no dense matrix "
                    "computes the same; leave out --merge for CoLA's own layout",
                    f->source.where);
    return ST_OK;
}

/* ---- merging ---- */

/* The source's factor of a dense parameter: X.weight has X.down.weight and X.up.weight. */
static const struct source_tensor *factor_of(const struct source *s, const struct param *dense,
                                             const char *which)
{
    static const char end[] = ".weight";
    char name[sizeof dense->name + 16];
    size_t n = strlen(dense->name) - (sizeof end - 1);

    snprintf(name, sizeof name, "%.*s.%s.weight", (int)n, dense->name, which);
    return source_find(s, name);
}

/* w [out, in] = B [out, r] A [r, in], all float64 on the device's own memory (a CPU's). */
static enum status product(struct device *dev, double *w, const struct source_tensor *down,
                           const struct source_tensor *up)
{
    void *a = NULL, *b = NULL;
    enum status st = model_files_values(&a, down, DT_F64);

    if (st == ST_OK)
        st = model_files_values(&b, up, DT_F64);
    if (st == ST_OK) {
        struct gemm g = {.y = tensor_view(w, DT_F64, up->rows, down->cols),
                         .a = tensor_view(b, DT_F64, up->rows, up->cols),
                         .b = tensor_view(a, DT_F64, down->rows, down->cols),
                         .kind = GEMM_NN};

        st = op_gemm(dev, &g, 1);
    }
    free(a);
    free(b);
    return st;
}

static enum status put_merged(struct outlet *o, const struct model_files *f,
                              const struct param *row, struct device *products)
{
    const struct source_tensor *t = source_find(&f->source, row->name);
    int64_t n = row->real_rows * row->cols;
    void *values = NULL;
    enum status st;

    if (t) {
        st = model_files_values(&values, t, DT_F64);
    } else {
        values = malloc((size_t)n * sizeof(double));
        st = values ? product(products, values, factor_of(&f->source, row, "down"),
                              factor_of(&f->source, row, "up"))
                    : fail(ST_ENOMEM, "no memory for %lld values of %s", (long long)n, row->name);
    }
    if (st == ST_OK)
        st = model_files_put(o, row, values, DT_F64, 0);
    free(values);
    return st;
}

/* The dense model: the same, its linear layers full rank. */
static enum status dense_table(struct model *table, struct config *cfg, const struct model_files *f)
{
    config_default(cfg);
    TRY(source_config(cfg, f->source.where));
    cfg->model.layer = LAYER_FULL;
    cfg->model.rank = 0;
    return model_files_table(table, cfg);
}

/* ---- the folder ---- */

static enum status write_code(const struct outlet *o)
{
    char path[FOLDER_PATH];

    TRY(outlet_path(path, o, "modeling_narrows.py"));
    return modeling_write(path);
}

static enum status write_texts(const struct outlet *o, const struct config *cfg,
                               const struct hf_form *form)
{
    char path[FOLDER_PATH];

    TRY(outlet_path(path, o, WEIGHTS_CONFIG));
    TRY(hf_config_export(path, cfg, form));
    TRY(outlet_path(path, o, "generation_config.json"));
    TRY(hf_generation_write(path, &form->ids));
    return form->code ? write_code(o) : ST_OK;
}

static enum status put_all(struct outlet *o, const struct model_files *f, const struct model *table,
                           const struct export_form *form)
{
    int cola = model_files_kind(f, form->merge) == HF_COLA;

    for (int i = 0; i < table->params.n; i++) {
        const struct param *row = &table->params.item[i];

        TRY(form->merge ? put_merged(o, f, row, form->products)
                        : model_files_copy(o, f, row, cola));
    }
    return ST_OK;
}

static enum status export_table(struct outlet *o, const struct model_files *f, const char *dir,
                                const struct model *table, const struct export_form *form)
{
    struct hf_form text = {.kind = model_files_kind(f, form->merge),
                           .dtype = outlet_dtype(form->type),
                           .ids = form->ids};
    enum status st;

    text.code = text.kind == HF_COLA || text.kind == HF_NARROWS;
    TRY(model_files_begin(o, dir, table, form->type, text.kind == HF_COLA));
    st = write_texts(o, table->cfg, &text);
    if (st == ST_OK)
        st = put_all(o, f, table, form);
    if (st != ST_OK)
        outlet_drop(o);
    return st;
}

enum status model_files_export(struct outlet *o, const struct model_files *f, const char *dir,
                               const struct export_form *form)
{
    struct config *cfg;
    struct model dense;
    enum status st;

    if (!form->merge)
        return export_table(o, f, dir, &f->table, form);
    TRY(check_merge(f));
    cfg = malloc(sizeof *cfg);
    if (!cfg)
        return fail(ST_ENOMEM, "no memory for a configuration");
    st = dense_table(&dense, cfg, f);
    if (st == ST_OK) {
        st = export_table(o, f, dir, &dense, form);
        model_close(&dense);
    }
    free(cfg);
    return st;
}
