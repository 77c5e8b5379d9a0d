/* Checkpoints that are not as they were written, or not of this model: refused by name. */
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/folder.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/checkpoint_case.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef fail
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

static char root[TEMP_PATH], folder[FOLDER_PATH];

static void set_up(void)
{
    status_clear();
    temp_folder_make(root);
}

static void tear_down(void)
{
    checkpoint_case_remove(root);
}

static struct manifest made;

/* A checkpoint of 2 ranks, and its table. */
static void make_one(void)
{
    checkpoint_case_save(root, checkpoint_variants[0], 2, 1, 20);
    OK(checkpoint_path(folder, root, 20));
    OK(manifest_read(&made, folder));
}

/* What one rank makes of it as it is now. */
static enum status load_now(const char *const *changes)
{
    struct checkpoint_read count;
    struct tiny_model t;
    struct manifest m;
    enum status st;

    TRY(manifest_read(&m, folder));
    checkpoint_case_open(&t, changes, 0, 1, 0);
    st = checkpoint_load(&t.m.params, t.dev, folder, &m, &count);
    tiny_model_close(&t);
    manifest_free(&m);
    return st;
}

/* One flipped bit anywhere is found: in headers, in tensors, in the manifest. */
START_TEST(test_flipped_bits)
{
    struct manifest_file *f;

    make_one();
    for (int i = 0; i < made.files; i++) {
        f = &made.file[i];
        for (size_t at = 0; at < f->bytes; at += 1 + f->bytes / 97) {
            checkpoint_case_flip(folder, f->name, at, (int)(at % 8));
            checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EFORMAT, f->name,
                                    at < f->header ? "header" : "is damaged: tensor ");
            checkpoint_case_flip(folder, f->name, at, (int)(at % 8));
        }
    }
    for (size_t at = 0; at < 20000; at += 331) {
        checkpoint_case_flip(folder, MANIFEST_NAME, at, (int)(at % 7));
        checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EFORMAT, MANIFEST_NAME, "");
        checkpoint_case_flip(folder, MANIFEST_NAME, at, (int)(at % 7));
    }
    OK(load_now(checkpoint_variants[0]));
    manifest_free(&made);
}
END_TEST

START_TEST(test_files)
{
    char path[TEMP_PATH], *bytes;
    size_t n;

    make_one();
    bytes = temp_folder_read(temp_folder_path(path, folder, made.file[1].name), &n);
    temp_folder_write(path, bytes, n - 1);
    checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EFORMAT, made.file[1].name,
                            "cut off");
    temp_folder_write(path, bytes, n + 1);
    checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EFORMAT, made.file[1].name,
                            "added to");
    unlink(path);
    checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EIO, made.file[1].name,
                            "No such file");
    temp_folder_write(path, bytes, n);
    OK(load_now(checkpoint_variants[0]));
    free(bytes);
    temp_folder_path(path, folder, MANIFEST_NAME);
    temp_folder_write(path, "hello\n", 6);
    checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EFORMAT, MANIFEST_NAME, "damaged");
    temp_folder_write(path, "{}", 2);
    checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EFORMAT, MANIFEST_NAME,
                            "no manifest");
    unlink(path);
    checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EIO, MANIFEST_NAME,
                            "No such file");
    manifest_free(&made);
}
END_TEST

/* A manifest of the future says so, although its hash is right. */
START_TEST(test_version)
{
    char path[TEMP_PATH], *text, *at;
    size_t n;

    make_one();
    text = temp_folder_read(temp_folder_path(path, folder, MANIFEST_NAME), &n);
    at = strstr(text, "\"version\":1,");
    ck_assert_ptr_nonnull(at);
    at[10] = '2';
    temp_folder_write(path, text, n);
    free(text);
    checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EFORMAT, "format version 2",
                            "reads version 1");
    manifest_free(&made);
}
END_TEST

/* ---- tables that are well formed but not this model's; their hash is renewed ---- */

static const char *const name = "model.layers.1.mlp.up_proj.up.weight";
static struct manifest changed; /* a copy of `made`; its piece [at, at + n) are v of `name` */
static int at, n;

static void make_copy(void)
{
    const struct manifest_piece *first;

    make_one();
    n = manifest_find(&first, &made, name, PART_V);
    ck_assert_int_ge(n, 2);
    at = (int)(first - made.piece);
    changed = made;
    changed.piece = malloc((size_t)made.pieces * sizeof *made.piece);
    ck_assert_ptr_nonnull(changed.piece);
    memcpy(changed.piece, made.piece, (size_t)made.pieces * sizeof *made.piece);
}

