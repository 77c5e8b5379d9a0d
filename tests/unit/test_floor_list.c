/* The calls behind a floor: equal ones once, none left out, each in memory like its own. */
#include "common/cli/bench_floor.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

static const struct shape {
    const char *name;
    int ranks;
    const char *changes[6];
} shapes[] = {
    {"one rank", 1, {"train.batch=8", "train.micro_batch=2"}},
    {"uneven samples", 1, {"train.batch=6", "train.micro_batch=3", "parallel.recompute=block"}},
    {"full rank, tp 2", 2, {"model.layer=full", "parallel.strategy=full", "parallel.tp=2"}},
    {"btp, tp 2", 2, {"parallel.strategy=btp", "parallel.tp=2", "train.precision=bf16"}},
    {"btp, local norms", 2, {"parallel.tp=2", "parallel.norm=online_local"}},
    {"vanilla, tp 2", 2, {"parallel.strategy=vanilla", "parallel.tp=2"}},
    {"two half-batches", 2, {"parallel.tp=2", "parallel.overlap=all", "train.batch=4"}},
    {"dp 2, zero", 2, {"parallel.dp=2", "parallel.zero=1", "train.batch=4"}},
    {"tied, biases", 1, {"model.tied=on", "model.qkv_bias=on", "parallel.recompute=none"}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct bench_case *case_of(const struct shape *s, const char *more)
{
    struct bench_case *c = calloc(1, sizeof *c);
    const char *changes[8] = {NULL};
    int n = 0;

    ck_assert_ptr_nonnull(c);
    while (s->changes[n]) {
        changes[n] = s->changes[n];
        n++;
    }
    changes[n] = more;
    tiny_model_config(&c->cfg, changes, s->ranks);
    c->place.mesh = (struct mesh){.tp = (int)c->cfg.parallel.tp,
                                  .dp = (int)c->cfg.parallel.dp,
                                  .pp = (int)c->cfg.parallel.pp};
    return c;
}

static double pairs(const struct attention *at)
{
    return 0.5 * (double)at->seq * (double)(at->seq + 1) *
           (double)(at->batch * at->heads * at->head_dim);
}

static double flops_of(const struct floor_call *c)
{
    double sum = c->kind == FLOOR_ATTENTION            ? 4.0 * pairs(&c->at)
                 : c->kind == FLOOR_ATTENTION_BACKWARD ? 8.0 * pairs(&c->at)
                                                       : 0.0;

    for (int i = 0; i < c->n; i++) {
        const struct gemm *g = &c->gemm[i];
        const struct weight_grad *w = &c->grad[i];

        if (c->kind == FLOOR_PRODUCT) {
            double k = (double)g->a.cols;

            for (int p = 0; p < g->more; p++)
                k += (double)g->part[p].a.cols;
            sum += 2.0 * (double)(g->y.rows * g->y.cols) * k;
        }
        if (c->kind == FLOOR_GRADIENT)
            sum += 2.0 * (double)(w->dw.rows * w->dw.cols * w->dy.rows);
    }
    return sum;
}

static int64_t elements_of(const struct floor_call *c)
{
    int64_t sum = 0;

    if (c->kind != FLOOR_MESSAGE)
        return 0;
    if (c->message == MESSAGE_ALL_GATHER)
        return tensor_count(&c->sent[0]);
    if (c->message == MESSAGE_REDUCE_SCATTER)
        return tensor_count(&c->sent[1]);
    for (int i = 0; i < c->n; i++)
        sum += tensor_count(&c->sent[i]);
    return sum;
}

/* Operations and elements are those that the plan counts by other ways. */
START_TEST(nothing_is_left_out)
{
    struct bench_case *c = case_of(&shapes[_i], NULL);
    struct floor_list l = {0};
    struct step_memory memory;
    struct ledger ledger;
    double planned, flops = 0.0;
    int64_t elements = 0;

    OK(floor_list_fill(&l, c, 0));
    OK(step_plan_at(&memory, &ledger, &planned, &c->cfg, &c->place.mesh, place_wide(&c->cfg), 1));
    for (int i = 0; i < l.n; i++) {
        flops += (double)l.call[i]->times * flops_of(l.call[i]);
        elements += l.call[i]->times * elements_of(l.call[i]);
    }
    ck_assert_msg(fabs(flops - planned) < 1e-9 * planned, "%s: %g FLOPs, %g planned",
                  shapes[_i].name, flops, planned);
    ck_assert_msg(elements ==
                      ledger_sum(&ledger, (enum ledger_purpose)0, LEDGER_COUNT - 1).elements,
                  "%s: %lld elements", shapes[_i].name, (long long)elements);
    floor_list_close(&l);
    free(c);
}
END_TEST

/* More blocks are more of the same calls, but for those of the optimiser. */
START_TEST(equal_calls_are_one)
{
    struct bench_case *few = case_of(&shapes[_i], "model.layers=2");
    struct bench_case *many = case_of(&shapes[_i], "model.layers=6");
    struct floor_list a = {0}, b = {0};

    for (int blocks = 0; blocks < 2; blocks++) {
        int64_t one = 0, three = 0;

        OK(floor_list_fill(&a, few, blocks));
        OK(floor_list_fill(&b, many, blocks));
        ck_assert_msg(a.n <= b.n && b.n <= a.n + 2, "%s: %d and %d calls", shapes[_i].name, a.n,
                      b.n);
        for (int i = 0; i < a.n; i++)
            one += a.call[i]->times;
        for (int i = 0; i < b.n; i++)
            three += b.call[i]->times;
        ck_assert(blocks ? three == 3 * one : three > 2 * one);
        floor_list_close(&a);
        floor_list_close(&b);
    }
    free(few);
    free(many);
}
END_TEST

static int inside(const struct floor_call *c, const struct tensor *t)
{
    size_t begin = (size_t)(uintptr_t)t->data - 1;

    return begin + (size_t)tensor_count(t) * dtype_size(t->dtype) <= c->bytes;
}

static uintptr_t end_of(const struct tensor *t)
{
    return (uintptr_t)t->data +
           (size_t)((t->rows - 1) * t->stride + t->cols) * dtype_size(t->dtype);
}

static int apart(const struct tensor *a, const struct tensor *b)
{
    return end_of(a) <= (uintptr_t)b->data || end_of(b) <= (uintptr_t)a->data;
}

/* q, k and v read one buffer; operands of a product lie in its memory and do not overlap. */
START_TEST(buffers_stay_what_they_were)
{
    struct bench_case *c = case_of(&shapes[_i], NULL);
    struct floor_list l = {0};
    int shared = 0;

    OK(floor_list_fill(&l, c, 1));
    for (int i = 0; i < l.n; i++) {
        const struct floor_call *call = l.call[i];
        const struct gemm *g = call->gemm;

        if (call->kind != FLOOR_PRODUCT)
            continue;
        shared += call->n == 3 && g[0].a.data == g[1].a.data && g[0].a.data == g[2].a.data;
        for (int k = 0; k < call->n; k++) {
            ck_assert(inside(call, &g[k].y) && inside(call, &g[k].a) && inside(call, &g[k].b));
            ck_assert_msg(apart(&g[k].y, &g[k].a) && apart(&g[k].y, &g[k].b) &&
                              apart(&g[k].a, &g[k].b),
                          "%s: call %d, product %d", shapes[_i].name, i, k);
        }
    }
    ck_assert_int_gt(shared, 0);
    floor_list_close(&l);
    free(c);
}
END_TEST

/* An address is base + offset, and back. */
START_TEST(a_call_moves_into_memory_and_back)
{
    struct bench_case *c = case_of(&shapes[0], NULL);
    struct floor_list l = {0};

    OK(floor_list_fill(&l, c, 0));
    for (int i = 0; i < l.n; i++) {
        struct floor_call *call = l.call[i];
        char *memory = malloc(call->bytes + 1);
        void *before = call->kind == FLOOR_GRADIENT ? call->grad[0].x.data : call->gemm[0].y.data;

        ck_assert_ptr_nonnull(memory);
        if (call->kind == FLOOR_GRADIENT || call->kind == FLOOR_PRODUCT) {
            const struct tensor *t =
                call->kind == FLOOR_GRADIENT ? &call->grad[0].x : &call->gemm[0].y;

            floor_call_move(call, memory, 1);
            ck_assert_ptr_eq(t->data, memory + (uintptr_t)before - 1);
            floor_call_move(call, memory, -1);
            ck_assert_ptr_eq(t->data, before);
        }
        free(memory);
    }
    floor_list_close(&l);
    free(c);
}
END_TEST

/* ---- bytes ---- */

static enum status hear_moved(void *context, double bytes)
{
    *(double *)context += bytes;
    return ST_OK;
}

/* Operations by hand: AdamW with bf16 weights moves 30 bytes a parameter, a sum of bf16 rows 6. */
START_TEST(bytes_that_are_moved)
{
    double moved = 0.0;
    const struct record_listener ears = {.context = &moved, .moved = hear_moved};
    const struct math_ops *ops = record_backend.math;
    struct adamw_item item = {.decay = 1};
    struct sample_plan plan = {.samples = 1, .nodes = 1};
    char byte;
    struct tensor wide = tensor_view(&byte, DT_F32, 10, 7),
                  act = tensor_view(&byte, DT_BF16, 10, 7);
    struct tensor ids = tensor_view(&byte, DT_I32, 10, 1);
    struct device *dev;

    OK(record_open(&dev, DT_F32));
    record_listen(dev, &ears);
    item.w = act;
    item.master = item.m = item.v = item.g = wide;
    OK(ops->adamw(dev, &item, 1, NULL, NULL));
    ck_assert_double_eq(moved, 30.0 * 70.0);
    moved = 0.0;
    OK(ops->add(dev, &act, &act, &act));
    ck_assert_double_eq(moved, 6.0 * 70.0);
    moved = 0.0; /* gradients of 10 look-ups join a table */
    plan.node[0].merges = 1;
    OK(ops->embed_backward(dev, &wide, &act, &ids, 0, &plan));
    ck_assert_double_eq(moved, 2.0 * 280.0 + 140.0 + 40.0);
    moved = 0.0;
    OK(record_backend.device->copy(dev, NULL, NULL, 100));
    OK(record_backend.device->zero(dev, NULL, 100));
    ck_assert_double_eq(moved, 300.0);
    record_listen(dev, NULL);
    OK(ops->add(dev, &act, &act, &act));
    ck_assert_double_eq(moved, 300.0);
    dev->be->device->close(dev);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("floor_list");
    TCase *tc = tcase_create("all");

    tcase_add_loop_test(tc, nothing_is_left_out, 0, SHAPES);
    tcase_add_loop_test(tc, equal_calls_are_one, 0, SHAPES);
    tcase_add_loop_test(tc, buffers_stay_what_they_were, 0, SHAPES);
    tcase_add_test(tc, a_call_moves_into_memory_and_back);
    tcase_add_test(tc, bytes_that_are_moved);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
