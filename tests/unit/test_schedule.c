/* Pipeline orders: each pass once and in order, sends meet their receives, nobody waits for ever,
 * activations and bubbles are those of the formulas. */
#include "common/parallel/schedule_order.h"
#include "common/parallel/schedule_play.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) ck_assert_msg((call) == ST_OK, "%s", status_message())

enum { MOST_STAGES = 8, ROOM = 64 };

/* Calls body with every shape of up to 8 stages and three times as many micro-batches. */
static void each_shape(void (*body)(const struct schedule_shape *))
{
    for (int p = 1; p <= MOST_STAGES; p++)
        for (int m = 1; m <= 3 * p + 1; m++)
            for (int i = 0; i < p; i++) {
                struct schedule_shape s = {ORDER_GPIPE, i, p, 1, m};

                body(&s);
                s.order = ORDER_1F1B;
                body(&s);
                s.order = ORDER_ZB_H1;
                body(&s);
                s.order = ORDER_INTERLEAVED;
                for (s.chunks = 1; p > 1 && m % p == 0 && s.chunks <= 4; s.chunks++)
                    body(&s);
            }
}

/* ---- one stage ---- */

/* Passes of each kind seen so far of a chunk. */
struct seen {
    int forward, input, weight;
};

static void see(struct seen *s, const struct instruction *in)
{
    switch (in->kind) {
    case INSTR_FORWARD:
        ck_assert_int_eq(in->micro, s->forward++);
        break;
    case INSTR_BACKWARD:
        s->weight++;
        /* fall through */
    case INSTR_BACKWARD_INPUT:
        ck_assert_int_eq(in->micro, s->input++);
        ck_assert_int_le(s->input, s->forward);
        break;
    case INSTR_BACKWARD_WEIGHT:
        ck_assert_int_eq(in->micro, s->weight++);
        ck_assert_int_le(s->weight, s->input);
        break;
    default:
        break;
    }
}

static void passes_come_once(const struct schedule_shape *shape)
{
    struct seen seen[4] = {{0}};
    struct schedule s;

    OK(schedule_open(&s, shape));
    for (int i = 0; i < s.n; i++)
        see(&seen[s.list[i].chunk], &s.list[i]);
    for (int c = 0; c < shape->chunks; c++) {
        ck_assert_int_eq(seen[c].forward, shape->micro_batches);
        ck_assert_int_eq(seen[c].input, shape->micro_batches);
        ck_assert_int_eq(seen[c].weight, shape->micro_batches);
    }
    ck_assert_int_eq(s.list[s.n - 2].kind, INSTR_REDUCE);
    ck_assert_int_eq(s.list[s.n - 1].kind, INSTR_UPDATE);
    schedule_close(&s);
}

START_TEST(each_micro_batch_passes_once_and_in_order)
{
    each_shape(passes_come_once);
}
END_TEST

/* A pass is next to its messages: receive before, send after, none at the ends of the model. */
static void messages_stand_beside(const struct schedule_shape *shape)
{
    struct schedule s;

    OK(schedule_open(&s, shape));
    for (int i = 0; i < s.n; i++) {
        const struct instruction *in = &s.list[i];
        int back = in->kind == INSTR_BACKWARD || in->kind == INSTR_BACKWARD_INPUT;
        int begins = schedule_first(shape, in->chunk), ends = schedule_last(shape, in->chunk);

        if (in->kind != INSTR_FORWARD && !back)
            continue;
        ck_assert_int_eq(i > 0 && s.list[i - 1].micro == in->micro &&
                             s.list[i - 1].kind ==
                                 (back ? INSTR_RECV_BACKWARD : INSTR_RECV_FORWARD),
                         back ? !ends : !begins);
        ck_assert_int_eq(s.list[i + 1].micro == in->micro &&
                             s.list[i + 1].kind ==
                                 (back ? INSTR_SEND_BACKWARD : INSTR_SEND_FORWARD),
                         back ? !begins : !ends);
    }
    schedule_close(&s);
}

START_TEST(messages_stand_beside_their_pass)
{
    each_shape(messages_stand_beside);
}
END_TEST