/* The changed table is refused; then it is as it was. */
static void table_refused(const char *a, const char *b)
{
    manifest_sort(&changed);
    checkpoint_case_manifest(folder, &changed);
    checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EFORMAT, a, b);
    changed.pieces = made.pieces;
    memcpy(changed.piece, made.piece, (size_t)made.pieces * sizeof *made.piece);
}

static void free_copy(void)
{
    free(changed.piece);
    manifest_free(&made);
}

static void leave_out(int first, int count)
{
    memmove(changed.piece + first, changed.piece + first + count,
            (size_t)(changed.pieces - first - count) * sizeof *changed.piece);
    changed.pieces -= count;
}

START_TEST(test_missing)
{
    make_copy();
    leave_out(at, n);
    table_refused(name, "(v) is missing");
    leave_out(at, 1);
    table_refused(name, "one is missing");
    free_copy();
}
END_TEST

START_TEST(test_places)
{
    make_copy();
    changed.piece[at + 1].area = changed.piece[at].area;
    table_refused(name, "same place");
    changed.piece[at].area.row = changed.piece[at].rows;
    table_refused(name, "outside the tensor");
    changed.piece[at].offset = made.file[changed.piece[at].file].bytes;
    table_refused(name, "outside rank-");
    free_copy();
}
END_TEST

START_TEST(test_renamed)
{
    make_copy();
    for (int i = 0; i < changed.pieces; i++)
        if (!strcmp(changed.piece[i].tensor, name))
            snprintf(changed.piece[i].tensor, MANIFEST_TENSOR, "model.extra");
    table_refused("no place for tensor", "model.extra");
    free_copy();
}
END_TEST

/* The pieces of a vector stand on end: they cover it, but the model has it lying. */
START_TEST(test_reshaped)
{
    make_copy();
    for (int i = 0; i < changed.pieces; i++) {
        struct manifest_piece *p = &changed.piece[i];
        struct part_area a = p->area;

        if (strcmp(p->tensor, "model.norm.weight") != 0)
            continue;
        p->area = (struct part_area){.row = a.col, .col = a.row, .rows = a.cols, .cols = a.rows};
        p->rows = p->cols;
        p->cols = 1;
    }
    table_refused("model.norm.weight has shape [32, 1]", "the model has [1, 32]");
    free_copy();
}
END_TEST

/* Another precision has other tensors. */
START_TEST(test_other_run)
{
    static const char *const wider[] = {"model.kv_heads=4", "model.rank=16", NULL};

    make_one();
    checkpoint_case_refused(load_now(checkpoint_variants[4]), ST_EFORMAT, "of type F32",
                            "this run has BF16");
    checkpoint_case_refused(load_now(checkpoint_variants[1]), ST_EFORMAT, "no place for tensor",
                            "lm_head.weight");
    checkpoint_case_refused(load_now(wider), ST_EFORMAT, "has shape [8,", "the model has [16,");
    manifest_free(&made);
}
END_TEST

/* What is not finite is not gone on from, although it was saved so. */
START_TEST(test_not_finite)
{
    struct tiny_model t;
    struct snapshot s;
    struct manifest m = {.ranks = 1, .state = {.step = 3}};
    struct param *row;
    char tmp[FOLDER_PATH];

    checkpoint_case_open(&t, checkpoint_variants[0], 0, 1, 7);
    row = params_find(&t.m.params, "model.layers.0.self_attn.o_proj.down.weight");
    dtype_store(row->m.data, row->m.dtype, 5, INFINITY);
    OK(snapshot_open(&s, &t.m.params, (struct part_owner){0, 1}, 0));
    OK(snapshot_take(&s, t.dev));
    OK(checkpoint_begin(tmp, root, 3, 1));
    OK(checkpoint_write(tmp, &s));
    m.cfg = t.cfg;
    m.file = &s.file;
    m.files = 1;
    m.piece = s.entry;
    m.pieces = s.parts.n;
    manifest_sort(&m);
    OK(checkpoint_commit(tmp, root, &m));
    OK(checkpoint_path(folder, root, 3));
    checkpoint_case_refused(load_now(checkpoint_variants[0]), ST_EFORMAT, "o_proj.down.weight (m)",
                            "row 0, column 5 is not");
    snapshot_close(&s);
    tiny_model_close(&t);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("checkpoint, refused");
    TCase *tc = tcase_create("refused");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_flipped_bits);
    tcase_add_test(tc, test_files);
    tcase_add_test(tc, test_version);
    tcase_add_test(tc, test_missing);
    tcase_add_test(tc, test_places);
    tcase_add_test(tc, test_renamed);
    tcase_add_test(tc, test_reshaped);
    tcase_add_test(tc, test_other_run);
    tcase_add_test(tc, test_not_finite);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    omp_set_num_threads(1); /* models are too small to share, and there are hundreds of them */
    return check_unit(suite());
}
