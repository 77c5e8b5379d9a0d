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

int mesh_rank(const struct mesh *m)
{
    return (m->pp_rank * m->dp + m->dp_rank) * m->tp + m->tp_rank;
}
