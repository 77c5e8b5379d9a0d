/* The order in which two half-batches take turns in forward, heard on the recording backend: which
 * projection of which half begins and ends when, and in which rows. That the bits are those of
 * forward in one piece is tests/mpi/test_overlap.c's. */
#include "common/backend/record.h"
#include "common/train/step.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { CALLS = 256 };

/* A call: of which half, begin or end, the rows that it reads. */
static struct {
    struct {
        int half, end;
        const char *rows;
        int64_t n;
    } call[CALLS];
    int n;
    const struct comm *second;
} heard;

static void note(const struct tp_env *env, const struct proj_io *io, int end)
{
    ck_assert_int_lt(heard.n, CALLS);
    heard.call[heard.n].half = env->tp == heard.second;
    heard.call[heard.n].end = end;
    heard.call[heard.n].rows = io->x->data;
    heard.call[heard.n++].n = io->x->rows;
}

#define HEARD(slot, end)                                                                           \
    static enum status heard_##slot(struct tp_env *env, const struct proj *w, struct proj_acts *a, \
                                    const struct proj_io *io, struct proj_flight *f)               \
    {                                                                                              \
        note(env, io, end);                                                                        \
        return btp_strategy.slot(env, w, a, io, f);                                                \
    }
HEARD(in_begin, 0)
HEARD(in_end, 1)
HEARD(out_begin, 0)
HEARD(out_end, 1)

struct rig {
    struct config cfg;
    struct tp_strategy strategy;
    struct ledger ledger;
    struct step_place at;
    struct step step;
};

/* One of two ranks with a micro-batch of 3 sequences, that is 2 and 1. */
static void open_rig(struct rig *r, const char *overlap)
{
    const char *words[] = {"parallel.tp=2",    "train.batch=3", "train.micro_batch=3",
                           "model.layer=cola", overlap,         NULL};

    memset(r, 0, sizeof *r);
    memset(&heard, 0, sizeof heard);
    tiny_model_config(&r->cfg, words, 2);
    OK(record_open(&r->at.dev, DT_F32));
    r->at.ledger = &r->ledger;
    OK(record_comm(&r->at.tp, r->at.dev, 0, 2, &r->ledger));
    OK(record_comm(&r->at.dp, r->at.dev, 0, 1, &r->ledger));
    if (r->cfg.parallel.overlap == OVERLAP_ALL)
        OK(record_comm(&r->at.second, r->at.dev, 0, 2, &r->ledger));
    heard.second = r->at.second;
    OK(step_open(&r->step, &r->cfg, &r->at, NULL, 1));
    r->strategy = btp_strategy;
    r->strategy.in_begin = heard_in_begin;
    r->strategy.in_end = heard_in_end;
    r->strategy.out_begin = heard_out_begin;
    r->strategy.out_end = heard_out_end;
    r->step.chunk[0].env.strategy = &r->strategy;
}

static void close_rig(struct rig *r)
{
    step_close(&r->step);
    comm_destroy(r->at.tp);
    comm_destroy(r->at.second);
    comm_destroy(r->at.dp);
    device_close(r->at.dev);
}

static void forward(struct rig *r)
{
    double sum;

    heard.n = 0;
    OK(step_evaluate(&r->step, NULL, NULL, &sum));
}

/* Letters of what was heard: a and b begin, A and B end a projection of the first and the second
 * half. */
static void spell(char out[CALLS + 1])
{
    for (int i = 0; i < heard.n; i++)
        out[i] = (heard.call[i].end ? "AB" : "ab")[heard.call[i].half];
    out[heard.n] = '\0';
}

/* a b, then for each further projection both halves end one and begin the next, then A B. */
START_TEST(halves_take_turns)
{
    char got[CALLS + 1], want[CALLS + 1] = "ab";
    struct rig r;
    int projections;

    open_rig(&r, "parallel.overlap=all");
    projections = 4 * (int)r.cfg.model.layers;
    ck_assert_int_gt(projections, 4); /* a border between blocks is among them */
    for (int i = 1; i < projections; i++)
        strcat(want, "AaBb");
    strcat(want, "AB");
    forward(&r);
    spell(got);
    ck_assert_str_eq(got, want);
    close_rig(&r);
}
END_TEST

/* Every half reads its own rows: the second's begin where the first's end. */
START_TEST(halves_are_the_rows)
{
    struct rig r;
    int64_t seq;

    open_rig(&r, "parallel.overlap=all");
    seq = r.cfg.train.seq;
    forward(&r);
    for (int i = 0; i < heard.n; i++)
        ck_assert_int_eq(heard.call[i].n, heard.call[i].half ? seq : 2 * seq);
    ck_assert_int_eq(heard.call[1].rows - heard.call[0].rows,
                     2 * seq * r.step.model.shape.stream * (int64_t)sizeof(float));
    close_rig(&r);
}
END_TEST

/* In one piece: each projection ends before the next begins. */
START_TEST(otherwise_one_piece)
{
    static const char *const words[] = {"parallel.overlap=off", "parallel.overlap=backward"};
    char got[CALLS + 1], want[CALLS + 1] = "";
    struct rig r;

    open_rig(&r, words[_i]);
    for (int i = 0; i < 4 * (int)r.cfg.model.layers; i++)
        strcat(want, "aA");
    forward(&r);
    spell(got);
    ck_assert_str_eq(got, want);
    for (int i = 0; i < heard.n; i++)
        ck_assert_int_eq(heard.call[i].n, 3 * r.cfg.train.seq);
    close_rig(&r);
}
END_TEST

/* Who looks at a block's activations sees a whole block: forward goes in one piece then. */
static enum status see(void *context, int64_t layer, const struct block_acts *a)
{
    int *blocks = context;

    ck_assert_int_eq(layer, *blocks);
    ck_assert_int_eq(heard.n, 8 * ++*blocks);
    return a ? ST_OK : fail(ST_EINTERNAL, "nothing to see");
}

START_TEST(whoever_looks_sees_whole_blocks)
{
    int blocks = 0;
    struct stage_sight sight = {.see = see, .context = &blocks};
    struct rig r;

    open_rig(&r, "parallel.overlap=all");
    r.step.chunk[0].sight = &sight;
    forward(&r);
    ck_assert_int_eq(blocks, r.cfg.model.layers);
    close_rig(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("halves");
    TCase *tc = tcase_create("halves");

    tcase_add_test(tc, halves_take_turns);
    tcase_add_test(tc, halves_are_the_rows);
    tcase_add_loop_test(tc, otherwise_one_piece, 0, 2);
    tcase_add_test(tc, whoever_looks_sees_whole_blocks);
    suite_add_tcase(s, tc);
    return check_unit(s);
}
