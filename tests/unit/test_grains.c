/* (tensor, grain) pairs and their owners. */
#include "common/model/grains.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

static const char *const forms[][4] = {{"model.kv_heads=4", "model.layers=3", NULL},
                                       {"model.kv_heads=4", "model.tied=on", NULL},
                                       {"model.kv_heads=4", "parallel.strategy=vanilla", NULL},
                                       {"model.layer=full", "model.tied=on", NULL}};
enum { FORMS = sizeof forms / sizeof *forms, MOST = 512, EVERY = 1, WHOLE = 1 << 30 };

/* A tiny model's table, and its pairs as replica `rank` of `size` sees them. */
struct table {
    struct config cfg;
    struct model m;
    struct grains s;
};

static void open_table(struct table *t, int form, int tp, int rank, int size, size_t bucket)
{
    tiny_model_config(&t->cfg, forms[form], tp);
    OK(model_open(&t->m, &t->cfg, 0, tp, DT_F32));
    params_types(&t->m.params, &t->cfg, DT_F32);
    OK(grains_open(&t->s, &t->m.params, rank, size, 1, bucket));
}

static void close_table(struct table *t)
{
    grains_close(&t->s);
    model_close(&t->m);
}

/* Calls body for every form, TP 1 and 2, 1 to 9 replicas, one bucket and a bucket a layer. */
static void each_table(void (*body)(struct table *t, int form, int tp, int size, size_t bucket))
{
    for (int form = 0; form < FORMS; form++)
        for (int tp = 1; tp <= 2; tp++)
            for (int size = 1; size <= 9; size++)
                for (int b = 0; b < 2; b++) {
                    struct table t;

                    open_table(&t, form, tp, 0, size, b ? EVERY : WHOLE);
                    body(&t, form, tp, size, b ? EVERY : WHOLE);
                    close_table(&t);
                }
}

static void holds_every_grain_once(struct table *t, int form, int tp, int size, size_t bucket)
{
    const struct params *p = &t->m.params;
    int64_t elements = 0, entries[MOST] = {0};

    (void)form, (void)size, (void)bucket;
    for (int i = 0; i < t->s.n; i++) {
        const struct grain *x = &t->s.item[i];
        const struct param *row = &p->item[x->item];

        ck_assert_int_eq(entries[x->entry]++, 0);
        ck_assert_int_eq(grains_owner(&t->s, x->item, x->grain), x->owner);
        ck_assert(x->owner >= 0 && x->owner < size);
        ck_assert_int_lt(x->grain, row->cut == CUT_NONE ? 1 : row->grains / tp);
        elements += x->rows * x->cols;
    }
    for (int i = 0; i < p->n; i++) {
        struct tensor whole = param_view(p, &p->item[i], NULL, DT_F32);

        elements -= tensor_count(&whole);
    }
    ck_assert_int_eq(elements, 0);
    for (int i = 0; i < t->s.n; i++)
        ck_assert_int_eq(entries[i], 1); /* without a gap */
}

START_TEST(every_grain_is_there_once)
{
    each_table(holds_every_grain_once);
}
END_TEST

static int64_t padded(const struct grain *x)
{
    return (x->rows * x->cols + 63) / 64 * 64;
}

/* Second gradients (of a tied matrix) of a bucket: the same of their own shares. */
static void second_shares(const struct table *t, int b)
{
    int64_t most = 0;

    for (int i = 0; i < t->s.n; i++) {
        const struct grain *x = &t->s.item[i];

        if (x->bucket != b || !t->m.params.item[x->item].twice)
            continue;
        most = x->at2 + padded(x) > most ? x->at2 + padded(x) : most;
        for (int j = 0; j < i; j++) {
            const struct grain *y = &t->s.item[j];

            ck_assert(y->bucket != b || y->owner != x->owner || !t->m.params.item[y->item].twice ||
                      y->at2 + padded(y) <= x->at2 || x->at2 + padded(x) <= y->at2);
        }
    }
    ck_assert_int_eq(most, t->s.share2[b]);
}

/* In a share pairs do not overlap, the larger ones come first, and nobody has more than the largest
 * pair above another. */
