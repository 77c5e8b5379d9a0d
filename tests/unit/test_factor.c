/* Factors of matrices: what is nearest, and what is kept. */
#include "common/base/rng.h"
#include "ref/factor.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

#undef fail

enum { MOST = 24, TOKENS = 200 };

/* A matrix w [out, in], inputs x [TOKENS, in] whose sizes differ much, and their moments. */
struct scene {
    int out, in;
    double w[MOST * MOST], x[TOKENS * MOST], c[MOST * MOST];
    double a[MOST * MOST], b[MOST * MOST];
};

static void make_scene(struct scene *s, int out, int in, uint64_t seed)
{
    struct rng_key key = rng_key(seed, RNG_TEST, 1);

    s->out = out;
    s->in = in;
    rng_normal_fill64(s->w, &key, 0, (size_t)out * (size_t)in, 1.0);
    rng_normal_fill64(s->x, &key, 4096, (size_t)TOKENS * (size_t)in, 1.0);
    for (int i = 0; i < TOKENS; i++)
        for (int j = 0; j < in; j++)
            s->x[i * in + j] *= j % 3 ? 0.1 : 3.0;
    memset(s->c, 0, sizeof s->c);
    for (int i = 0; i < TOKENS; i++)
        for (int j = 0; j < in; j++)
            for (int k = 0; k < in; k++)
                s->c[j * in + k] += s->x[i * in + j] * s->x[i * in + k] / TOKENS;
}

static struct factor solve(struct scene *s, int r, int weighted)
{
    struct factor f = {.a = s->a, .b = s->b, .r = r};
    double w[MOST * MOST], c[MOST * MOST];

    memcpy(w, s->w, sizeof w);
    memcpy(c, s->c, sizeof c);
    OK(factor_nearest(&f, w, s->out, s->in, weighted ? c : NULL));
    return f;
}

/* Element of w - b a. */
static double rest(const struct scene *s, int r, int i, int j)
{
    double sum = s->w[i * s->in + j];

    for (int k = 0; k < r; k++)
        sum -= s->b[i * r + k] * s->a[k * s->in + j];
    return sum;
}

static double weight_error(const struct scene *s, int r)
{
    double sum = 0;

    for (int i = 0; i < s->out; i++)
        for (int j = 0; j < s->in; j++)
            sum += rest(s, r, i, j) * rest(s, r, i, j);
    return sum;
}

static double output_error(const struct scene *s, int r)
{
    double sum = 0;

    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < s->out; i++) {
            double y = 0;

            for (int j = 0; j < s->in; j++)
                y += rest(s, r, i, j) * s->x[t * s->in + j];
            sum += y * y / TOKENS;
        }
    return sum;
}

/* What is lost is what the energies say; at full rank that is nothing. */
START_TEST(test_error_is_the_energy_lost)
{
    static const int shape[][2] = {{20, 12}, {12, 20}, {16, 16}, {1, 9}, {9, 1}};
    struct scene s;

    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        int k = shape[i][0] < shape[i][1] ? shape[i][0] : shape[i][1];

        make_scene(&s, shape[i][0], shape[i][1], i + 1);
        for (int r = 1; r <= k; r++)
            for (int weighted = 0; weighted < 2; weighted++) {
                struct factor f = solve(&s, r, weighted);
                double lost = weighted ? output_error(&s, r) : weight_error(&s, r);

                /* the ridge is 1e-6 of the moments */
                ck_assert_double_le(fabs(f.energy - f.kept - lost), 1e-5 * f.energy);
                if (r == k)
                    ck_assert_double_le(weight_error(&s, r),
                                        1e-18 * f.energy * s.out * s.in + 1e-18);
            }
    }
}
END_TEST

/* Each is better by its own measure, and no nearby pair of factors is better still. */
START_TEST(test_nearest_by_its_measure)
{
    struct scene s;
    double plain[2], weighted[2];
    int r = 5;

    make_scene(&s, 18, 15, 7);
    (void)solve(&s, r, 0);
    plain[0] = weight_error(&s, r);
    plain[1] = output_error(&s, r);
    (void)solve(&s, r, 1);
    weighted[0] = weight_error(&s, r);
    weighted[1] = output_error(&s, r);
    ck_assert_double_lt(plain[0], weighted[0]);
    ck_assert_double_lt(weighted[1], 0.9 * plain[1]);
    for (int i = 0; i < 40; i++) {
        double *at = i % 2 ? &s.a[i * 7 % (r * s.in)] : &s.b[i * 7 % (s.out * r)];
        double old = *at;

        *at += i % 4 < 2 ? 1e-2 : -1e-2;
        ck_assert_double_gt(output_error(&s, r), weighted[1]);
        *at = old;
    }
}
END_TEST

/* Latent k of a x has second moment s_k, the largest first: both factors are of one size. */
START_TEST(test_latents_are_balanced)
{
    struct scene s;
    struct factor f;
    double last = INFINITY;
    int r = 6;

    make_scene(&s, 18, 15, 11);
    f = solve(&s, r, 1);
    for (int k = 0; k < r; k++) {
        double moment = 0, length = 0;

        for (int t = 0; t < TOKENS; t++) {
            double z = 0;

            for (int j = 0; j < s.in; j++)
                z += s.a[k * s.in + j] * s.x[t * s.in + j];
            moment += z * z / TOKENS;
        }
        for (int i = 0; i < s.out; i++)
            length += s.b[i * r + k] * s.b[i * r + k];
        ck_assert_double_le(fabs(moment - length), 1e-4 * f.largest);
        ck_assert_double_le(moment, last);
        last = moment;
        if (k == 0)
            ck_assert_double_le(fabs(moment - f.largest), 1e-4 * moment);
    }
}
END_TEST

START_TEST(test_no_moments)
{
    struct scene s;
    struct factor f = {.a = s.a, .b = s.b, .r = 2};
    double c[MOST * MOST] = {0};

    make_scene(&s, 6, 5, 13);
    c[0] = NAN;
    ck_assert_int_eq(factor_nearest(&f, s.w, 6, 5, c), ST_ENUMERIC);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("factor");
    TCase *c = tcase_create("factor");

    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_test(c, test_error_is_the_energy_lost);
    tcase_add_test(c, test_nearest_by_its_measure);
    tcase_add_test(c, test_latents_are_balanced);
    tcase_add_test(c, test_no_moments);
    return check_unit(suite);
}
