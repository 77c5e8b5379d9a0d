#include "tests/unit/checkpoint_case.h"

#include "common/checkpoint/folder.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef fail

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

const char *const checkpoint_variants[CHECKPOINT_VARIANTS][6] = {
    {"model.kv_heads=4", NULL},
    {"model.kv_heads=4", "model.layer=svd", "model.tied=on", NULL},
    {"model.kv_heads=4", "parallel.strategy=vanilla", NULL},
    {"model.kv_heads=4", "model.layer=full", "train.precision=bf16", NULL},
    {"model.kv_heads=4", "train.precision=bf16", "train.pure_bf16=on", NULL},
    {"model.kv_heads=4", "train.precision=fp64", NULL},
};

/* A number of the place [row, col] of a tensor and kind; 0 where vocabulary is padded, and exact
 * in bf16. */
static double value(const struct param *row, int kind, int64_t i, int64_t j, uint64_t seed)
{
    uint64_t x = (uint64_t)(i * 131071 + j * 8191 + kind * 127) + seed * 31;

    if (!seed || i >= row->real_rows)
        return 0.0;
    for (const char *c = row->name; *c; c++)
        x = x * 31 + (uint64_t)*c;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return (double)((x >> 40) % 255) - 127.0;
}

static void fill(const struct params *p, const struct param *row, int kind, uint64_t seed)
{
    const struct tensor *t = part_memory(row, (enum part_kind)kind);
    int64_t rows, cols, row0, col0;

    param_shard(p, row, &rows, &cols, &row0, &col0);
    for (int64_t i = 0; t->data && i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            dtype_store(t->data, t->dtype, i * cols + j,
                        value(row, kind, row0 + i, col0 + j, seed));
}

void checkpoint_case_open(struct tiny_model *t, const char *const *changes, int rank, int size,
                          uint64_t seed)
{
    const char *all[12];
    char tp[32];
    int n = 0;

    for (; changes && changes[n]; n++)
        all[n] = changes[n];
    snprintf(tp, sizeof tp, "parallel.tp=%d", size);
    all[n++] = tp;
    all[n] = NULL;
    tiny_model_config(&t->cfg, all, size);
    tiny_model_open(t, rank, size, 1, 1);
    for (int i = 0; i < t->m.params.n; i++)
        for (int kind = 0; kind < PART_KINDS; kind++)
            fill(&t->m.params, &t->m.params.item[i], kind, seed);
}

/* One rank's file, and its part of the manifest. */
static void save_rank(struct manifest *m, const char *folder, const char *const *changes, int tp,
                      int dp, int rank)
{
    struct part_owner at = {.replica = rank / tp, .replicas = dp};
    struct tiny_model t;
    struct snapshot s;

    checkpoint_case_open(&t, changes, rank % tp, tp, 7);
    OK(snapshot_open(&s, &t.m.params, at, rank));
    OK(snapshot_take(&s, t.dev));
    OK(checkpoint_write(folder, &s));
    OK(checkpoint_read_back(folder, &s));
    m->piece = realloc(m->piece, (size_t)(m->pieces + s.parts.n + 1) * sizeof *m->piece);
    ck_assert_ptr_nonnull(m->piece);
    memcpy(m->piece + m->pieces, s.entry, (size_t)s.parts.n * sizeof *m->piece);
    m->pieces += s.parts.n;
    m->file[m->files++] = s.file;
    m->cfg = t.cfg;
    snapshot_close(&s);
    tiny_model_close(&t);
}

void checkpoint_case_save(const char *root, const char *const *changes, int tp, int dp,
                          int64_t step)
{
    struct manifest m = {.ranks = tp * dp, .state = {.step = step, .best = 1.5, .samples = 10}};
    char folder[TEMP_PATH * 8];

    m.file = calloc((size_t)(tp * dp), sizeof *m.file);
    ck_assert_ptr_nonnull(m.file);
    OK(checkpoint_begin(folder, root, step, 5));
    for (int rank = 0; rank < tp * dp; rank++)
        save_rank(&m, folder, changes, tp, dp, rank);
    manifest_sort(&m);
    OK(manifest_check_covers(&m));
    OK(checkpoint_commit(folder, root, &m));
    OK(checkpoint_hint(root, step));
    manifest_free(&m);
}

int checkpoint_case_same(const struct tiny_model *a, const struct tiny_model *b)
{
    int same = a->m.params.n == b->m.params.n;

    for (int i = 0; same && i < a->m.params.n; i++)
        for (int kind = 0; kind < PART_KINDS; kind++) {
            const struct tensor *x = part_memory(&a->m.params.item[i], (enum part_kind)kind);
            const struct tensor *y = part_memory(&b->m.params.item[i], (enum part_kind)kind);

            if (x->data)
                same &= !memcmp(x->data, y->data, (size_t)tensor_count(x) * dtype_size(x->dtype));
        }
    return same;
}

void checkpoint_case_manifest(const char *folder, const struct manifest *m)
{
    char path[TEMP_PATH], *text;
    size_t n;

    OK(manifest_text(&text, &n, m));
    temp_folder_write(temp_folder_path(path, folder, MANIFEST_NAME), text, n);
    free(text);
}

void checkpoint_case_remove(const char *root)
{
    char path[FOLDER_PATH];
    int64_t *step;
    int n;

    OK(checkpoint_list(&step, &n, root));
    for (int i = 0; i < n; i++)
        OK(checkpoint_remove(root, step[i]));
    free(step);
    OK(folder_join(path, root, CHECKPOINT_LATEST));
    unlink(path);
    temp_folder_remove(root);
}

void checkpoint_case_refused(enum status found, enum status st, const char *a, const char *b)
{
    ck_assert_msg(found == st, "status %d, not %d: %s", (int)found, (int)st, status_message());
    ck_assert_msg(strstr(status_message(), a) && strstr(status_message(), b),
                  "'%s' lacks '%s' or '%s'", status_message(), a, b);
    status_clear();
}

void checkpoint_case_flip(const char *folder, const char *name, size_t at, int bit)
{
    char path[TEMP_PATH];
    size_t n;
    char *bytes = temp_folder_read(temp_folder_path(path, folder, name), &n);

    bytes[at % n] = (char)(bytes[at % n] ^ (1 << bit));
    temp_folder_write(path, bytes, n);
    free(bytes);
}
