#include "common/parallel/schedule_play.h"

#include <stdlib.h>
#include <string.h>

/* One direction of the edge from a stage to its neighbour on the ring. */
struct edge {
    int sent, taken;     /* messages */
    int micro, run;      /* of the one on its way */
    double ready, freed; /* when it was sent; when the one before was taken */
};

struct player {
    struct schedule_shape shape;
    struct schedule_cost cost;
    struct schedule *stage;
    struct edge *forward, *backward; /* [stages], by sender */
    int *at;
    double *clock;
    struct schedule_played *out;
};

static int ring(const struct player *p, int stage)
{
    return (stage + p->shape.stages) % p->shape.stages;
}

static int run_of(const struct player *p, int stage, int chunk)
{
    return chunk * p->shape.stages + stage;
}

/* 0: the edge is still taken. */
static int post(struct player *p, struct edge *e, int stage, const struct instruction *in, int run)
{
    if (e->sent > e->taken)
        return 0;
    if (p->clock[stage] < e->freed)
        p->clock[stage] = e->freed;
    *e = (struct edge){.sent = e->sent + 1,
                       .taken = e->taken,
                       .micro = in->micro,
                       .run = run,
                       .ready = p->clock[stage]};
    return 1;
}

/* 0: nothing there yet; an error when it is not what this stage waits for. */
static enum status accept(struct player *p, struct edge *e, int stage, const struct instruction *in,
                          int run, int *done)
{
    *done = e->sent > e->taken;
    if (!*done)
        return ST_OK;
    if (e->micro != in->micro || e->run != run)
        return fail(ST_EINTERNAL,
                    "stage %d waits for micro-batch %d of run %d, but %d of run %d was sent", stage,
                    in->micro, run, e->micro, e->run);
    e->taken++;
    if (p->clock[stage] < e->ready)
        p->clock[stage] = e->ready;
    e->freed = p->clock[stage];
    return ST_OK;
}

static void compute(struct player *p, int stage, const struct instruction *in)
{
    double time = in->kind == INSTR_FORWARD           ? p->cost.forward
                  : in->kind == INSTR_BACKWARD_INPUT  ? p->cost.input
                  : in->kind == INSTR_BACKWARD_WEIGHT ? p->cost.weight
                                                      : p->cost.input + p->cost.weight;
    struct schedule_span *s = &p->out->span[stage][p->out->spans[stage]++];

    time /= p->shape.chunks;
    *s = (struct schedule_span){in->kind, in->micro, in->chunk, p->clock[stage], 0.0};
    p->clock[stage] += time;
    s->end = p->clock[stage];
    p->out->busy += time;
    if (s->end > p->out->end)
        p->out->end = s->end;
}

static enum status play_one(struct player *p, int stage, const struct instruction *in, int *done)
{
    int run = run_of(p, stage, in->chunk);

    *done = 1;
    switch (in->kind) {
    case INSTR_RECV_FORWARD:
        return accept(p, &p->forward[ring(p, stage - 1)], stage, in, run, done);
    case INSTR_SEND_FORWARD:
        *done = post(p, &p->forward[stage], stage, in, run + 1);
        return ST_OK;
    case INSTR_RECV_BACKWARD:
        return accept(p, &p->backward[ring(p, stage + 1)], stage, in, run, done);
    case INSTR_SEND_BACKWARD:
        *done = post(p, &p->backward[stage], stage, in, run - 1);
        return ST_OK;
    case INSTR_REDUCE:
    case INSTR_UPDATE:
        return ST_OK;
    default:
        compute(p, stage, in);
        return ST_OK;
    }
}

/* Runs a stage as far as it goes; *moved becomes 1 if that is any way. */
static enum status play_stage(struct player *p, int i, int *moved)
{
    int done = 1;

    while (done && p->at[i] < p->stage[i].n) {
        TRY(play_one(p, i, &p->stage[i].list[p->at[i]], &done));
        p->at[i] += done;
        *moved |= done;
    }
    return ST_OK;
}

/* Until nothing moves. */
static enum status play(struct player *p)
{
    int moved = 1;

