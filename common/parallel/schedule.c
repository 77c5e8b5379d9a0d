#include "common/parallel/schedule.h"

#include "common/parallel/schedule_order.h"

#include <stdlib.h>

enum { PER_PASS = 3, PASSES = 3 }; /* receive, pass, send; forward, input, weight */

int schedule_first(const struct schedule_shape *s, int chunk)
{
    return s->stage == 0 && chunk == 0;
}

int schedule_last(const struct schedule_shape *s, int chunk)
{
    return s->stage == s->stages - 1 && chunk == s->chunks - 1;
}

static enum status check(const struct schedule_shape *s)
{
    int interleaved = s->order == ORDER_INTERLEAVED;

    FAIL_IF(s->stages < 1 || s->stage < 0 || s->stage >= s->stages || s->micro_batches < 1,
            ST_EINTERNAL);
    FAIL_IF(s->chunks < 1 || (s->chunks > 1 && !interleaved), ST_EINTERNAL);
    FAIL_IF(interleaved && (s->stages < 2 || s->micro_batches % s->stages), ST_EINTERNAL);
    return ST_OK;
}

static enum status take(struct schedule *s, const struct schedule_shape *shape, int room)
{
    *s = (struct schedule){.list = calloc((size_t)room, sizeof *s->list),
                           .slots = calloc((size_t)shape->chunks, sizeof *s->slots)};
    if (s->list && s->slots)
        return ST_OK;
    schedule_close(s);
    return fail(ST_ENOMEM, "no memory for a schedule of %d instructions", room);
}

static void put(struct schedule *s, enum instruction_kind kind, const struct pass *p, int slot)
{
    s->list[s->n++] =
        (struct instruction){.kind = kind, .micro = p->micro, .chunk = p->chunk, .slot = slot};
}

static void put_forward(struct schedule *s, const struct schedule_shape *shape,
                        const struct pass *p, int slot)
{
    if (!schedule_first(shape, p->chunk))
        put(s, INSTR_RECV_FORWARD, p, slot);
    put(s, INSTR_FORWARD, p, slot);
    if (!schedule_last(shape, p->chunk))
        put(s, INSTR_SEND_FORWARD, p, slot);
}

static void put_backward(struct schedule *s, const struct schedule_shape *shape,
                         const struct pass *p, int slot)
{
    enum instruction_kind kind = p->kind == PASS_INPUT ? INSTR_BACKWARD_INPUT : INSTR_BACKWARD;

    if (!schedule_last(shape, p->chunk))
        put(s, INSTR_RECV_BACKWARD, p, slot);
    put(s, kind, p, slot);
    if (!schedule_first(shape, p->chunk))
        put(s, INSTR_SEND_BACKWARD, p, slot);
}

/* Which micro-batch holds which slot. */
struct slots {
    int *held; /* [chunks][micro_batches]: micro-batch + 1, or 0 */
    int micro_batches;
};

static int find(const struct slots *t, int chunk, int holder)
{
    const int *held = t->held + chunk * t->micro_batches;
    int slot = 0;

    while (held[slot] != holder)
        slot++;
    return slot;
}

static void fill(struct schedule *s, const struct schedule_shape *shape, const struct pass *pass,
                 int passes, struct slots *t)
{
    for (int i = 0; i < passes; i++) {
        const struct pass *p = &pass[i];
        int forward = p->kind == PASS_FORWARD;
        int slot = find(t, p->chunk, forward ? 0 : p->micro + 1);
        int *held = &t->held[p->chunk * t->micro_batches + slot];

        if (forward)
            put_forward(s, shape, p, slot);
        else if (p->kind == PASS_WEIGHT)
            put(s, INSTR_BACKWARD_WEIGHT, p, slot);
        else
            put_backward(s, shape, p, slot);
        *held = p->kind == PASS_WEIGHT || p->kind == PASS_BACKWARD ? 0 : p->micro + 1;
        if (slot >= s->slots[p->chunk])
            s->slots[p->chunk] = slot + 1;
    }
}

enum status schedule_open(struct schedule *s, const struct schedule_shape *shape)
{
    int total = shape->micro_batches * shape->chunks;
    const struct pass none = {PASS_WEIGHT, 0, 0};
    struct slots t = {.micro_batches = shape->micro_batches};
    struct pass *pass;

    TRY(check(shape));
    TRY(take(s, shape, total * PER_PASS * PASSES + 2));
    pass = calloc((size_t)total * PASSES, sizeof *pass);
    t.held = calloc((size_t)total, sizeof *t.held);
    if (pass && t.held) {
        fill(s, shape, pass, schedule_passes(pass, shape), &t);
        put(s, INSTR_REDUCE, &none, 0);
        put(s, INSTR_UPDATE, &none, 0);
    }
    free(pass);
    free(t.held);
    if (s->n)
        return ST_OK;
    schedule_close(s);
    return fail(ST_ENOMEM, "no memory for a schedule of %d micro-batches", shape->micro_batches);
}

enum status schedule_open_forward(struct schedule *s, const struct schedule_shape *shape)
{
    int total = shape->micro_batches * shape->chunks;

    TRY(check(shape));
    TRY(take(s, shape, total * PER_PASS));
    for (int k = 0; k < total; k++) {
        struct pass p = schedule_forward_pass(shape, k);

        put_forward(s, shape, &p, 0);
    }
    for (int c = 0; c < shape->chunks; c++)
        s->slots[c] = 1;
    return ST_OK;
}

void schedule_close(struct schedule *s)
{
    free(s->list);
    free(s->slots);
    *s = (struct schedule){0};
}
