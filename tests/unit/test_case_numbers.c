/* Reported faults, rows N31, N41, N42: formulas at their edges, counts beyond 32 bits. See
 * tests/CASES.md. */
#include "common/backend/device.h"
#include "common/backend/op.h"
#include "common/data/loader.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef fail /* an old name of check.h; here common/base/status.h's is meant */
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { WIDTH = 64 };

static struct device *dev;

static void set_up(void)
{
    struct device_options opt = {.threads = 1, .local_size = 1};

    status_clear();
    OK(device_open(&dev, &ref_backend, &opt));
}

static void tear_down(void)
{
    device_close(dev);
}

/* N41: epsilon added to the root instead of the mean square. Rows of 1e-4 (whose mean square is
 * epsilon-sized), of zeros, of 1, and one with a single element. */
START_TEST(n41_epsilon_belongs_to_the_mean_square)
{
    static float x[4 * WIDTH], gain[WIDTH], h[4 * WIDTH], s[4];
    struct tensor tx = tensor_view(x, DT_F32, 4, WIDTH), tg = tensor_view(gain, DT_F32, 1, WIDTH);
    struct tensor th = tensor_view(h, DT_F32, 4, WIDTH), ts = tensor_view(s, DT_F32, 4, 1);
    struct norm norm = {.width = WIDTH, .eps = 1e-6};
    float unset;

    memset(&unset, 0xff, sizeof unset);
    for (int j = 0; j < WIDTH; j++) {
        x[j] = 1e-4f;
        x[WIDTH + j] = 0;
        x[2 * WIDTH + j] = 1;
        x[3 * WIDTH + j] = j == 5 ? 1e-3f : 0;
        gain[j] = 0.5f + 0.01f * (float)j;
    }
    for (int j = 0; j < 4 * WIDTH; j++)
        h[j] = unset;
    OK(op_rms_norm(dev, &th, &ts, &tx, &tg, norm));
    for (int i = 0; i < 4; i++) {
        double mean = 0;

        for (int j = 0; j < WIDTH; j++)
            mean += (double)x[i * WIDTH + j] * (double)x[i * WIDTH + j] / WIDTH;
        for (int j = 0; j < WIDTH; j++) {
            double want = (double)x[i * WIDTH + j] * (double)gain[j] / sqrt(mean + 1e-6);

            ck_assert_msg(fabs((double)h[i * WIDTH + j] - want) <= 1e-6 * fabs(want),
                          "row %d: %g, not %g", i, (double)h[i * WIDTH + j], want);
        }
    }
    /* the two formulas differ here by far more than that */
    ck_assert(fabs(1e-4 / sqrt(1e-8 + 1e-6) - 1e-4 / (1e-4 + 1e-6)) > 0.5);
}
END_TEST

/* N41, as low-rank layers have it under BTP: latents of unscaled rows, divided afterwards by the
 * root that all ranks' statistic gives, and the synchronous form. A is the identity here. */
START_TEST(n41_in_the_online_norm)
{
    static float x[4 * WIDTH], gain[WIDTH], h[4 * WIDTH], z[4 * WIDTH], y[4 * WIDTH], s[4];
    struct tensor tx = tensor_view(x, DT_F32, 4, WIDTH), tg = tensor_view(gain, DT_F32, 1, WIDTH);
    struct tensor th = tensor_view(h, DT_F32, 4, WIDTH), ts = tensor_view(s, DT_F32, 4, 1);
    struct tensor tz = tensor_view(z, DT_F32, 4, WIDTH), ty = tensor_view(y, DT_F32, 4, WIDTH);
    struct latent lat = {.act = ACT_NONE, .norm = {.width = WIDTH, .eps = 1e-6}};

    memset(z, 0xff, sizeof z);
    memset(y, 0xff, sizeof y);
    for (int j = 0; j < WIDTH; j++) {
        x[j] = 1e-4f;
        x[WIDTH + j] = 0;
        x[2 * WIDTH + j] = 1;
        x[3 * WIDTH + j] = j == 5 ? 1e-3f : 0;
        gain[j] = 0.5f + 0.01f * (float)j;
    }
    OK(op_rms_partial(dev, &th, &ts, NULL, &tx, &tg, lat.norm));
    OK(op_latent_forward(dev, &tz, NULL, &th, &ts, lat));
    OK(op_rms_apply(dev, &ty, &tx, &tg, &ts, lat.norm));
    for (int i = 0; i < 4 * WIDTH; i++) {
        static const double squares[4] = {1e-8, 0, 1, 1e-6 / WIDTH};
        double want = (double)x[i] * (double)gain[i % WIDTH] / sqrt(squares[i / WIDTH] + 1e-6);

        ck_assert_msg(fabs((double)z[i] - want) <= 1e-6 * fabs(want), "online, row %d: %g, not %g",
                      i / WIDTH, (double)z[i], want);
        ck_assert_msg(fabs((double)y[i] - want) <= 1e-6 * fabs(want), "sync, row %d: %g, not %g",
                      i / WIDTH, (double)y[i], want);
    }
}
END_TEST

