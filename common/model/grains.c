#include "common/model/grains.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_ALIGN = 64 }; /* elements: where a pair may begin in a share */

/* ---- listing ---- */

static int32_t local_grains(const struct params *p, const struct param *row)
{
    return row->cut == CUT_NONE ? 1 : row->grains / p->tp_size;
}

static int32_t most_grains(const struct params *p)
{
    int32_t most = 0;

    for (int i = 0; i < p->n; i++)
        if (p->item[i].cut != CUT_NONE && local_grains(p, &p->item[i]) > most)
            most = local_grains(p, &p->item[i]);
    return most;
}

static void add(struct grains *s, const struct params *p, int item, int32_t grain, int64_t entry)
{
    const struct param *row = &p->item[item];
    struct tensor t = param_view(p, row, NULL, p->wide);
    int64_t n = local_grains(p, row);

    s->item[s->n++] = (struct grain){.item = item,
                                     .grain = grain,
                                     .bucket = s->bucket_of[item],
                                     .rows = row->cut == CUT_ROWS ? t.rows / n : t.rows,
                                     .cols = row->cut == CUT_COLS ? t.cols / n : t.cols,
                                     .entry = entry + row->entry};
}

static void list(struct grains *s, const struct params *p)
{
    int32_t grains = most_grains(p);

    for (int32_t g = 0; g < grains; g++)
        for (int i = 0; i < p->n; i++)
            if (p->item[i].cut != CUT_NONE && g < local_grains(p, &p->item[i]))
                add(s, p, i, g, (int64_t)g * p->all_cut);
    for (int i = 0; i < p->n; i++)
        if (p->item[i].cut == CUT_NONE)
            add(s, p, i, 0, (int64_t)grains * p->all_cut);
}

/* ---- dealing ---- */

static void fill_buckets(struct grains *s, const struct params *p, size_t bucket_bytes)
{
    size_t bytes = 0;

    s->buckets = 1;
    for (int i = 0; i < p->n; i++) {
        struct tensor t = param_view(p, &p->item[i], NULL, p->wide);

        if (i > 0 && p->item[i].layer != p->item[i - 1].layer && bytes >= bucket_bytes) {
            s->buckets++;
            bytes = 0;
        }
        bytes += (size_t)tensor_count(&t) * dtype_size(p->wide);
        s->bucket_of[i] = s->buckets - 1;
    }
}

