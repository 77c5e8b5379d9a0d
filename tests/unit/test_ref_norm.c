/* Norms and latents of the reference backend. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 2, SEQ = 5, M = SAMPLES * SEQ, D = 24, G = 4 };

static const struct norm norm = {.width = D, .eps = 1e-5};

/* One norm, its gradient's direction, and everything that the operations want. */
struct scene {
    struct device *dev;
    struct tensor x, gain, t;       /* [M, D], [1, D], [M, D] */
    struct tensor h, s, l, c, coef; /* [M, D], [M, 1], [M, G], [M, 1], [M, 2] */
    struct tensor dx, dgain;
};

static void make_scene(struct ref_case *c, struct scene *sc, const struct backend *be, int threads)
{
    struct device *dev = ref_case_device(c, be, threads);

    sc->dev = dev;
    sc->x = tensor_grained(ref_case_random(c, dev, M, D, 1), 1, G);
    sc->gain = ref_case_random(c, dev, 1, D, 2);
    sc->t = ref_case_random(c, dev, M, D, 3);
    sc->h = ref_case_tensor(c, dev->wide, M, D, 1);
    sc->s = ref_case_tensor(c, dev->wide, M, 1, 0);
    sc->l = ref_case_tensor(c, dev->wide, M, G, 0);
    sc->c = ref_case_tensor(c, dev->wide, M, 1, 0);
    sc->coef = ref_case_tensor(c, dev->wide, M, 2, 0);
    sc->dx = ref_case_tensor(c, dev->wide, M, D, 0);
    sc->dgain = ref_case_tensor(c, dev->wide, 1, D, 0);
}

static struct rms_grad grad_of(const struct scene *sc)
{
    struct rms_grad g = {
        .dx = sc->dx, .dgain = sc->dgain, .t = sc->t, .x = sc->x, .gain = sc->gain};

    return g;
}

static double rms_of(const struct tensor *x, int64_t i)
{
    double s = 0;

    for (int64_t j = 0; j < x->cols; j++)
        s += ref_case_get(x, i, j) * ref_case_get(x, i, j);
    return sqrt(s / (double)x->cols + norm.eps);
}

START_TEST(norm_is_its_definition)
{
    struct ref_case c;
    struct scene sc;
    struct tensor expected;

    ref_case_begin(&c);
    make_scene(&c, &sc, _i ? &ref64_backend : &ref_backend, 2);
    expected = ref_case_copy(&c, &sc.x, DT_F64);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < D; j++)
            ref_case_put(&expected, i, j,
                         ref_case_get(&sc.x, i, j) * ref_case_get(&sc.gain, 0, j) /
                             rms_of(&sc.x, i));
    OK(op_rms_norm(sc.dev, &sc.h, &sc.s, &sc.x, &sc.gain, norm));
    ck_assert_double_le(ref_case_error(&sc.h, &expected), _i ? 1e-15 : 3e-7);
    ck_assert_int_eq(ref_case_spilt(&sc.h), 0);
    ref_case_end(&c);
}
END_TEST

START_TEST(whole_norm_is_statistic_and_application)
{
    struct ref_case c;
    struct scene sc;
    struct tensor h, s;

    ref_case_begin(&c);
    make_scene(&c, &sc, &ref_backend, 1);
    h = ref_case_tensor(&c, DT_F32, M, D, 0);
    s = ref_case_tensor(&c, DT_F32, M, 1, 0);
    OK(op_rms_norm(sc.dev, &sc.h, &sc.s, &sc.x, &sc.gain, norm));
    OK(op_rms_stat(sc.dev, &s, &sc.x));
    OK(op_rms_apply(sc.dev, &h, &sc.x, &sc.gain, &s, norm));
    ck_assert(ref_case_same(&s, &sc.s));
    ck_assert(ref_case_same(&h, &sc.h));
    ref_case_end(&c);
}
END_TEST

/* Column shares of a scene. */
static struct tensor share(const struct tensor *t, int64_t r, int64_t ranks)
{
    return tensor_cols(t, r * t->cols / ranks, t->cols / ranks, (int32_t)(G / ranks));
}

