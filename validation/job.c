/* The validation's side of job.h: starts a job, reads what it left, compares two. */
#include "validation/job.h"

#include "validation/cases.h"
#include "validation/tempdir.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS = 64 };

static enum status values(double *out, const struct job *j, const char *name, int64_t n)
{
    const struct safetensors_tensor *t = safetensors_find(&j->file, name);

    if (!t || t->count != n)
        return fail(ST_EFORMAT, "a job left no %s", name);
    return safetensors_read(out, DT_F64, t, 0, n);
}

static enum status read_counts(struct job *j)
{
    const struct safetensors_tensor *t = safetensors_find(&j->file, "ledger");
    int64_t count[LEDGER_COUNT][3];

    if (!t || t->type != SAFETENSORS_I64 || t->count != (int64_t)LEDGER_COUNT * 3)
        return fail(ST_EFORMAT, "a job left no ledger");
    memcpy(count, t->data, sizeof count);
    for (int i = 0; i < LEDGER_COUNT; i++)
        j->ledger.row[i] = (struct ledger_row){
            .calls = count[i][0], .elements = count[i][1], .wire_bytes = count[i][2]};
    return ST_OK;
}

static enum status read_result(struct job *j, const char *path)
{
    double loss_norm[2];
    enum status st;

    TRY(safetensors_open(&j->file, path));
    st = values(loss_norm, j, "loss_norm", 2);
    if (st == ST_OK)
        st = read_counts(j);
    if (st != ST_OK) {
        safetensors_close(&j->file);
        return st;
    }
    j->loss = loss_norm[0];
    j->grad_norm = loss_norm[1];
    return ST_OK;
}

static enum status run_in(struct job *j, const struct check_options *o, const char *folder,
                          int ranks, char *words)
{
    char result[TEMPDIR_PATH + 16], shown[CASE_WORDS], *output = NULL;
    const char *argv[ARGUMENTS] = {"validate-job", result};
    int n, failed = 0;
    enum status st;

    snprintf(shown, sizeof shown, "%s", words);
    snprintf(result, sizeof result, "%s/result", folder);
    n = 2 + case_split(argv + 2, ARGUMENTS - 3, words);
    argv[n] = NULL;
    st = o->launch.run(&output, &failed, ranks, argv);
    if (st == ST_OK && failed)
        st = fail(ST_EMISMATCH, "a job of %d rank(s) failed (validate-job FILE %s):\n%s", ranks,
                  shown, output ? output : "");
    free(output);
    TRY(st);
    return read_result(j, result);
}

enum status job_run(struct job *j, const struct check_options *o, const struct config *cfg,
                    const char *words, ...)
{
    int ranks = (int)(cfg->parallel.tp * cfg->parallel.dp * cfg->parallel.pp);
    char text[CASE_WORDS], folder[TEMPDIR_PATH];
    enum status st;
    va_list ap;

    va_start(ap, words);
    vsnprintf(text, sizeof text, words, ap);
    va_end(ap);
    memset(j, 0, sizeof *j);
    TRY(tempdir_make(folder));
    st = run_in(j, o, folder, ranks, text);
    tempdir_remove(folder); /* what is mapped stays readable */
    return st;
}

void job_close(struct job *j)
{
    safetensors_close(&j->file);
}

/* |a - b| / |a| as vectors; infinity where one is not finite. */
static double apart(const double *a, const double *b, int64_t n)
{
    double length = 0.0, off = 0.0;

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return INFINITY;
        length += a[i] * a[i];
        off += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return length > 0.0 ? sqrt(off / length) : sqrt(off);
}

static double tensor_apart(const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
    double *x, *y, worst = INFINITY;

    if (!b || a->count != b->count)
        return INFINITY;
    x = malloc((size_t)a->count * sizeof *x);
    y = malloc((size_t)a->count * sizeof *y);
    if (x && y && safetensors_read(x, DT_F64, a, 0, a->count) == ST_OK &&
        safetensors_read(y, DT_F64, b, 0, b->count) == ST_OK)
        worst = apart(x, y, a->count);
    free(x);
    free(y);
    return worst;
}

double job_gradients_apart(const struct job *a, const struct job *b, const char **name)
{
    double worst = -1.0;

    *name = "";
    for (int i = 0; i < a->file.n; i++) {
        const struct safetensors_tensor *t = &a->file.tensor[i];
        double d;

        if (t->type != SAFETENSORS_F64 || !strcmp(t->name, "loss_norm"))
            continue;
        d = tensor_apart(t, safetensors_find(&b->file, t->name));
        if (d > worst) {
            worst = d;
            *name = t->name;
        }
    }
    return worst < 0.0 || a->file.n != b->file.n ? INFINITY : worst;
}