static int64_t padded(const struct grain *piece)
{
    return (piece->rows * piece->cols + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
}

/* Buckets in order; within one the largest first, equal ones as they are listed. */
static int before(const void *a, const void *b)
{
    const struct grain *x = *(const struct grain *const *)a, *y = *(const struct grain *const *)b;

    if (x->bucket != y->bucket)
        return x->bucket < y->bucket ? -1 : 1;
    if (padded(x) != padded(y))
        return padded(x) > padded(y) ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* has[r]: of the bucket; all[r]: of the buckets before as well, which breaks ties. */
static int least(const int64_t *has, const int64_t *all, int replicas)
{
    int best = 0;

    for (int r = 1; r < replicas; r++)
        if (has[r] < has[best] || (has[r] == has[best] && all[r] < all[best]))
            best = r;
    return best;
}

/* The piece's place behind what its owner has; *share grows with the largest. */
static int64_t append(int64_t *has, int64_t *share, const struct grain *piece)
{
    int64_t at = has[piece->owner];

    has[piece->owner] += padded(piece);
    if (has[piece->owner] > *share)
        *share = has[piece->owner];
    return at;
}

/* has: elements of each replica in this bucket, in this bucket's g2, in all buckets so far. */
static void deal(struct grains *s, const struct params *p, struct grain **sorted, int64_t *has)
{
    int64_t *has2 = has + s->dp_size, *all = has2 + s->dp_size;

    for (int i = 0; i < s->n; i++) {
        struct grain *piece = sorted[i];

        if (i > 0 && piece->bucket != sorted[i - 1]->bucket)
            memset(has, 0, 2 * (size_t)s->dp_size * sizeof *has);
        piece->owner = least(has, all, s->dp_size);
        piece->at = append(has, &s->share[piece->bucket], piece);
        if (p->item[piece->item].twice)
            piece->at2 = append(has2, &s->share2[piece->bucket], piece);
        all[piece->owner] += padded(piece);
    }
}

static enum status deal_all(struct grains *s, const struct params *p)
{
    struct grain **sorted = calloc((size_t)s->n, sizeof *sorted);
    int64_t *has = calloc(3 * (size_t)s->dp_size, sizeof *has);
    enum status st = ST_OK;

    s->share = calloc((size_t)s->buckets, sizeof *s->share);
    s->share2 = calloc((size_t)s->buckets, sizeof *s->share2);
    s->sum = calloc((size_t)s->buckets, sizeof *s->sum);
    s->sum2 = calloc((size_t)s->buckets, sizeof *s->sum2);
    if (!sorted || !has || !s->share || !s->share2 || !s->sum || !s->sum2) {
        st = fail(ST_ENOMEM, "no memory to deal %d pieces of tensors to %d replicas", s->n,
                  s->dp_size);
    } else {
        for (int i = 0; i < s->n; i++)
            sorted[i] = &s->item[i];
        qsort(sorted, (size_t)s->n, sizeof(struct grain *), before);
        deal(s, p, sorted, has);
    }
    free(sorted);
    free(has);
    return st;
}

enum status grains_open(struct grains *s, const struct params *p, int dp_rank, int dp_size,
                        int sharded, size_t bucket_bytes)
{
    size_t most = (size_t)p->n * (size_t)(most_grains(p) + 1);
    enum status st;

    *s = (struct grains){.dp_rank = dp_rank, .dp_size = dp_size, .sharded = sharded};
    s->item = calloc(most, sizeof *s->item);
    s->bucket_of = calloc((size_t)p->n, sizeof *s->bucket_of);
    if (!s->item || !s->bucket_of) {
        grains_close(s);
        return fail(ST_ENOMEM, "no memory for a table of %zu pieces of tensors", most);
    }
    fill_buckets(s, p, bucket_bytes);
    list(s, p);
    st = deal_all(s, p);
    if (st != ST_OK)
        grains_close(s);
    return st;
}

void grains_close(struct grains *s)
{
    free(s->item);
    free(s->bucket_of);
    free(s->share);
    free(s->share2);
    free(s->sum);
    free(s->sum2);
    *s = (struct grains){0};
}

const struct grain *grains_find(const struct grains *s, int item, int32_t grain)
{
    for (int i = 0; i < s->n; i++)
        if (s->item[i].item == item && s->item[i].grain == grain)
            return &s->item[i];
    return NULL;
}

int grains_owner(const struct grains *s, int item, int32_t grain)
{
    const struct grain *piece = grains_find(s, item, grain);

    return piece ? piece->owner : -1;
}

int grains_mine(const struct grains *s, const struct grain *piece)
{
    return !s->sharded || piece->owner == s->dp_rank;
}

/* ---- memory ---- */

static enum status take(struct arena *a, struct tensor *t, const struct grain *piece, enum dtype dt)
{
    void *p;

    TRY(arena_take(a, &p, (size_t)(piece->rows * piece->cols) * dtype_size(dt)));
    *t = tensor_view(p, dt, piece->rows, piece->cols);
    return ST_OK;
}

static struct tensor grain_of(const struct param *row, const struct tensor *t, int32_t grain)
{
    return t->data ? param_grain(row, t, grain) : *t;
}

/* The share of a rank that keeps only what it owns, where ranks do. */
static enum status take_state(struct grains *s, struct grain *piece, const struct params *p,
                              struct arena *state)
{
    if (!s->sharded || !grains_mine(s, piece))
        return ST_OK;
    if (p->masters)
        TRY(take(state, &piece->master, piece, p->wide));
    TRY(take(state, &piece->m, piece, p->moments));
    return take(state, &piece->v, piece, p->moments);
}

enum status grains_carve(struct grains *s, const struct params *p, struct arena *state)
{
    for (int i = 0; i < s->n; i++) {
        struct grain *piece = &s->item[i];
        const struct param *row = &p->item[piece->item];

        piece->w = grain_of(row, &row->w, piece->grain);
        if (!s->sharded) {
            piece->master = grain_of(row, &row->master, piece->grain);
            piece->m = grain_of(row, &row->m, piece->grain);
            piece->v = grain_of(row, &row->v, piece->grain);
        }
        TRY(take_state(s, piece, p, state));
    }
    return ST_OK;
}

/* The sums of bucket b that this rank owns lie together: what a reduce-scatter fills. */
static enum status carve_share(struct grains *s, const struct params *p, struct arena *grads, int b)
{
    size_t es = dtype_size(p->wide);

    TRY(arena_take(grads, &s->sum[b], (size_t)s->share[b] * es));
    if (s->share2[b])
        TRY(arena_take(grads, &s->sum2[b], (size_t)s->share2[b] * es));
    for (int i = 0; i < s->n; i++) {
        struct grain *piece = &s->item[i];

        if (piece->bucket != b || !grains_mine(s, piece))
            continue;
        piece->g = tensor_view((char *)s->sum[b] + (size_t)piece->at * es, p->wide, piece->rows,
                               piece->cols);
        if (p->item[piece->item].twice)
            piece->g2 = tensor_view((char *)s->sum2[b] + (size_t)piece->at2 * es, p->wide,
                                    piece->rows, piece->cols);
    }
    return ST_OK;
}

enum status grains_carve_grads(struct grains *s, const struct params *p, struct arena *grads)
{
    for (int i = 0; !s->sharded && i < s->n; i++) {
        struct grain *piece = &s->item[i];
        const struct param *row = &p->item[piece->item];

        piece->g = grain_of(row, &row->g, piece->grain);
        piece->g2 = grain_of(row, &row->g2, piece->grain);
    }
    for (int b = 0; s->sharded && b < s->buckets; b++)
        TRY(carve_share(s, p, grads, b));
    return ST_OK;
}

/* ---- values ---- */

enum status grains_set_masters(const struct grains *s, const struct params *p,
                               const struct param *row, struct device *dev, const void *values)
{
    struct tensor all = param_view(p, row, NULL, p->wide);
    size_t es = dtype_size(p->wide);
    char *packed = malloc((size_t)tensor_count(&all) * es);
    enum status st = packed ? ST_OK : fail(ST_ENOMEM, "no memory to set %s", row->name);

    for (int i = 0; st == ST_OK && i < s->n; i++) {
        const struct grain *piece = &s->item[i];
        int64_t row0 = row->cut == CUT_ROWS ? piece->grain * piece->rows : 0;
        int64_t col0 = row->cut == CUT_COLS ? piece->grain * piece->cols : 0;

        if (&p->item[piece->item] != row || !piece->master.data)
            continue;
        for (int64_t r = 0; r < piece->rows; r++)
            memcpy(packed + (size_t)(r * piece->cols) * es,
                   (const char *)values + (size_t)((row0 + r) * all.cols + col0) * es,
                   (size_t)piece->cols * es);
        st = device_upload(dev, piece->master.data, packed,
                           (size_t)(piece->rows * piece->cols) * es);
    }
    free(packed);
    return st;
}

enum status grains_clear_moments(const struct grains *s, struct device *dev)
{
    for (int i = 0; i < s->n; i++) {
        const struct grain *piece = &s->item[i];
        size_t bytes = (size_t)tensor_count(&piece->m) * dtype_size(piece->m.dtype);

        if (!piece->m.data)
            continue;
        TRY(device_zero(dev, piece->m.data, bytes));
        TRY(device_zero(dev, piece->v.data, bytes));
    }
    return ST_OK;
}