/* Slots as owners: nobody takes one that is held, everybody frees his own. */
static void slots_are_held_once(const struct schedule_shape *shape)
{
    int held[4][ROOM] = {{0}}, live = 0, most = 0, room = 0;
    struct schedule s;

    OK(schedule_open(&s, shape));
    for (int i = 0; i < s.n; i++) {
        const struct instruction *in = &s.list[i];
        int *at = &held[in->chunk][in->slot];

        if (in->kind == INSTR_FORWARD) {
            ck_assert_int_eq(*at, 0);
            *at = in->micro + 1;
            most = ++live > most ? live : most;
        } else if (in->kind < INSTR_REDUCE && in->kind > INSTR_RECV_FORWARD) {
            ck_assert_int_eq(*at, in->micro + 1);
        }
        if (in->kind == INSTR_BACKWARD || in->kind == INSTR_BACKWARD_WEIGHT) {
            if (!schedule_first(shape, in->chunk) && in->kind == INSTR_BACKWARD)
                ck_assert_int_eq(s.list[i + 1].kind, INSTR_SEND_BACKWARD);
            else
                *at = 0;
            live--;
        }
        if (in->kind == INSTR_SEND_BACKWARD && s.list[i - 1].kind == INSTR_BACKWARD)
            *at = 0;
    }
    ck_assert_int_eq(live, 0);
    ck_assert_int_eq(most, schedule_peak(shape));
    for (int c = 0; c < shape->chunks; c++)
        room += s.slots[c];
    ck_assert_int_ge(room, most);
    if (shape->chunks == 1)
        ck_assert_int_eq(room, most);
    schedule_close(&s);
}

START_TEST(activations_live_as_the_formula_says)
{
    each_shape(slots_are_held_once);
}
END_TEST

/* What the papers say of the worst stage. */
START_TEST(peaks_are_those_of_the_papers)
{
    for (int p = 2; p <= MOST_STAGES; p++) {
        int m = 4 * p;

        for (int i = 0; i < p; i++) {
            struct schedule_shape s = {ORDER_GPIPE, i, p, 1, m};

            ck_assert_int_eq(schedule_peak(&s), m);
            s.order = ORDER_1F1B;
            ck_assert_int_eq(schedule_peak(&s), p - i);
            s.order = ORDER_ZB_H1;
            ck_assert_int_eq(schedule_peak(&s), p);
            s.order = ORDER_INTERLEAVED;
            s.chunks = 3;
            ck_assert_int_eq(schedule_peak(&s), 2 * (p - 1 - i) + 2 * p + 1);
        }
    }
}
END_TEST

/* ---- all stages ---- */

static void plays_to_its_end(const struct schedule_shape *shape)
{
    const struct schedule_cost costs[] = {{1, 1, 1}, {1, 2, 3}, {3, 1, 0.5}};
    struct schedule_played p;

    if (shape->stage > 0)
        return;
    for (int i = 0; i < 3; i++) {
        double pass = costs[i].forward + costs[i].input + costs[i].weight;

        OK(schedule_play(&p, shape, costs[i]));
        ck_assert_double_eq_tol(p.busy, pass * shape->micro_batches * shape->stages, 1e-6);
        schedule_played_close(&p);
    }
}

START_TEST(sends_meet_their_receives_and_nobody_waits_for_ever)
{
    each_shape(plays_to_its_end);
}
END_TEST

static double idle(enum schedule_order order, int p, int chunks, int m, struct schedule_cost cost)
{
    struct schedule_shape s = {order, 0, p, chunks, m};
    struct schedule_played played;
    double time;

    OK(schedule_play(&played, &s, cost));
    time = played.end - m * (cost.forward + cost.input + cost.weight);
    ck_assert_double_eq_tol(schedule_bubble(&played), time / played.end, 1e-9);
    schedule_played_close(&played);
    return time;
}

/* Time that the pipeline loses: (p - 1)(F + B), a v-th of it interleaved, (p - 1)(F + I - W) of
 * ZB-H1 where W fits beside I. */
