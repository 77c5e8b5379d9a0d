/* Where a rank stands: tensor parallelism fastest, then replicas, then stages of the pipeline, so
 * that the ranks which talk most are neighbours and the pipeline, which sends least, spans nodes:
 *
 *     rank = (stage * dp + replica) * tp + tp_rank
 */
#ifndef COMMON_PARALLEL_MESH_H
#define COMMON_PARALLEL_MESH_H

#include <stddef.h>

struct mesh {
    int tp, dp, pp;                /* sizes        */
    int tp_rank, dp_rank, pp_rank; /* of this rank */
};

/* The place of `rank`, 0 .. tp dp pp - 1. */
struct mesh mesh_at(int rank, int tp, int dp, int pp);

/* The number of `rank` among n ranks counted node by node, each node's in their order. node[r]: a
 * number that r shares with the ranks of its node alone; nodes come in the order of these numbers.
 * Ranks dealt round over nodes would else put a tensor-parallel group on several. */
int mesh_by_node(const int *node, int n, int rank);

/* What n ranks look like on their nodes. */
struct mesh_nodes {
    int nodes;
    int across;     /* tensor-parallel groups with ranks of several nodes */
    char ranks[96]; /* in the order of their places, a bar where the node changes: "0 2 | 1 3";
                     * "..." at the end when there are more */
};

/* Of rank r: node[r], as above, and place[r], where it stands. */
struct mesh_nodes mesh_look(const int *node, const int *place, int n, int tp);

/* The rank that stands there. */
int mesh_rank(const struct mesh *m);

#endif
