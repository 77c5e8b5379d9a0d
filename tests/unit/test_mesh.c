/* Ranks and their places, and how ranks are counted over nodes. */
#include "common/base/rng.h"
#include "common/parallel/mesh.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(ranks_and_places_are_one_to_one)
{
    for (int tp = 1; tp <= 4; tp++)
        for (int dp = 1; dp <= 4; dp++)
            for (int pp = 1; pp <= 4; pp++)
                for (int r = 0; r < tp * dp * pp; r++) {
                    struct mesh m = mesh_at(r, tp, dp, pp);

                    ck_assert(m.tp_rank < tp && m.dp_rank < dp && m.pp_rank < pp);
                    ck_assert_int_eq(mesh_rank(&m), r);
                    ck_assert_int_eq(m.tp_rank, r % tp); /* fastest */
                }
}
END_TEST

/* Ranks that mpirun deals round over two nodes: tensor parallelism of two stays within one. */
START_TEST(ranks_are_counted_node_by_node)
{
    static const int round[] = {0, 1, 0, 1}, block[] = {0, 0, 2, 2}, uneven[] = {0, 1, 1, 0, 1, 1};
    static const int want[] = {0, 2, 1, 3}, want_uneven[] = {0, 2, 3, 1, 4, 5};

    for (int r = 0; r < 4; r++) {
        struct mesh m = mesh_at(mesh_by_node(round, 4, r), 2, 2, 1);

        ck_assert_int_eq(mesh_by_node(round, 4, r), want[r]);
        ck_assert_int_eq(mesh_by_node(block, 4, r), r);
        ck_assert_int_eq(m.dp_rank, round[r]); /* a replica a node */
    }
    for (int r = 0; r < 6; r++)
        ck_assert_int_eq(mesh_by_node(uneven, 6, r), want_uneven[r]);
}
END_TEST

/* Any deal of ranks to nodes: each rank has a number of its own, a node's ranks stand together in
 * their order, and where every node has whole tensor-parallel groups none spans two. */
START_TEST(nodes_stay_together)
{
    struct rng_key key = rng_key(1, RNG_TEST, 0);
    uint64_t draws = 0;

    for (int k = 0; k < 500; k++) {
        int tp = 1 << rng_below(&key, draws++, 3), nodes = 1 + (int)rng_below(&key, draws++, 4);
        int each = tp * (1 + (int)rng_below(&key, draws++, 3)), n = nodes * each;
        int node[64], left[4], at[64], who[64] = {0};

        for (int i = 0; i < nodes; i++)
            left[i] = each;
        for (int r = 0; r < n; r++) {
            int i = (int)rng_below(&key, draws++, (uint64_t)nodes);

            while (!left[i])
                i = (i + 1) % nodes;
            left[i]--;
            node[r] = 7 * i + 3; /* numbers with gaps */
        }
        for (int r = 0; r < n; r++) {
            at[r] = mesh_by_node(node, n, r);
            ck_assert(at[r] >= 0 && at[r] < n && !who[at[r]]);
            who[at[r]] = r + 1;
        }
        for (int i = 1; i < n; i++) {
            int a = who[i - 1] - 1, b = who[i] - 1;

            ck_assert(node[a] < node[b] || (node[a] == node[b] && a < b));
            ck_assert(i % tp == 0 || node[a] == node[b]);
        }
    }
}
END_TEST

/* What is printed: ranks in the order of their places, bars where the node changes, groups that
 * span nodes. */
static struct mesh_nodes look(const int *node, int n, int tp, int by_node)
{
    int place[64];

    for (int r = 0; r < n; r++)
        place[r] = by_node ? mesh_by_node(node, n, r) : r;
    return mesh_look(node, place, n, tp);
}

START_TEST(the_look_of_nodes)
{
    static const int one[] = {0, 0, 0, 0}, round[] = {0, 1, 0, 1}, odd[] = {0, 0, 0, 3};
    int many[64];
    struct mesh_nodes m = look(one, 4, 2, 1);

    ck_assert_str_eq(m.ranks, "0 1 2 3");
    ck_assert(m.nodes == 1 && m.across == 0);
    m = look(round, 4, 2, 1);
    ck_assert_str_eq(m.ranks, "0 2 | 1 3");
    ck_assert(m.nodes == 2 && m.across == 0);
    m = look(round, 4, 2, 0);
    ck_assert_str_eq(m.ranks, "0 | 1 | 2 | 3");
    ck_assert(m.nodes == 2 && m.across == 2);
    m = look(odd, 4, 2, 1);
    ck_assert_str_eq(m.ranks, "0 1 2 | 3");
    ck_assert(m.nodes == 2 && m.across == 1);
    ck_assert(look(round, 4, 4, 1).across == 1);
    ck_assert(look(round, 4, 1, 0).across == 0);
    for (int r = 0; r < 64; r++)
        many[r] = r / 2;
    m = look(many, 64, 4, 1);
    ck_assert(m.nodes == 32 && m.across == 16);
    ck_assert_str_eq(m.ranks + strlen(m.ranks) - 4, " ...");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mesh");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, ranks_and_places_are_one_to_one);
    tcase_add_test(tc, ranks_are_counted_node_by_node);
    tcase_add_test(tc, nodes_stay_together);
    tcase_add_test(tc, the_look_of_nodes);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