START_TEST(shards_keep_bits)
{
    struct ref_case c;
    struct scene sc;
    struct tensor h, s, l, dots, parts, dot_parts, sum;

    ref_case_begin(&c);
    make_scene(&c, &sc, &ref_backend, 2);
    h = ref_case_tensor(&c, DT_F32, M, D, 0);
    s = ref_case_tensor(&c, DT_F32, M, 1, 0);
    l = ref_case_tensor(&c, DT_F32, M, G, 0);
    sum = ref_case_tensor(&c, DT_F32, M, 1, 0);
    dots = ref_case_tensor(&c, DT_F32, M, 1, 0);
    OK(op_rms_partial(sc.dev, &sc.h, &sc.s, &sc.l, &sc.x, &sc.gain, norm));
    OK(op_rms_dot(sc.dev, &sc.c, &sc.t, &sc.x, &sc.gain));
    for (int64_t ranks = 1; ranks <= G; ranks *= 2) {
        parts = ref_case_tensor(&c, DT_F32, ranks * M, 1, 0);
        dot_parts = ref_case_tensor(&c, DT_F32, ranks * M, 1, 0);
        for (int64_t r = 0; r < ranks; r++) {
            struct tensor x = share(&sc.x, r, ranks), gain = share(&sc.gain, r, ranks);
            struct tensor t = share(&sc.t, r, ranks), hr = share(&h, r, ranks);
            struct tensor lr = tensor_cols(&l, r * G / ranks, G / ranks, 1);
            struct tensor part = tensor_rows(&parts, r * M, M, 1);
            struct tensor dot = tensor_rows(&dot_parts, r * M, M, 1);

            OK(op_rms_partial(sc.dev, &hr, &part, &lr, &x, &gain, norm));
            OK(op_rms_stat(sc.dev, &s, &x));
            ck_assert(ref_case_same(&part, &s));
            OK(op_rms_dot(sc.dev, &dot, &t, &x, &gain));
        }
        OK(op_sum_tree(sc.dev, &sum, &parts));
        OK(op_sum_tree(sc.dev, &dots, &dot_parts));
        ck_assert(ref_case_same(&sum, &sc.s));
        ck_assert(ref_case_same(&dots, &sc.c));
        ck_assert(ref_case_same(&h, &sc.h));
        ck_assert(ref_case_same(&l, &sc.l));
    }
    ref_case_end(&c);
}
END_TEST

START_TEST(local_form_divides_each_grain_by_its_rms)
{
    struct ref_case c;
    struct scene sc;
    int64_t width = D / G;

    ref_case_begin(&c);
    make_scene(&c, &sc, &ref64_backend, 1);
    OK(op_rms_partial(sc.dev, &sc.h, &sc.s, &sc.l, &sc.x, &sc.gain, norm));
    for (int64_t i = 0; i < M; i++)
        for (int64_t g = 0; g < G; g++) {
            struct tensor x = tensor_cols(&sc.x, g * width, width, 1);
            double rms = rms_of(&x, i), h = ref_case_get(&sc.h, i, g * width);

            ck_assert_double_eq_tol(ref_case_get(&sc.l, i, g), rms, 1e-14);
            ck_assert_double_eq_tol(
                h, ref_case_get(&x, i, 0) * ref_case_get(&sc.gain, 0, g * width) / rms, 1e-14);
        }
    OK(op_rms_partial(sc.dev, &sc.h, &sc.s, NULL, &sc.x, &sc.gain, norm));
    ck_assert_double_eq(ref_case_get(&sc.h, 3, 5),
                        ref_case_get(&sc.x, 3, 5) * ref_case_get(&sc.gain, 0, 5));
    ref_case_end(&c);
}
END_TEST

static double norm_loss(void *context)
{
    struct scene *sc = context;

    OK(op_rms_norm(sc->dev, &sc->h, &sc->s, &sc->x, &sc->gain, norm));
    return ref_case_dot(&sc->h, &sc->t);
}

START_TEST(norm_backward_agrees_with_differences)
{
    struct ref_case c;
    struct scene sc;
    struct rms_grad g;
    struct sample_plan plan = ref_case_plan(SAMPLES, 0);
    struct ref_case_loss loss = {norm_loss, &sc};

    ref_case_begin(&c);
    make_scene(&c, &sc, &ref64_backend, 2);
    ref_case_set(&sc.dx, 0);
    (void)norm_loss(&sc);
    g = grad_of(&sc);
    OK(op_rms_norm_backward(sc.dev, &g, &sc.s, norm, &plan));
    ck_assert_double_le(ref_case_differences(&sc.x, &sc.dx, loss), 1e-6);
    ck_assert_double_le(ref_case_differences(&sc.gain, &sc.dgain, loss), 1e-6);
    ref_case_end(&c);
}
END_TEST

