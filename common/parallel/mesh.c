#include "common/parallel/mesh.h"

struct mesh mesh_at(int rank, int tp, int dp, int pp)
{
    return (struct mesh){.tp = tp,
                         .dp = dp,
                         .pp = pp,
                         .tp_rank = rank % tp,
                         .dp_rank = rank / tp % dp,
                         .pp_rank = rank / tp / dp};
}

int mesh_by_node(const int *node, int n, int rank)
{
    int before = 0;

    for (int r = 0; r < n; r++)
        before += node[r] < node[rank] || (node[r] == node[rank] && r < rank);
    return before;
}

int mesh_rank(const struct mesh *m)
{
    return (m->pp_rank * m->dp + m->dp_rank) * m->tp + m->tp_rank;
}
