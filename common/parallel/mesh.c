#include "common/parallel/mesh.h"

#include <stdio.h>

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

/* The rank that stands at a place. */
static int rank_at(const int *place, int n, int at)
{
    int r = 0;

    while (r < n - 1 && place[r] != at)
        r++;
    return r;
}

struct mesh_nodes mesh_look(const int *node, const int *place, int n, int tp)
{
    struct mesh_nodes m = {0};
    size_t used = 0;
    int last = -1, apart = 0;

    for (int at = 0; at < n; at++) {
        int r = rank_at(place, n, at), first = 1;

        for (int i = 0; i < r; i++)
            first &= node[i] != node[r];
        m.nodes += first;
        apart = at % tp && (apart || node[r] != last);
        m.across += apart && at % tp == tp - 1;
        if (used + 24 < sizeof m.ranks)
            used += (size_t)snprintf(m.ranks + used, sizeof m.ranks - used, "%s%s%d", at ? " " : "",
                                     at && node[r] != last ? "| " : "", r);
        else if (used + 4 < sizeof m.ranks && m.ranks[used - 1] != '.')
            used += (size_t)snprintf(m.ranks + used, sizeof m.ranks - used, " ...");
        last = node[r];
    }
    return m;
}

int mesh_rank(const struct mesh *m)
{
    return (m->pp_rank * m->dp + m->dp_rank) * m->tp + m->tp_rank;
}