START_TEST(synchronous_backward_is_the_whole_one)
{
    struct ref_case c;
    struct scene sc;
    struct rms_grad g;
    struct sample_plan plan = ref_case_plan(SAMPLES, 0);
    struct tensor dx, dgain;

    ref_case_begin(&c);
    make_scene(&c, &sc, &ref_backend, 1);
    dx = ref_case_tensor(&c, DT_F32, M, D, 0);
    dgain = ref_case_tensor(&c, DT_F32, 1, D, 0);
    ref_case_fill(&sc.dx, 9, 1);
    ref_case_fill(&dx, 9, 1);
    OK(op_rms_stat(sc.dev, &sc.s, &sc.x));
    g = grad_of(&sc);
    OK(op_rms_norm_backward(sc.dev, &g, &sc.s, norm, &plan));
    OK(op_rms_dot(sc.dev, &sc.c, &sc.t, &sc.x, &sc.gain));
    OK(op_rms_coef(sc.dev, &sc.coef, &sc.c, &sc.s, norm));
    g.dx = dx;
    g.dgain = dgain;
    OK(op_rms_backward(sc.dev, &g, &sc.coef, &plan));
    ck_assert(ref_case_same(&dx, &sc.dx));
    ck_assert(ref_case_same(&dgain, &sc.dgain));
    ref_case_end(&c);
}
END_TEST

/* The online norm in front of a matrix: z = (x gain) A / rms, a = act(z). */
struct online {
    struct scene sc;
    struct tensor w, zsum, z, a, da, u; /* [D, R], then [M, R] */
    struct latent lat;
};

enum { R = 10 };

static double online_loss(void *context)
{
    struct online *o = context;
    struct gemm g = {.y = o->zsum, .a = o->sc.h, .b = o->w, .kind = GEMM_NN};

    OK(op_rms_partial(o->sc.dev, &o->sc.h, &o->sc.s, NULL, &o->sc.x, &o->sc.gain, norm));
    OK(op_gemm(o->sc.dev, &g, 1));
    OK(op_latent_forward(o->sc.dev, &o->z, &o->a, &o->zsum, &o->sc.s, o->lat));
    return ref_case_dot(&o->a, &o->da);
}

static void make_online(struct ref_case *c, struct online *o, enum act act)
{
    make_scene(c, &o->sc, &ref64_backend, 2);
    o->w = ref_case_random(c, o->sc.dev, D, R, 4);
    o->da = ref_case_random(c, o->sc.dev, M, R, 5);
    o->zsum = ref_case_tensor(c, DT_F64, M, R, 0);
    o->z = ref_case_tensor(c, DT_F64, M, R, 0);
    o->a = ref_case_tensor(c, DT_F64, M, R, 0);
    o->u = ref_case_tensor(c, DT_F64, M, R, 0);
    o->lat = (struct latent){.act = act, .norm = norm};
}

START_TEST(online_backward_agrees_with_differences)
{
    struct ref_case c;
    struct online o;
    struct sample_plan plan = ref_case_plan(SAMPLES, 0);
    struct ref_case_loss loss = {online_loss, &o};
    struct gemm back = {.kind = GEMM_NT};
    struct rms_grad g;

    ref_case_begin(&c);
    make_online(&c, &o, _i ? ACT_SILU : ACT_NONE);
    (void)online_loss(&o);
    OK(op_latent_backward(o.sc.dev, &o.u, &o.sc.coef, &o.da, &o.z, &o.sc.s, o.lat));
    back.y = o.sc.t;
    back.a = o.u;
    back.b = o.w;
    OK(op_gemm(o.sc.dev, &back, 1));
    ref_case_set(&o.sc.dx, 0);
    g = grad_of(&o.sc);
    OK(op_rms_backward(o.sc.dev, &g, &o.sc.coef, &plan));
    ck_assert_double_le(ref_case_differences(&o.sc.x, &o.sc.dx, loss), 1e-6);
    ck_assert_double_le(ref_case_differences(&o.sc.gain, &o.sc.dgain, loss), 1e-6);
    ref_case_end(&c);
}
END_TEST

