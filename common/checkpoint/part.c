#include "common/checkpoint/part.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[PART_KINDS] = {"weight", "master", "m", "v"};

const char *part_kind_name(enum part_kind kind)
{
    return names[kind];
}

enum part_kind part_kind_find(const char *name)
{
    int i = 0;

    while (i < PART_KINDS && strcmp(names[i], name) != 0)
        i++;
    return (enum part_kind)i;
}

const struct tensor *part_memory(const struct param *row, enum part_kind kind)
{
    switch (kind) {
    case PART_WEIGHT:
        return &row->w;
    case PART_MASTER:
        return &row->master;
    case PART_M:
        return &row->m;
    default:
        return &row->v;
    }
}

int part_exists(const struct params *p, const struct param *row, enum part_kind kind)
{
    if (kind == PART_WEIGHT || !p->pieces)
        return part_memory(row, kind)->data != NULL;
    return kind != PART_MASTER || p->masters;
}

const struct tensor *part_of_shard(const struct grain *piece, enum part_kind kind)
{
    return kind == PART_MASTER ? &piece->master : kind == PART_M ? &piece->m : &piece->v;
}

static int32_t local_grains(const struct params *p, const struct param *row)
{
    return row->cut == CUT_NONE ? 1 : row->grains / p->tp_size;
}

struct part_area part_grain_area(const struct params *p, const struct param *row, int32_t grain)
{
    int32_t n = local_grains(p, row);
    struct part_area a;

    param_shard(p, row, &a.rows, &a.cols, &a.row, &a.col);
    if (row->cut == CUT_ROWS) {
        a.rows /= n;
        a.row += grain * a.rows;
    } else if (row->cut == CUT_COLS) {
        a.cols /= n;
        a.col += grain * a.cols;
    }
    if (a.row + a.rows > row->real_rows)
        a.rows = a.row < row->real_rows ? row->real_rows - a.row : 0;
    return a;
}

/* ---- owners ---- */

/* What each replica has been given so far. */
struct shares {
    int64_t *values; /* [replicas] */
    int replicas, whole;
};

/* The replica with the least so far takes the next; all ranks find the same one. */
static int deal(struct shares *s, int64_t values)
{
    int least = 0;

    for (int i = 1; i < s->replicas; i++)
        if (s->values[i] < s->values[least])
            least = i;
    s->values[least] += values;
    return least;
}

/* Nonzero when this rank owns what was dealt: of what every TP rank holds whole, they take
 * turns. */
static int owns(struct shares *s, const struct params *p, const struct param *row, int replica,
                int dealt)
{
    int mine = dealt == replica;

    return row->cut == CUT_NONE ? (s->whole++ % p->tp_size == p->tp_rank) && mine : mine;
}

static void add(struct parts *out, const struct params *p, const struct param *row, int32_t grain)
{
    struct part_area a = part_grain_area(p, row, grain);

    for (int kind = 0; kind < PART_KINDS; kind++) {
        const struct grain *shard = p->pieces && kind != PART_WEIGHT
                                        ? grains_find(p->pieces, (int)(row - p->item), grain)
                                        : NULL;
        const struct tensor *t = shard ? part_of_shard(shard, (enum part_kind)kind)
                                       : part_memory(row, (enum part_kind)kind);
        struct tensor memory;

        if (!t->data)
            continue;
        memory = shard ? *t : param_grain(row, t, grain);
        out->item[out->n++] = (struct part){
            .param = row,
            .kind = (enum part_kind)kind,
            .grain = row->cut == CUT_NONE ? 0 : p->tp_rank * local_grains(p, row) + grain,
            .memory = tensor_rows(&memory, 0, a.rows, 1),
            .home = t,
            .area = a};
    }
}

enum status parts_list(struct parts *out, const struct params *p, struct part_owner at)
{
    struct shares s = {.replicas = at.replicas};
    size_t most = 0;

    for (int i = 0; i < p->n; i++)
        most += (size_t)local_grains(p, &p->item[i]) * PART_KINDS;
    out->n = 0;
    out->item = calloc(most + 1, sizeof *out->item);
    s.values = calloc((size_t)at.replicas, sizeof *s.values);
    if (!out->item || !s.values) {
        free(s.values);
        parts_free(out);
        return fail(ST_ENOMEM, "no memory for a table of %zu parts", most);
    }
    for (int i = 0; i < p->n; i++)
        for (int32_t g = 0; g < local_grains(p, &p->item[i]); g++) {
            struct param *row = &p->item[i];
            int64_t values = tensor_count(&row->w) / local_grains(p, row);
            int dealt = p->pieces ? grains_owner(p->pieces, i, g) : deal(&s, values);

            if (!row->copy && owns(&s, p, row, at.replica, dealt) &&
                part_grain_area(p, row, g).rows)
                add(out, p, row, g);
        }
    free(s.values);
    return ST_OK;
}

void parts_free(struct parts *out)
{
    free(out->item);
    *out = (struct parts){0};
}
