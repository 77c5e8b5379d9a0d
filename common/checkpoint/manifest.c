/* The table itself: its order, what its pieces make together. */
#include "common/checkpoint/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *manifest_type_name(enum dtype dt)
{
    return dt == DT_F64 ? "F64" : dt == DT_BF16 ? "BF16" : "F32";
}

enum dtype manifest_type_find(const char *name)
{
    static const enum dtype types[] = {DT_F32, DT_F64, DT_BF16};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(name, manifest_type_name(types[i])))
            return types[i];
    return DT_COUNT;
}

static int by_place(const void *a, const void *b)
{
    const struct manifest_piece *x = a, *y = b;
    int names = strcmp(x->tensor, y->tensor);

    if (names || x->kind != y->kind)
        return names ? names : x->kind < y->kind ? -1 : 1;
    if (x->area.row != y->area.row)
        return x->area.row < y->area.row ? -1 : 1;
    return x->area.col < y->area.col ? -1 : x->area.col > y->area.col;
}

void manifest_sort(struct manifest *m)
{
    if (m->pieces)
        qsort(m->piece, (size_t)m->pieces, sizeof *m->piece, by_place);
}

static int meet(const struct part_area *a, const struct part_area *b)
{
    return a->row < b->row + b->rows && b->row < a->row + a->rows && a->col < b->col + b->cols &&
           b->col < a->col + a->cols;
}

/* The pieces [0, n) of one tensor and kind: they cover it, none twice. */
static enum status check_cover(const struct manifest *m, const struct manifest_piece *p, int n)
{
    int64_t area = 0;

    for (int i = 0; i < n; i++) {
        area += p[i].area.rows * p[i].area.cols;
        for (int j = 0; j < i; j++)
            if (meet(&p[i].area, &p[j].area))
                return fail(ST_EFORMAT, "%s: tensor %s (%s): two pieces hold the same place",
                            m->path, p->tensor, part_kind_name((enum part_kind)p->kind));
    }
    if (area != p->rows * p->cols)
        return fail(
            ST_EFORMAT,
            "%s: tensor %s (%s): pieces for %" PRId64 " of %" PRId64 " values: one is missing",
            m->path, p->tensor, part_kind_name((enum part_kind)p->kind), area, p->rows * p->cols);
    return ST_OK;
}

static int same_group(const struct manifest_piece *a, const struct manifest_piece *b)
{
    return a->kind == b->kind && !strcmp(a->tensor, b->tensor);
}

enum status manifest_check_covers(const struct manifest *m)
{
    int n;

    for (int i = 0; i < m->pieces; i += n) {
        for (n = 1; i + n < m->pieces && same_group(&m->piece[i], &m->piece[i + n]); n++)
            ;
        TRY(check_cover(m, &m->piece[i], n));
    }
    return ST_OK;
}

int manifest_find(const struct manifest_piece **first, const struct manifest *m, const char *tensor,
                  enum part_kind kind)
{
    int lo = 0, hi = m->pieces, n = 0;

    while (lo < hi) { /* the first that is not before (tensor, kind) */
        int mid = lo + (hi - lo) / 2, names = strcmp(m->piece[mid].tensor, tensor);

        if (names < 0 || (!names && m->piece[mid].kind < (int32_t)kind))
            lo = mid + 1;
        else
            hi = mid;
    }
    *first = &m->piece[lo];
    while (lo + n < m->pieces && m->piece[lo + n].kind == (int32_t)kind &&
           !strcmp(m->piece[lo + n].tensor, tensor))
        n++;
    return n;
}

uint64_t manifest_bytes(const struct manifest *m)
{
    uint64_t n = 0;

    for (int i = 0; i < m->files; i++)
        n += m->file[i].bytes;
    return n;
}

void manifest_free(struct manifest *m)
{
    free(m->path);
    free(m->file);
    free(m->piece);
    m->path = NULL;
    m->file = NULL;
    m->piece = NULL;
}