/* N31: infinities of the causal mask under -Ofast, a softmax over nothing. The first row of each
 * sequence sees one key and returns its value exactly; sequences of one token consist of it. */
START_TEST(n31_softmax_of_one_token)
{
    enum { HEADS = 4, KV = 2, DIM = 16 };
    static float q[3 * 4 * HEADS * DIM], k[3 * 4 * KV * DIM], v[3 * 4 * KV * DIM];
    static float o[3 * 4 * HEADS * DIM], lse[3 * 4 * HEADS];
    int seq = _i;
    struct attention at = {
        .batch = 3, .seq = seq, .kv_rows = seq, .heads = HEADS, .kv_heads = KV, .head_dim = DIM};

    for (int i = 0; i < 3 * 4 * HEADS * DIM; i++)
        q[i] = (float)(i % 29) * 10.0f - 140.0f; /* scores up to 1e5: exp of them is infinite */
    for (int i = 0; i < 3 * 4 * KV * DIM; i++) {
        k[i] = 90.0f - (float)(i % 31) * 6.0f;
        v[i] = (float)i + 0.25f;
    }
    at.q = tensor_grained(tensor_view(q, DT_F32, 3 * seq, HEADS * DIM), 3, 1);
    at.o = tensor_grained(tensor_view(o, DT_F32, 3 * seq, HEADS * DIM), 3, 1);
    at.k = tensor_grained(tensor_view(k, DT_F32, 3 * seq, KV * DIM), 3, 1);
    at.v = tensor_grained(tensor_view(v, DT_F32, 3 * seq, KV * DIM), 3, 1);
    at.lse = tensor_grained(tensor_view(lse, DT_F32, 3 * seq, HEADS), 3, 1);
    OK(op_attention_forward(dev, &at));
    for (int b = 0; b < 3; b++)
        for (int j = 0; j < HEADS * DIM; j++) {
            int head = j / DIM * KV / HEADS;

            ck_assert_msg(o[b * seq * HEADS * DIM + j] ==
                              v[b * seq * KV * DIM + head * DIM + j % DIM],
                          "sequence %d, column %d: %g", b, j, (double)o[b * seq * HEADS * DIM + j]);
        }
    for (int i = 0; i < 3 * seq * HEADS * DIM; i++)
        ck_assert_msg(isfinite(o[i]), "element %d is %g", i, (double)o[i]);
}
END_TEST

/* N31: a flag that lets the compiler assume there are no infinities. */
START_TEST(n31_flags_keep_infinities)
{
    volatile float big = 3e38f, zero = 0;

    ck_assert(isinf(big * 10) && isnan(zero / zero) && signbit(-zero));
#ifdef __FAST_MATH__
    ck_abort_msg("built with -ffast-math");
#endif
}
END_TEST

/* N42: numbers of samples computed through a 32-bit float, or a 32-bit integer. */
START_TEST(n42_sample_counts_are_exact)
{
    static const struct {
        int64_t tokens, samples, last; /* sequences of 32; targets of the last one */
    } cases[] = {{(INT64_C(1) << 24) + 1, INT64_C(1) << 19, 32},
                 {(INT64_C(1) << 31) + 7, (INT64_C(1) << 26) + 1, 6},
                 {(INT64_C(1) << 40) + 3, (INT64_C(1) << 35) + 1, 2},
                 {(INT64_C(1) << 40) + 1, INT64_C(1) << 35, 32},
                 {33, 1, 32},
                 {34, 2, 1}};
    int64_t tokens = cases[_i].tokens, samples = cases[_i].samples, last = cases[_i].last, valid;
    struct corpus c = {.count = tokens, .documents = 1, .path = "text", .vocab = 259, .pad = -1};
    struct loader_options opt = {.mode = LOADER_EVAL, .packing = 1, .seq = 32, .batch = 8};
    struct loader l;

    ck_assert_int_eq(loader_packed_samples(tokens, 32), samples);
    OK(loader_open(&l, &c, &opt));
    ck_assert_int_eq(l.samples, samples);
    ck_assert_int_eq(l.valid, tokens - 1);
    ck_assert_int_eq(loader_batches(&l), (samples + 7) / 8);
    OK(loader_valid(&valid, &l, loader_batches(&l) - 1));
    ck_assert_int_eq(valid, (samples - 1) % 8 * 32 + last);
    opt.mode = LOADER_TRAIN;
    OK(loader_open(&l, &c, &opt));
    ck_assert_int_eq(l.samples, samples);
    /* one epoch's positions hold as many targets as the text */
    valid = 0;
    if (samples <= 8) {
        opt.batch = samples;
        OK(loader_open(&l, &c, &opt));
        OK(loader_valid(&valid, &l, 0));
        ck_assert_int_eq(valid, tokens - 1);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("case numbers");
    TCase *tc = tcase_create("numbers");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, n41_epsilon_belongs_to_the_mean_square);
    tcase_add_test(tc, n41_in_the_online_norm);
    tcase_add_loop_test(tc, n31_softmax_of_one_token, 1, 5);
    tcase_add_test(tc, n31_flags_keep_infinities);
    tcase_add_loop_test(tc, n42_sample_counts_are_exact, 0, 6);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return check_unit(suite());
}
