/* The seam: no slot is empty, wrappers refuse what does not fit, devices keep their memory. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>

static const struct backend *const backends[] = {&ref_backend, &ref64_backend};

START_TEST(backends_are_complete)
{
    ck_assert_ptr_null(backend_missing(backends[_i]));
}
END_TEST

/* Every slot taken away in turn is missed, and by its own name. */
START_TEST(an_empty_slot_is_named)
{
    struct device_ops device = *ref_backend.device;
    struct math_ops math = *ref_backend.math;
    struct comm_ops comm = *ref_backend.comm;
    struct backend be = {"test", &device, &math, &comm};
    struct device *dev;
    struct device_options opt = {.threads = 1};

#define LACKS(table, slot)                                    \
    table.slot = NULL;                                        \
    ck_assert_str_eq(backend_missing(&be), #table "." #slot); \
    table.slot = ref_backend.table->slot;
#define DEVICE_SLOT(slot) LACKS(device, slot)
#define MATH_SLOT(slot)   LACKS(math, slot)
#define COMM_SLOT(slot)   LACKS(comm, slot)
#include "common/backend/slots.def"
    ck_assert_ptr_null(backend_missing(&be));
    math.rope = NULL;
    status_clear();
    ck_assert_int_eq(device_open(&dev, &be, &opt), ST_EINTERNAL);
    ck_assert_str_eq(status_message(), "backend test lacks math.rope");
    be.math = NULL;
    ck_assert_str_eq(backend_missing(&be), "math");
}
END_TEST

/* A call that must fail with this status and name this text. */
#define REFUSED(expr, status, text)                                                         \
    do {                                                                                    \
        status_clear();                                                                     \
        ck_assert_int_eq((expr), (status));                                                 \
        ck_assert_msg(strstr(status_message(), (text)), "%s: %s", #expr, status_message()); \
    } while (0)

START_TEST(shapes_types_and_grains_are_checked)
{
    struct ref_case c;
    struct device *dev, *wide;
    struct tensor a, b, y, half, tall;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    wide = ref_case_device(&c, &ref64_backend, 1);
    a = ref_case_random(&c, dev, 4, 6, 1);
    b = ref_case_random(&c, dev, 4, 6, 2);
    y = ref_case_tensor(&c, DT_F32, 4, 6, 0);
    tall = ref_case_tensor(&c, DT_F32, 6, 4, 0);
    half = ref_case_tensor(&c, DT_BF16, 4, 6, 0);
    OK(op_add(dev, &half, &a, &b));
    REFUSED(op_add(dev, &tall, &a, &b), ST_ESHAPE, "op_add: y is [6, 4], must be [4, 6]");
    REFUSED(op_add(wide, &y, &a, &b), ST_EDTYPE, "op_add: y is f32, must be f64");
    REFUSED(op_add(wide, &half, &a, &b), ST_EDTYPE, "op_add: y is bf16, must be f64");
    REFUSED(op_rms_stat(dev, &half, &a), ST_EDTYPE, "op_rms_stat: s is bf16, must be f32");
    y.stride = 5;
    REFUSED(op_add(dev, &y, &a, &b), ST_ESHAPE, "every 5 elements");
    y.stride = 6;
    y.col_grains = 4;
    REFUSED(op_add(dev, &y, &a, &b), ST_ESHAPE, "1 by 4 grains do not divide");
    REFUSED(op_convert(dev, &tall, &a, 1), ST_ESHAPE, "tensor_same_shape");
    REFUSED(op_convert(dev, (struct tensor[]){half, tall}, (struct tensor[]){a, a}, 2), ST_ESHAPE,
            "tensor_same_shape");
    ref_case_end(&c);
}
END_TEST

START_TEST(products_are_checked)
{
    struct ref_case c;
    struct device *dev;
    struct gemm g = {.kind = GEMM_NT};
    struct tensor wrong;
    struct weight_grad w;
    struct sample_plan plan = ref_case_plan(3, 0);

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    g.a = ref_case_random(&c, dev, 4, 6, 1);
    g.b = ref_case_random(&c, dev, 8, 6, 2);
    g.y = ref_case_tensor(&c, DT_F32, 4, 8, 0);
    OK(op_gemm(dev, &g, 1));
    g.kind = GEMM_NN;
    REFUSED(op_gemm(dev, &g, 1), ST_ESHAPE, "op_gemm: b is [8, 6], must be [6, 8]");
    g.kind = GEMM_NT;
    g.a.col_grains = 2;
    REFUSED(op_gemm(dev, &g, 1), ST_ESHAPE, "grains of K are 2 in a, 1 in b");
    g.b.col_grains = 2;
    OK(op_gemm(dev, &g, 1));
    wrong = ref_case_tensor(&c, DT_F32, 4, 3, 0);
    g.k_scale = &wrong;
    REFUSED(op_gemm(dev, &g, 1), ST_ESHAPE, "k_scale is [4, 3], must be [4, 2]");
    g.k_scale = NULL;
    g.more = 3;
    REFUSED(op_gemm(dev, &g, 1), ST_ESHAPE, "3 further pairs");
    w.dw = ref_case_tensor(&c, DT_F32, 8, 6, 0);
    w.dy = g.y;
    w.x = g.a;
    REFUSED(op_weight_grad(dev, &w, 1, &plan), ST_ESHAPE, "4 rows do not divide into 3 samples");
    ref_case_end(&c);
}
END_TEST

START_TEST(attention_is_checked)
{
    struct ref_case c;
    struct device *dev;
    struct attention at = {
        .batch = 2, .seq = 3, .kv_rows = 3, .heads = 4, .kv_heads = 3, .head_dim = 2};

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    REFUSED(op_attention_forward(dev, &at), ST_ESHAPE, "4 heads read 3 key heads");
    at.kv_heads = 2;
    at.pos0 = 1;
    REFUSED(op_attention_forward(dev, &at), ST_ESHAPE, "3 positions from 1 do not fit into 3 rows");
    at.pos0 = 0;
    at.q = at.o = ref_case_random(&c, dev, 6, 8, 1);
    at.k = at.v = ref_case_random(&c, dev, 6, 4, 1);
    at.lse = ref_case_random(&c, dev, 6, 4, 1);
    OK(op_attention_forward(dev, &at));
    at.kv_rows = 4;
    REFUSED(op_attention_backward(dev, &at, &at), ST_ESHAPE, "backward needs pos0 0");
    ref_case_end(&c);
}
END_TEST

START_TEST(latent_statistic_is_needed_for_beta)
{
    struct ref_case c;
    struct device *dev;
    struct tensor z, coef;
    struct latent lat = {.act = ACT_NONE, .norm = {.width = 6, .eps = 0}};

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    z = ref_case_random(&c, dev, 4, 6, 1);
    coef = ref_case_tensor(&c, DT_F32, 4, 2, 0);
    REFUSED(op_latent_backward(dev, &z, &coef, &z, &z, NULL, lat), ST_ESHAPE, "coef && !s");
    ref_case_end(&c);
}
END_TEST

START_TEST(device_memory_is_poisoned_and_aligned)
{
    static const size_t sizes[] = {0, 1, 1000, 5 << 20};
    struct ref_case c;
    struct device *dev;
    struct device_info info;
    void *p;

    ref_case_begin(&c);
    dev = ref_case_device(&c, backends[_i], 2);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        float last;

        OK(device_alloc(dev, &p, sizes[i]));
        ck_assert_uint_eq((uintptr_t)p % 256, 0);
        if (sizes[i] >= sizeof last) {
            OK(device_download(dev, &last, (char *)p + sizes[i] - sizeof last, sizeof last));
            ck_assert(isnan(last));
            OK(device_zero(dev, p, sizes[i]));
            OK(device_download(dev, &last, (char *)p + sizes[i] - sizeof last, sizeof last));
            ck_assert(last == 0);
        }
        device_release(dev, p);
    }
    OK(device_info(dev, &info));
    ck_assert_uint_gt(info.memory_total, 0);
    ck_assert_ptr_nonnull(strstr(info.name, "OpenBLAS"));
    REFUSED(device_alloc(dev, &p, (size_t)1 << 60), ST_ENOMEM, "MiB of host memory asked for");
    ref_case_end(&c);
}
END_TEST

START_TEST(a_device_needs_a_thread)
{
    struct device *dev;
    struct device_options opt = {.threads = 0};

    REFUSED(device_open(&dev, &ref_backend, &opt), ST_EDEVICE, "threads is 0, must be 1 or more");
}
END_TEST

/* What a step would do, twice: the second time nothing grows any more. */
static void some_operations(struct ref_case *c, struct device *dev)
{
    struct tensor x = ref_case_random(c, dev, 640, 960, 1), w = ref_case_random(c, dev, 80, 960, 2);
    struct tensor y = ref_case_tensor(c, DT_BF16, 640, 80, 0), s, dw;
    struct sample_plan plan = ref_case_plan(4, 0);
    struct gemm g = {.y = y, .a = x, .b = w, .kind = GEMM_NT};
    struct weight_grad grad = {.dy = y, .x = x};

    x = ref_case_copy(c, &x, DT_BF16);
    g.a = grad.x = x;
    s = ref_case_tensor(c, DT_F32, 640, 1, 0);
    dw = ref_case_tensor(c, DT_F32, 80, 960, 0);
    grad.dw = dw;
    OK(op_gemm(dev, &g, 1));
    OK(op_weight_grad(dev, &grad, 1, &plan));
    OK(op_rms_stat(dev, &s, &x));
}

START_TEST(scratch_grows_once)
{
    struct ref_case c;
    struct device *dev;
    int64_t grown;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 2);
    some_operations(&c, dev);
    grown = ((struct ref_device *)dev)->grown;
    ck_assert_int_gt(grown, 2); /* beyond what it had from the start */
    some_operations(&c, dev);
    ck_assert_int_eq(((struct ref_device *)dev)->grown, grown);
    ref_case_end(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seam");
    TCase *tc = tcase_create("all");

    tcase_add_loop_test(tc, backends_are_complete, 0, 2);
    tcase_add_test(tc, an_empty_slot_is_named);
    tcase_add_test(tc, shapes_types_and_grains_are_checked);
    tcase_add_test(tc, products_are_checked);
    tcase_add_test(tc, attention_is_checked);
    tcase_add_test(tc, latent_statistic_is_needed_for_beta);
    tcase_add_loop_test(tc, device_memory_is_poisoned_and_aligned, 0, 2);
    tcase_add_test(tc, a_device_needs_a_thread);
    tcase_add_test(tc, scratch_grows_once);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
