/* Checkpoints: what any layout wrote, any layout reads; folders are whole or not there. */
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/folder.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/checkpoint_case.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
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

/* ---- any layout ---- */

static const int layouts[][2] = {{1, 1}, {2, 1}, {1, 2}, {4, 1}, {2, 2}, {1, 3}};

enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* The pieces that a rank must read: those that share a place with what it holds. */
static uint64_t needed(const struct manifest *m, struct tiny_model *t)
{
    int opened[16] = {0};
    uint64_t sum = 0;

    for (int i = 0; i < m->pieces; i++) {
        const struct manifest_piece *e = &m->piece[i];
        const struct param *row = params_find(&t->m.params, e->tensor);
        int64_t rows, cols, row0, col0;

        param_shard(&t->m.params, row, &rows, &cols, &row0, &col0);
        if (e->area.row >= row0 + rows || e->area.row + e->area.rows <= row0 ||
            e->area.col >= col0 + cols || e->area.col + e->area.cols <= col0)
            continue;
        sum += e->bytes + (opened[e->file] ? 0 : m->file[e->file].header);
        opened[e->file] = 1;
    }
    return sum;
}

/* Each rank of each layout gets every bit of its weights, masters and moments, and reads no more
 * than it needs. */
START_TEST(test_any_layout)
{
    const char *const *changes = checkpoint_variants[_i / LAYOUTS];
    const int *from = layouts[_i % LAYOUTS];
    char path[FOLDER_PATH];
    struct manifest m;

    checkpoint_case_save(root, changes, from[0], from[1], 20);
    OK(checkpoint_path(path, root, 20));
    OK(manifest_read(&m, path));
    ck_assert_int_eq(m.files, from[0] * from[1]);
    for (int tp = 1; tp <= 4; tp *= 2)
        for (int rank = 0; rank < tp; rank++) {
            struct tiny_model want, got;
            struct checkpoint_read count;

            checkpoint_case_open(&want, changes, rank, tp, 7);
            checkpoint_case_open(&got, changes, rank, tp, 0);
            ck_assert(!checkpoint_case_same(&want, &got));
            OK(checkpoint_load(&got.m.params, got.dev, path, &m, &count));
            ck_assert_msg(checkpoint_case_same(&want, &got), "rank %d of %d", rank, tp);
            ck_assert_uint_eq(count.read, needed(&m, &got));
            ck_assert(tp == 1 || count.read < count.whole);
            tiny_model_close(&want);
            tiny_model_close(&got);
        }
    manifest_free(&m);
}
END_TEST

/* One grain then, four now: a rank takes its rows or columns out of the middle of a piece. */
START_TEST(test_other_grains)
{
    static const char *const one[][4] = {{"model.kv_heads=4", "parallel.grains=1", NULL},
                                         {"model.layer=full", "parallel.grains=1", NULL}};
    static const char *const four[][4] = {{"model.kv_heads=4", NULL}, {"model.layer=full", NULL}};
    char path[FOLDER_PATH];
    struct manifest m;

    checkpoint_case_save(root, one[_i], 1, 2, 20);
    OK(checkpoint_path(path, root, 20));
    OK(manifest_read(&m, path));
    for (int rank = 0; rank < 2; rank++) {
        struct tiny_model want, got;
        struct checkpoint_read count;

        checkpoint_case_open(&want, four[_i], rank, 2, 7);
        checkpoint_case_open(&got, four[_i], rank, 2, 0);
        OK(checkpoint_load(&got.m.params, got.dev, path, &m, &count));
        ck_assert_msg(checkpoint_case_same(&want, &got), "rank %d", rank);
        ck_assert_uint_eq(count.read, needed(&m, &got));
        tiny_model_close(&want);
        tiny_model_close(&got);
    }
    manifest_free(&m);
}
END_TEST