static void shares_are_even(struct table *t, int form, int tp, int size, size_t bucket)
{
    (void)form, (void)tp, (void)bucket;
    for (int b = 0; b < t->s.buckets; b++) {
        int64_t has[9] = {0}, largest = 0, most = 0, least = INT64_MAX;

        for (int i = 0; i < t->s.n; i++) {
            const struct grain *x = &t->s.item[i];

            if (x->bucket != b)
                continue;
            has[x->owner] += padded(x);
            largest = padded(x) > largest ? padded(x) : largest;
            ck_assert_int_le(x->at + padded(x), t->s.share[b]);
            for (int j = 0; j < i; j++) {
                const struct grain *y = &t->s.item[j];

                ck_assert(y->bucket != b || y->owner != x->owner || y->at + padded(y) <= x->at ||
                          x->at + padded(x) <= y->at);
                ck_assert(y->bucket != b || y->owner != x->owner ||
                          (y->at < x->at ? padded(y) >= padded(x) : padded(y) <= padded(x)));
            }
        }
        second_shares(t, b);
        for (int r = 0; r < size; r++) {
            most = has[r] > most ? has[r] : most;
            least = has[r] < least ? has[r] : least;
        }
        ck_assert_int_eq(most, t->s.share[b]);
        ck_assert_int_le(most - least, largest);
    }
}

START_TEST(shares_are_even_for_any_number_of_replicas)
{
    each_table(shares_are_even);
}
END_TEST

/* Owners do not depend on who asks; a bucket is whole layers, in order. */
static void all_replicas_agree(struct table *t, int form, int tp, int size, size_t bucket)
{
    for (int r = 1; r < size; r++) {
        struct table other;

        open_table(&other, form, tp, r, size, bucket);
        ck_assert_int_eq(other.s.n, t->s.n);
        for (int i = 0; i < t->s.n; i++) {
            ck_assert_int_eq(other.s.item[i].owner, t->s.item[i].owner);
            ck_assert_int_eq(other.s.item[i].at, t->s.item[i].at);
            ck_assert_int_eq(grains_mine(&other.s, &other.s.item[i]), t->s.item[i].owner == r);
        }
        close_table(&other);
    }
    for (int i = 1; i < t->m.params.n; i++) {
        int same = t->m.params.item[i].layer == t->m.params.item[i - 1].layer;
        int step = t->s.bucket_of[i] - t->s.bucket_of[i - 1];

        ck_assert_int_eq(step, same || bucket == WHOLE ? 0 : 1);
    }
}

START_TEST(all_replicas_name_the_same_owners)
{
    each_table(all_replicas_agree);
}
END_TEST

/* A bucket is closed by the layer that fills it, no sooner and no later. */
START_TEST(buckets_are_filled)
{
    for (size_t bytes = 1024; bytes <= (1 << 20); bytes *= 2) {
        size_t has = 0;
        struct table t;

        open_table(&t, 0, 1, 0, 2, bytes);
        for (int i = 0; i < t.m.params.n; i++) {
            const struct param *row = &t.m.params.item[i];
            struct tensor whole = param_view(&t.m.params, row, NULL, DT_F32);
            int next = i > 0 && t.s.bucket_of[i] != t.s.bucket_of[i - 1];
            int layer = i > 0 && row->layer != t.m.params.item[i - 1].layer;

            ck_assert_int_eq(next, layer && has >= bytes);
            has = (next ? 0 : has) + (size_t)tensor_count(&whole) * sizeof(float);
        }
        close_table(&t);
    }
}
END_TEST

/* ---- values ---- */

/* Masters of pairs of `row`, row i, that this rank owns are those of the whole shard, moments are
 * zero; others it has not. */
static void check_masters(const struct table *t, int i, const struct param *row,
                          const float *values, int rank)
{
    for (int k = 0; k < t->s.n; k++) {
        const struct grain *x = &t->s.item[k];
        const float *master = x->master.data, *m = x->m.data, *v = x->v.data;
        struct tensor piece = param_grain(row, &row->w, x->grain);
        int64_t at = ((char *)piece.data - (char *)row->w.data) / 2; /* bf16 */

        if (x->item != i)
            continue;
        ck_assert_int_eq(master != NULL, x->owner == rank);
        for (int64_t j = 0; master && j < x->rows * x->cols; j++) {
            int64_t from = at + j / x->cols * row->w.stride + j % x->cols;

            ck_assert(master[j] == values[from] && m[j] == 0 && v[j] == 0);
        }
    }
}