START_TEST(bubbles_are_those_of_the_papers)
{
    struct schedule_cost one = {1, 1, 1}, uneven = {2, 3, 1};

    for (int p = 2; p <= MOST_STAGES; p++)
        for (int m = 2 * p; m <= 4 * p; m += p) {
            ck_assert_double_eq_tol(idle(ORDER_GPIPE, p, 1, m, one), 3 * (p - 1), 1e-9);
            ck_assert_double_eq_tol(idle(ORDER_1F1B, p, 1, m, one), 3 * (p - 1), 1e-9);
            ck_assert_double_eq_tol(idle(ORDER_1F1B, p, 1, m, uneven), 6 * (p - 1), 1e-9);
            ck_assert_double_eq_tol(idle(ORDER_ZB_H1, p, 1, m, one), p - 1, 1e-9);
            ck_assert_double_eq_tol(idle(ORDER_ZB_H1, p, 1, m, uneven), 4 * (p - 1), 1e-9);
            for (int v = 2; v <= 4; v++)
                ck_assert_double_eq_tol(idle(ORDER_INTERLEAVED, p, v, m, one), 3.0 * (p - 1) / v,
                                        1e-9);
        }
}
END_TEST

/* ---- the rest ---- */

START_TEST(an_evaluation_goes_forward_only)
{
    struct schedule_shape s = {ORDER_INTERLEAVED, 1, 3, 2, 6};
    struct schedule list;
    int forward = 0;

    OK(schedule_open_forward(&list, &s));
    for (int i = 0; i < list.n; i++) {
        ck_assert_int_le(list.list[i].kind, INSTR_SEND_FORWARD);
        forward += list.list[i].kind == INSTR_FORWARD;
    }
    ck_assert_int_eq(forward, 12);
    ck_assert_int_eq(list.slots[0], 1);
    schedule_close(&list);
}
END_TEST

START_TEST(impossible_shapes_are_refused)
{
    const struct schedule_shape bad[] = {{ORDER_1F1B, 2, 2, 1, 4},        {ORDER_1F1B, 0, 0, 1, 4},
                                         {ORDER_1F1B, 0, 2, 1, 0},        {ORDER_1F1B, 0, 2, 2, 4},
                                         {ORDER_INTERLEAVED, 0, 2, 2, 3}, {ORDER_ZB_H1, 0, 2, 0, 4},
                                         {ORDER_INTERLEAVED, 0, 1, 2, 4}};
    struct schedule s;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(schedule_open(&s, &bad[i]), ST_EINTERNAL);
        status_clear();
    }
}
END_TEST

START_TEST(a_chart_shows_every_pass)
{
    struct schedule_shape s = {ORDER_ZB_H1, 0, 2, 1, 2};
    struct schedule_cost one = {1, 1, 1};
    struct schedule_played p;
    char text[512] = "";
    FILE *out = fmemopen(text, sizeof text - 1, "w");

    ck_assert_ptr_nonnull(out);
    OK(schedule_play(&p, &s, one));
    schedule_chart(&p, 1, 1.0, out);
    schedule_played_close(&p);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_str_eq(text, "stage 0  |F0|F1|  |B0|W0|B1|W1|\n"
                           "stage 1  |  |F0|B0|F1|B1|W0|W1|\n");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("schedule");
    TCase *tc = tcase_create("orders");

    tcase_add_test(tc, each_micro_batch_passes_once_and_in_order);
    tcase_add_test(tc, messages_stand_beside_their_pass);
    tcase_add_test(tc, activations_live_as_the_formula_says);
    tcase_add_test(tc, peaks_are_those_of_the_papers);
    tcase_add_test(tc, sends_meet_their_receives_and_nobody_waits_for_ever);
    tcase_add_test(tc, bubbles_are_those_of_the_papers);
    tcase_add_test(tc, an_evaluation_goes_forward_only);
    tcase_add_test(tc, impossible_shapes_are_refused);
    tcase_add_test(tc, a_chart_shows_every_pass);
    suite_add_tcase(s, tc);
    return check_unit(s);
}