static double act_loss(void *context)
{
    struct online *o = context;

    OK(op_latent_forward(o->sc.dev, &o->z, &o->a, &o->zsum, NULL, o->lat));
    return ref_case_dot(&o->a, &o->da);
}

START_TEST(activation_backward_agrees_with_differences)
{
    struct ref_case c;
    struct online o;
    struct ref_case_loss loss = {act_loss, &o};

    ref_case_begin(&c);
    make_online(&c, &o, ACT_SILU);
    ref_case_fill(&o.zsum, 11, 3);
    (void)act_loss(&o);
    OK(op_latent_backward(o.sc.dev, &o.u, NULL, &o.da, &o.z, NULL, o.lat));
    ck_assert_double_le(ref_case_differences(&o.zsum, &o.u, loss), 1e-6);
    ref_case_end(&c);
}
END_TEST

/* bf16: a from the z that is stored, so that recomputation gives the same bits. */
START_TEST(recomputed_activation_has_the_same_bits)
{
    struct ref_case c;
    struct device *dev;
    struct tensor zsum, s, z, a, again, nothing;
    struct latent lat = {.act = ACT_SILU, .norm = norm};

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    zsum = ref_case_random(&c, dev, M, D, 1);
    s = ref_case_tensor(&c, DT_F32, M, 1, 0);
    ref_case_set(&s, 3);
    z = ref_case_tensor(&c, _i ? DT_BF16 : DT_F32, M, D, 2);
    nothing = ref_case_tensor(&c, _i ? DT_BF16 : DT_F32, M, D, 0);
    a = ref_case_tensor(&c, _i ? DT_BF16 : DT_F32, M, D, 1);
    again = ref_case_tensor(&c, _i ? DT_BF16 : DT_F32, M, D, 0);
    OK(op_latent_forward(dev, &z, &a, &zsum, &s, lat));
    OK(op_latent_act(dev, &again, &z, lat));
    ck_assert(ref_case_same(&a, &again));
    OK(op_latent_forward(dev, &nothing, NULL, &zsum, &s, lat));
    ck_assert(ref_case_same(&z, &nothing));
    ck_assert_int_eq(ref_case_spilt(&z) + ref_case_spilt(&a), 0);
    OK(op_latent_forward(dev, &zsum, &a, &zsum, &s, lat)); /* in place */
    ck_assert(_i || ref_case_same(&zsum, &z));
    ref_case_end(&c);
}
END_TEST

START_TEST(bf16_norm_rounds_once)
{
    struct ref_case c;
    struct scene sc;
    struct tensor x, gain, h, rounded;

    ref_case_begin(&c);
    make_scene(&c, &sc, &ref_backend, 1);
    x = ref_case_copy(&c, &sc.x, DT_BF16);
    gain = ref_case_copy(&c, &sc.gain, DT_BF16);
    h = ref_case_tensor(&c, DT_BF16, M, D, 1);
    sc.x = ref_case_copy(&c, &x, DT_F32);
    sc.gain = ref_case_copy(&c, &gain, DT_F32);
    OK(op_rms_norm(sc.dev, &h, &sc.s, &x, &gain, norm));
    OK(op_rms_norm(sc.dev, &sc.h, &sc.s, &sc.x, &sc.gain, norm));
    rounded = ref_case_copy(&c, &sc.h, DT_BF16);
    ck_assert(ref_case_same(&h, &rounded));
    ref_case_end(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref norms");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, norm_is_its_definition, 0, 2);
    tcase_add_test(tc, whole_norm_is_statistic_and_application);
    tcase_add_test(tc, shards_keep_bits);
    tcase_add_test(tc, local_form_divides_each_grain_by_its_rms);
    tcase_add_test(tc, norm_backward_agrees_with_differences);
    tcase_add_test(tc, synchronous_backward_is_the_whole_one);
    tcase_add_loop_test(tc, online_backward_agrees_with_differences, 0, 2);
    tcase_add_test(tc, activation_backward_agrees_with_differences);
    tcase_add_loop_test(tc, recomputed_activation_has_the_same_bits, 0, 2);
    tcase_add_test(tc, bf16_norm_rounds_once);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