/* The bytes are dealt evenly among replicas: none writes twice what another does. */
START_TEST(test_dealt_evenly)
{
    char path[FOLDER_PATH];
    struct manifest m;

    checkpoint_case_save(root, checkpoint_variants[0], 2, 4, 20);
    OK(checkpoint_path(path, root, 20));
    OK(manifest_read(&m, path));
    for (int i = 0; i < m.files; i++)
        ck_assert_msg(m.file[i].bytes * (uint64_t)m.files < 2 * manifest_bytes(&m),
                      "file %d has %llu of %llu bytes", i, (unsigned long long)m.file[i].bytes,
                      (unsigned long long)manifest_bytes(&m));
    manifest_free(&m);
}
END_TEST

/* Weights alone: the exact values, from masters where there are some, of any layout and type. */
START_TEST(test_weights_alone)
{
    static const char *const fp32[] = {"model.kv_heads=4", "model.layer=full", NULL};
    struct tiny_model want, got;
    struct checkpoint_read count;
    struct manifest m;
    char path[FOLDER_PATH];

    checkpoint_case_save(root, checkpoint_variants[3], 2, 1, 20); /* bf16 with masters */
    OK(checkpoint_path(path, root, 20));
    OK(manifest_read(&m, path));
    checkpoint_case_open(&want, checkpoint_variants[3], 0, 1, 7);
    checkpoint_case_open(&got, fp32, 0, 1, 0);
    OK(checkpoint_load_weights(&got.m.params, got.dev, path, &m, &count));
    for (int i = 0; i < got.m.params.n; i++) {
        const struct tensor *x = &got.m.params.item[i].w, *y = &want.m.params.item[i].master;

        ck_assert(y->data && x->dtype == y->dtype);
        ck_assert_mem_eq(x->data, y->data, (size_t)tensor_count(x) * dtype_size(x->dtype));
    }
    tiny_model_close(&want);
    tiny_model_close(&got);
    manifest_free(&m);
}
END_TEST

/* ---- the folder ---- */

/* A writer that finds other bytes than the snapshot hashed says so. */
START_TEST(test_read_back)
{
    struct tiny_model t;
    struct snapshot s;
    char tmp[FOLDER_PATH];

    checkpoint_case_open(&t, checkpoint_variants[0], 0, 1, 7);
    OK(snapshot_open(&s, &t.m.params, (struct part_owner){0, 1}, 0));
    OK(snapshot_take(&s, t.dev));
    memset(t.m.params.item[0].w.data, 1, 64); /* training goes on */
    OK(checkpoint_begin(tmp, root, 3, 1));
    OK(checkpoint_write(tmp, &s));
    OK(checkpoint_read_back(tmp, &s));
    checkpoint_drop(tmp);
    s.image[s.entry[2].offset] ^= 1; /* somebody writes into the snapshot */
    OK(checkpoint_begin(tmp, root, 3, 1));
    OK(checkpoint_write(tmp, &s));
    checkpoint_case_refused(checkpoint_read_back(tmp, &s), ST_EFORMAT, s.entry[2].tensor,
                            "something else");
    checkpoint_drop(tmp);
    ck_assert_int_eq(temp_folder_count(root), 0);
    snapshot_close(&s);
    tiny_model_close(&t);
}
END_TEST

static int listed(int64_t out[8])
{
    int64_t *step;
    int n;

    OK(checkpoint_list(&step, &n, root));
    memcpy(out, step, (size_t)(n < 8 ? n : 8) * sizeof *out);
    free(step);
    return n;
}

/* The newest stay and those that keep_every divides; one that does not read is left alone, and is
 * none of the newest. Names that only look like checkpoints are none. */