static void set_masters(struct table *t, struct device *dev, int rank)
{
    for (int i = 0; i < t->m.params.n; i++) {
        struct param *row = &t->m.params.item[i];
        int64_t n = tensor_count(&row->w);
        float *values = malloc((size_t)n * sizeof *values);

        ck_assert_ptr_nonnull(values);
        for (int64_t j = 0; j < n; j++)
            values[j] = (float)(i * 100000 + j);
        OK(grains_set_masters(&t->s, &t->m.params, row, dev, values));
        check_masters(t, i, row, values, rank);
        free(values);
    }
}

START_TEST(masters_and_moments_are_the_owners)
{
    static const char *const words[] = {"model.kv_heads=4", "train.precision=bf16", NULL};
    const struct device_options options = {.threads = 1, .local_size = 1};
    struct device *dev;

    OK(device_open(&dev, &ref_backend, &options));
    for (int rank = 0; rank < 3; rank++) {
        struct arena plan = arena_plan("state"), state;
        struct table t;
        void *memory;

        tiny_model_config(&t.cfg, words, 2);
        OK(model_open(&t.m, &t.cfg, 1, 2, DT_F32));
        params_types(&t.m.params, &t.cfg, DT_F32);
        OK(grains_open(&t.s, &t.m.params, rank, 3, 1, WHOLE));
        OK(params_carve(&t.m.params, &plan, 0));
        OK(grains_carve(&t.s, &t.m.params, &plan));
        OK(device_alloc(dev, &memory, plan.peak));
        memset(memory, 0xff, plan.peak); /* NaN */
        state = arena_over("state", memory, plan.peak);
        OK(params_carve(&t.m.params, &state, 0));
        OK(grains_carve(&t.s, &t.m.params, &state));
        OK(grains_clear_moments(&t.s, dev));
        set_masters(&t, dev, rank);
        device_release(dev, memory);
        close_table(&t);
    }
    device_close(dev);
}
END_TEST

/* Shards take memory for the owner's pairs alone, and all together for every pair once. */
static void memory_is_shared_out(struct table *t, int form, int tp, int size, size_t bucket)
{
    const struct grad_slots one = {1, 1, 1 << 20};
    int64_t held = 0, all = 0;

    for (int r = 0; r < size; r++) {
        struct table own;
        struct arena state = arena_plan("state"), grads = arena_plan("gradients");

        open_table(&own, form, tp, r, size, bucket);
        OK(params_carve(&own.m.params, &state, 0));
        OK(params_carve_grads(&own.m.params, &grads, &one));
        OK(grains_carve(&own.s, &own.m.params, &state));
        OK(grains_carve_grads(&own.s, &own.m.params, &grads));
        for (int i = 0; i < own.s.n; i++) {
            const struct grain *x = &own.s.item[i];
            int mine = x->owner == r;

            ck_assert_int_eq(x->m.data != NULL, mine);
            ck_assert_int_eq(x->g.data != NULL, mine);
            ck_assert_int_eq(x->g2.data != NULL, mine && own.m.params.item[x->item].twice);
            ck_assert_ptr_nonnull(x->w.data);
            held += mine ? x->m.rows * x->m.cols : 0;
        }
        close_table(&own);
    }
    for (int i = 0; i < t->s.n; i++)
        all += t->s.item[i].rows * t->s.item[i].cols;
    ck_assert_int_eq(held, all);
}

START_TEST(moments_are_held_once)
{
    each_table(memory_is_shared_out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grains");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, every_grain_is_there_once);
    tcase_add_test(tc, shares_are_even_for_any_number_of_replicas);
    tcase_add_test(tc, all_replicas_name_the_same_owners);
    tcase_add_test(tc, buckets_are_filled);
    tcase_add_test(tc, moments_are_held_once);
    tcase_add_test(tc, masters_and_moments_are_the_owners);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