    while (moved) {
        moved = 0;
        for (int i = 0; i < p->shape.stages; i++)
            TRY(play_stage(p, i, &moved));
    }
    for (int i = 0; i < p->shape.stages; i++)
        if (p->at[i] < p->stage[i].n)
            return fail(ST_EINTERNAL, "stage %d of %d waits for ever at instruction %d of %d", i,
                        p->shape.stages, p->at[i], p->stage[i].n);
    return ST_OK;
}

static enum status set_up(struct player *p)
{
    size_t n = (size_t)p->shape.stages;

    p->stage = calloc(n, sizeof *p->stage);
    p->forward = calloc(n, sizeof *p->forward);
    p->backward = calloc(n, sizeof *p->backward);
    p->at = calloc(n, sizeof *p->at);
    p->clock = calloc(n, sizeof *p->clock);
    p->out->span = calloc(n, sizeof(struct schedule_span *));
    p->out->spans = calloc(n, sizeof *p->out->spans);
    if (!p->stage || !p->forward || !p->backward || !p->at || !p->clock || !p->out->span ||
        !p->out->spans)
        return fail(ST_ENOMEM, "no memory to play a schedule of %zu stages", n);
    p->out->stages = p->shape.stages;
    for (int i = 0; i < p->shape.stages; i++) {
        struct schedule_shape s = p->shape;

        s.stage = i;
        TRY(schedule_open(&p->stage[i], &s));
        p->out->span[i] = calloc((size_t)p->stage[i].n, sizeof **p->out->span);
        if (!p->out->span[i])
            return fail(ST_ENOMEM, "no memory for %d passes", p->stage[i].n);
    }
    return ST_OK;
}

enum status schedule_play(struct schedule_played *out, const struct schedule_shape *shape,
                          struct schedule_cost cost)
{
    struct player p = {.shape = *shape, .cost = cost, .out = out};
    enum status st;

    memset(out, 0, sizeof *out);
    st = set_up(&p);
    if (st == ST_OK)
        st = play(&p);
    for (int i = 0; p.stage && i < shape->stages; i++)
        schedule_close(&p.stage[i]);
    free(p.stage);
    free(p.forward);
    free(p.backward);
    free(p.at);
    free(p.clock);
    if (st != ST_OK)
        schedule_played_close(out);
    return st;
}

void schedule_played_close(struct schedule_played *p)
{
    for (int i = 0; p->span && i < p->stages; i++)
        free(p->span[i]);
    free(p->span);
    free(p->spans);
    memset(p, 0, sizeof *p);
}

double schedule_bubble(const struct schedule_played *p)
{
    return 1.0 - p->busy / (p->end * p->stages);
}

static int letter(enum instruction_kind kind)
{
    return kind == INSTR_FORWARD ? 'F' : kind == INSTR_BACKWARD_WEIGHT ? 'W' : 'B';
}

/* Digits of the largest micro-batch's number. */
static int digits(const struct schedule_played *p)
{
    int most = 0, n = 1;

    for (int i = 0; i < p->spans[0]; i++)
        if (p->span[0][i].micro > most)
            most = p->span[0][i].micro;
    for (; most > 9; most /= 10)
        n++;
    return n;
}

/* The spans of one stage, a cell each `unit` of time. */
static void chart_stage(const struct schedule_played *p, int stage, int chunks, double unit,
                        FILE *out)
{
    int number = digits(p), k = 0;
    char chunk[16] = "";

    for (int cell = 0; (cell + 0.5) * unit < p->end; cell++) {
        const struct schedule_span *s = &p->span[stage][k];
        double t = (cell + 0.5) * unit;

        while (k < p->spans[stage] - 1 && s->end < t)
            s = &p->span[stage][++k];
        if (t < s->begin || t > s->end) {
            fprintf(out, "%*s|", 1 + number + (chunks > 1 ? 2 : 0), "");
            continue;
        }
        if (chunks > 1)
            snprintf(chunk, sizeof chunk, ".%d", s->chunk);
        fprintf(out, "%c%-*d%s|", letter(s->kind), number, s->micro, chunk);
    }
}

void schedule_chart(const struct schedule_played *p, int chunks, double unit, FILE *out)
{
    for (int i = 0; i < p->stages; i++) {
        fprintf(out, "stage %-3d|", i);
        chart_stage(p, i, chunks, unit, out);
        fputc('\n', out);
    }
}