START_TEST(test_prune)
{
    static const int64_t left[] = {60, 50, 40, 20};
    int64_t found[8];
    char path[TEMP_PATH];
    int removed;

    for (int64_t step = 10; step <= 60; step += 10)
        checkpoint_case_save(root, checkpoint_variants[0], 1, 1, step);
    checkpoint_case_save(root, checkpoint_variants[0], 1, 1, 60); /* again, in place of the other */
    OK(folder_join(folder, root, "step-000000050"));
    checkpoint_case_flip(folder, MANIFEST_NAME, 40, 0);
    ck_assert_int_eq(rmdir(root), -1);
    temp_folder_write(temp_folder_path(path, root, "70"), "", 0);
    temp_folder_write(temp_folder_path(path, root, "step-70"), "", 0);
    temp_folder_write(temp_folder_path(path, root, "step-000000070x"), "", 0);
    OK(checkpoint_prune(&removed, root, (struct checkpoint_keep){.last = 2, .every = 20}));
    ck_assert_int_eq(removed, 2);
    ck_assert_int_eq(listed(found), 4);
    ck_assert_mem_eq(found, left, sizeof left);
    OK(checkpoint_prune(&removed, root, (struct checkpoint_keep){.last = 0}));
    ck_assert_int_eq(listed(found), 2); /* 60, and 50, which does not read */
    OK(checkpoint_find(path, root));
    ck_assert_ptr_nonnull(strstr(path, "step-000000060"));
    unlink(temp_folder_path(path, root, "70"));
    unlink(temp_folder_path(path, root, "step-70"));
    unlink(temp_folder_path(path, root, "step-000000070x"));
}
END_TEST

/* What ended processes left is removed, checkpoints are not. */
START_TEST(test_sweep)
{
    char tmp[FOLDER_PATH];
    int64_t found[8];

    checkpoint_case_save(root, checkpoint_variants[0], 1, 1, 10);
    OK(checkpoint_begin(tmp, root, 20, 77));
    OK(folder_join(folder, tmp, "rank-00000.safetensors"));
    temp_folder_write(folder, "half", 4);
    ck_assert_int_eq(listed(found), 1);
    OK(checkpoint_sweep(root));
    ck_assert_int_eq(temp_folder_count(root), 2); /* step-000000010 and the hint */
    OK(checkpoint_find(folder, root));
}
END_TEST

/* A manifest that names a file which is not there is never committed. */
START_TEST(test_files_of_others)
{
    struct manifest m;
    char tmp[FOLDER_PATH];

    checkpoint_case_save(root, checkpoint_variants[0], 2, 1, 20);
    OK(checkpoint_path(folder, root, 20));
    OK(manifest_read(&m, folder));
    m.state.step = 30;
    OK(checkpoint_begin(tmp, root, 30, 1));
    checkpoint_case_refused(checkpoint_commit(tmp, root, &m), ST_EIO, "rank-00000",
                            "share the run's folder");
    checkpoint_drop(tmp);
    manifest_free(&m);
}
END_TEST

/* A full disk is found before the first byte, or when it fills meanwhile. */
START_TEST(test_full_disk)
{
    struct tiny_model t;
    struct snapshot s, huge;
    char tmp[FOLDER_PATH];

    checkpoint_case_open(&t, checkpoint_variants[0], 0, 1, 7);
    OK(snapshot_open(&s, &t.m.params, (struct part_owner){0, 1}, 0));
    OK(snapshot_take(&s, t.dev));
    OK(checkpoint_begin(tmp, root, 3, 1));
    huge = s;
    huge.file.bytes = (uint64_t)1 << 60; /* 1 EiB, of which no byte is looked at */
    checkpoint_case_refused(checkpoint_write(tmp, &huge), ST_EIO, "no room for", "are free");
    checkpoint_drop(tmp);
    OK(checkpoint_begin(tmp, root, 3, 2));
    temp_folder_limit(10000);
    checkpoint_case_refused(checkpoint_write(tmp, &s), ST_EIO, "cannot write", "rank-00000");
    checkpoint_drop(tmp);
    snapshot_close(&s);
    tiny_model_close(&t);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("checkpoint");
    TCase *tc = tcase_create("checkpoint");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_any_layout, 0, CHECKPOINT_VARIANTS * LAYOUTS);
    tcase_add_test(tc, test_dealt_evenly);
    tcase_add_loop_test(tc, test_other_grains, 0, 2);
    tcase_add_test(tc, test_weights_alone);
    tcase_add_test(tc, test_read_back);
    tcase_add_test(tc, test_prune);
    tcase_add_test(tc, test_sweep);
    tcase_add_test(tc, test_files_of_others);
    tcase_add_test(tc, test_full_disk);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    omp_set_num_threads(1); /* models are too small to share, and there are hundreds of them */
    return check_unit(suite());
}
