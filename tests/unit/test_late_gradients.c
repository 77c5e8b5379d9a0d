/* Which weight gradients run beside which message of backward, heard on the recording backend. That
 * their operands are still there when they run shows in the bits: `narrows validate layouts` and
 * `strategies`, tests/mpi/test_overlap.c. */
#include "common/backend/record.h"
#include "common/train/step.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#undef fail
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { TEXT = 1024 };

/* What is heard, in order: P a list of products, m a message, g and a number that many gradients of
 * weights. */
static void say(void *context, const char *word)
{
    char *text = context;

    ck_assert_uint_lt(strlen(text) + strlen(word), TEXT);
    strcat(text, word);
}

static enum status products(void *context, const struct gemm *g, int n)
{
    (void)g, (void)n;
    say(context, "P");
    return ST_OK;
}

static enum status gradients(void *context, const struct weight_grad *w, int n,
                             const struct sample_plan *plan)
{
    char word[16];

    (void)w, (void)plan;
    snprintf(word, sizeof word, "g%d", n);
    say(context, word);
    return ST_OK;
}

static enum status attention(void *context, const struct attention *at, const struct attention *dat)
{
    (void)context, (void)at, (void)dat;
    return ST_OK;
}

static enum status moved(void *context, double bytes)
{
    (void)context, (void)bytes;
    return ST_OK;
}

static enum status message(void *context, const struct comm *c, enum record_message kind,
                           const struct tensor *t, int n)
{
    (void)c, (void)kind, (void)t, (void)n;
    say(context, "m");
    return ST_OK;
}

#define NONE "parallel.recompute=none"

static const struct turn {
    const char *words[4]; /* and BTP, CoLA, where they say nothing of it */
    int ranks;
    const char *block; /* its backward: down, gate and up, wo, q and k and v */
} turns[] = {
    {{NONE, "model.layer=full"}, 2, "P Pmg3 P Pmg4 "},
    {{NONE, "model.layer=full", "parallel.overlap=off"}, 2, "P Pmg3 P Pmg4 "},
    {{NONE, "model.layer=full"}, 1, "P Pg3 P Pg4 "},
    {{NONE}, 2, "Pmg1P Pmg2P Pmg1P Pmg7Pg3 "},
    {{NONE, "parallel.grouping=off"}, 2, "Pmg1P Pmmg2P Pmg1P Pmmmg7Pg3 "},
    {{NONE, "parallel.norm=sync"}, 2, "Pmg1P Pmg2Pm Pmg1P Pmg7Pmg3 "},
    /* Another h in backward than in forward: it is not kept, so dA of gate and up cannot wait. */
    {{NONE, "parallel.norm=online_local"}, 2, "Pmg1P Pmg2Pg2 Pmg1P Pmg5Pg3 "},
    {{"parallel.recompute=elementwise"}, 2, "Pmg1P Pmg2Pg2 Pmg1P Pmg5Pg3 "},
    {{"parallel.recompute=elementwise", "train.precision=bf16"}, 2, "Pmg1P Pmg2Pg2 Pmg1P Pmg5Pg3 "},
    /* Forward again first, down included, whose latents backward needs; or from the latents. */
    {{"parallel.recompute=block"}, 2, "PmP PmP PmP PmP Pmg1P Pmg2Pg2 Pmg1P Pmg5Pg3 "},
    {{"parallel.recompute=bottleneck"}, 2, "P P P Pmg1P Pmg2Pg2 Pmg1P Pmg5Pg3 "},
    /* Nothing runs beside a message, or there is none: nothing waits. */
    {{NONE, "parallel.overlap=off"}, 2, "Pmg1Pg1 Pmg2Pg2 Pmg1Pg1 Pmg3Pg3 "},
    {{NONE}, 1, "Pg1Pg1 Pg2Pg2 Pg1Pg1 Pg3Pg3 "},
    /* The gradients of q, k and v are gathered first. */
    {{NONE, "parallel.strategy=vanilla"}, 2, "PPmg2 PPmg4 PPmg2 mPPmg6 "},
};
enum { TURNS = sizeof turns / sizeof *turns };

static void hear_step(char heard[TEXT], const struct turn *turn)
{
    const struct record_listener ears = {heard, products, gradients, attention, moved, message};
    const char *words[8] = {turn->ranks == 2 ? "parallel.tp=2" : "parallel.tp=1"};
    struct ledger ledger = {0};
    struct step_place at = {.ledger = &ledger};
    struct step_result result;
    struct config cfg;
    struct step step;

    for (int i = 0; i < 4 && turn->words[i]; i++)
        words[1 + i] = turn->words[i];
    tiny_model_config(&cfg, words, turn->ranks);
    OK(record_open(&at.dev, DT_F32));
    OK(record_comm(&at.tp, at.dev, 0, turn->ranks, &ledger));
    OK(record_comm(&at.dp, at.dev, 0, 1, &ledger));
    OK(step_open(&step, &cfg, &at, NULL, 1));
    record_listen(at.dev, &ears);
    OK(step_train(&step, NULL, NULL, 1, 1, 0.0, &result));
    record_listen(at.dev, NULL);
    step_close(&step);
    comm_destroy(at.tp);
    comm_destroy(at.dp);
    device_close(at.dev);
}

/* Both blocks, one behind the other, and nothing left for later. */
START_TEST(gradients_run_beside_messages)
{
    const struct turn *turn = &turns[_i];
    char heard[TEXT] = "", want[TEXT] = "";

    hear_step(heard, turn);
    for (int block = 0; block < 2; block++)
        for (const char *c = turn->block; *c; c++)
            if (*c != ' ')
                strncat(want, c, 1);
    ck_assert_msg(strstr(heard, want) != NULL, "%s is not in %s", want, heard);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("late gradients");
    TCase *tc = tcase_create("late gradients");

    tcase_add_loop_test(tc, gradients_run_beside_messages, 0, TURNS);
    suite_add_tcase(s, tc);
    return check_unit(s);
}
