/* Products that the GPU backend puts together: what is put together, what must not be, and that
 * the result is the same. Needs no GPU. */
#include "gpu/plan.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096, MEMBERS = 3 };

static float pool[ROOM];

static struct tensor at(int64_t begin, int64_t rows, int64_t cols, int64_t stride)
{
    struct tensor t = tensor_view(pool + begin, DT_F32, rows, cols);

    ck_assert_int_le(begin + (rows - 1) * stride + cols, ROOM);
    t.stride = stride;
    return t;
}

/* What the library would do for p. */
static void carry_out(const struct gpu_product *p)
{
    for (int64_t s = 0; s < p->batch; s++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                const float *a = (const float *)p->a + s * p->a_step;
                const float *b = (const float *)p->b + s * p->b_step;
                const float *c = (const float *)p->c;
                float *y = (float *)p->y + s * p->y_step + i * p->y_stride + j;
                float sum = p->accumulate ? *y : 0.0f;

                if (c)
                    sum += c[s * p->c_step + i * p->c_stride + j];
                for (int64_t l = 0; l < p->k; l++)
                    sum += a[p->a_turned ? l * p->a_stride + i : i * p->a_stride + l] *
                           b[p->b_turned ? j * p->b_stride + l : l * p->b_stride + j];
                *y = sum;
            }
}

/* Small whole numbers: sums are exact in any order. */
static void fill(void)
{
    for (int i = 0; i < ROOM; i++)
        pool[i] = (float)((i * 7919 + 13) % 7 - 3);
}

/* Carries out list[0..n) one by one and then in groups; the memory must end up the same. Returns
 * the number of groups. */
static int compare(const struct gpu_product *list, int n)
{
    static float want[ROOM];
    int groups = 0;

    fill();
    for (int i = 0; i < n; i++)
        carry_out(&list[i]);
    memcpy(want, pool, sizeof want);
    fill();
    for (int done = 0; done < n; groups++) {
        struct gpu_product p;

        done += gpu_product_group(&p, list + done, n - done);
        ck_assert_int_le(done, n);
        carry_out(&p);
    }
    ck_assert_int_eq(memcmp(want, pool, sizeof want), 0);
    return groups;
}

/* Three down-projections of one input: A one after the other, latents side by side. */
START_TEST(same_input_becomes_one_product)
{
    static const int64_t width[MEMBERS] = {4, 4, 2};
    struct gpu_product list[MEMBERS];
    int64_t begin = 0;

    for (int i = 0; i < MEMBERS; i++) {
        struct gemm g = {.y = at(begin, 5, width[i], 10),
                         .a = at(1000, 5, 6, 6),
                         .b = at(2000 + begin * 6, width[i], 6, 6),
                         .kind = GEMM_NT};

        list[i] = gpu_product_of_gemm(&g, 0);
        begin += width[i];
    }
    ck_assert_int_eq(compare(list, MEMBERS), 1);
    list[1].b = (const float *)list[1].b + 1; /* no longer adjacent, nor at an equal distance */
    ck_assert_int_gt(compare(list, MEMBERS), 1);
}
END_TEST

/* Three up-projections: slices of the latents, equal distances between the B. */
START_TEST(equal_distances_become_a_batch)
{
    struct gpu_product list[MEMBERS], p;

    for (int i = 0; i < MEMBERS; i++) {
        struct tensor resid = at(600 + 50 * i, 5, 7, 7);
        struct gemm g = {.y = at(100 * i, 5, 7, 7),
                         .a = at(1000 + 4 * i, 5, 4, 12),
                         .b = at(2000 + 64 * i, 7, 4, 4),
                         .kind = GEMM_NT,
                         .c = &resid};

        list[i] = gpu_product_of_gemm(&g, 0);
    }
    ck_assert_int_eq(gpu_product_group(&p, list, MEMBERS), MEMBERS);
    ck_assert_int_eq(p.batch, MEMBERS);
    ck_assert_int_eq(compare(list, MEMBERS), 1);
    list[2].y = (float *)list[2].y + 1;
    ck_assert_int_eq(compare(list, MEMBERS), 2);
}
END_TEST

/* Results that would overlap in a batch are left alone. */
START_TEST(overlapping_results_are_not_batched)
{
    struct gpu_product list[2], p;

    for (int i = 0; i < 2; i++) {
        struct gemm g = {.y = at(4 * i, 5, 7, 7), .a = at(1000, 5, 4, 4), .b = at(2000, 4, 7, 7)};

        list[i] = gpu_product_of_gemm(&g, 0);
    }
    ck_assert_int_eq(gpu_product_group(&p, list, 2), 1);
}
END_TEST

/* dA of q, k, v: one input, gradients side by side, dA one after the other. */
START_TEST(weight_gradients_of_one_input_become_one)
{
    struct gpu_product list[MEMBERS];

    for (int i = 0; i < MEMBERS; i++) {
        struct weight_grad w = {
            .dw = at(4 * 6 * i, 4, 6, 6), .dy = at(1000 + 4 * i, 9, 4, 12), .x = at(2000, 9, 6, 8)};

        list[i] = gpu_product_of_grad(&w, 1);
    }
    ck_assert_int_eq(compare(list, MEMBERS), 1);
}
END_TEST

/* Pairs that lead back to one input: slices of u, A one after the other. */
START_TEST(pairs_in_a_chain_become_one)
{
    static const int64_t inner[MEMBERS] = {3, 5, 2};
    static float want[ROOM];
    struct gemm g = {.y = at(0, 5, 6, 6), .kind = GEMM_NN, .more = 2};
    struct gpu_product p;
    int64_t begin = 0;

    for (int i = 0; i < MEMBERS; i++) {
        struct gemm_part part = {.a = at(1000 + begin, 5, inner[i], 10),
                                 .b = at(2000 + begin * 6, inner[i], 6, 6)};

        if (i == 0)
            g.a = part.a, g.b = part.b;
        else
            g.part[i - 1] = part;
        begin += inner[i];
    }
    fill();
    for (int i = 0; i < MEMBERS; i++) {
        p = gpu_product_of_gemm(&g, i);
        carry_out(&p);
    }
    memcpy(want, pool, sizeof want);
    fill();
    ck_assert(gpu_product_chain(&p, &g));
    ck_assert_int_eq(p.k, 10);
    carry_out(&p);
    ck_assert_int_eq(memcmp(want, pool, sizeof want), 0);
    g.part[1].b.data = (float *)g.part[1].b.data + 6;
    ck_assert(!gpu_product_chain(&p, &g));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu plan");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, same_input_becomes_one_product);
    tcase_add_test(tc, equal_distances_become_a_batch);
    tcase_add_test(tc, overlapping_results_are_not_batched);
    tcase_add_test(tc, weight_gradients_of_one_input_become_one);
    tcase_add_test(tc, pairs_in_a_chain_become_one);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
