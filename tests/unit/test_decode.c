/* The model token by token is the model of training: the losses that follow from its logits are
 * those of a forward pass over the whole sequence. */
#include "common/backend/record.h"
#include "common/train/generate.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { SEQ = 24, VOCAB = 70 };

static const struct {
    const char *name;
    const char *changes[6];
    double bound; /* of a loss of about log(70) = 4 and more; logits are compared as floats */
} variants[] = {
    {"cola", {"model.init_std=0.5", NULL}, 2e-5},
    {"cola fp64", {"model.init_std=0.5", "train.precision=fp64", NULL}, 2e-6},
    {"svd tied", {"model.init_std=0.5", "model.layer=svd", "model.tied=on", NULL}, 2e-5},
    {"full", {"model.init_std=0.3", "model.layer=full", NULL}, 2e-5},
    {"full without SiLU, fp64",
     {"model.init_std=0.3", "model.layer=full", "model.outer_silu=off", "train.precision=fp64",
      NULL},
     2e-6},
    {"vanilla",
     {"model.init_std=0.5", "parallel.strategy=vanilla", "model.kv_heads=4", NULL},
     2e-5},
};

enum { VARIANTS = sizeof variants / sizeof *variants };

static struct tiny_model a;
static struct step_place at;
static int32_t tokens[SEQ + 1];

/* Arenas of plenty on the device. */
static struct arena plenty(const char *name)
{
    enum { BYTES = 1 << 23 };
    void *p;

    OK(device_alloc(a.dev, &p, BYTES));
    return arena_over(name, p, BYTES);
}

/* loss[i]: of tokens[i + 1] after tokens[0 .. i], as training computes it. */
static void losses_of_training(double *loss)
{
    struct arena state = plenty("state"), acts = plenty("activations"), scratch = plenty("scratch");
    struct arena batch = plenty("batch");
    struct tp_env env = {.dev = a.dev, .tp = at.tp, .scratch = &scratch};
    struct micro_batch mb = {.samples = 1, .seq = SEQ};
    struct tensor *list[] = {&mb.tokens, &mb.targets, &mb.loss};
    struct stage s;

    for (int i = 0; i < 3; i++) {
        void *p;

        OK(arena_take(&batch, &p, SEQ * sizeof(double)));
        *list[i] = tensor_view(p, i < 2 ? DT_I32 : a.dev->wide, SEQ, 1);
    }
    OK(device_upload(a.dev, mb.tokens.data, tokens, SEQ * sizeof *tokens));
    OK(device_upload(a.dev, mb.targets.data, tokens + 1, SEQ * sizeof *tokens));
    OK(stage_open(&s, &a.m, &env, &state, &acts, SEQ));
    OK(stage_forward(&s, &mb, 0));
    OK(stage_loss(&s, &mb));
    for (int i = 0; i < SEQ; i++)
        loss[i] = dtype_load(mb.loss.data, a.dev->wide, i);
    stage_close(&s);
    device_release(a.dev, state.base);
    device_release(a.dev, acts.base);
    device_release(a.dev, scratch.base);
    device_release(a.dev, batch.base);
}

/* -log softmax(x)[target] */
static double loss_of(const float *x, int32_t target)
{
    double top = x[0], sum = 0;

    for (int i = 1; i < VOCAB; i++)
        top = fmax(top, (double)x[i]);
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)x[i] - top);
    return top + log(sum) - (double)x[target];
}

START_TEST(test_losses)
{
    double want[SEQ], lowest = 1e9, highest = 0;
    struct generator g;
    const float *x;

    tiny_model_config(&a.cfg, variants[_i].changes, 1);
    tiny_model_open(&a, 0, 1, 0, 3);
    at = (struct step_place){.dev = a.dev};
    OK(record_comm(&at.tp, a.dev, 0, 1, NULL)); /* of one rank: nothing is sent */
    for (int i = 0; i <= SEQ; i++)
        tokens[i] = (i * i * 13 + 5 * i) % VOCAB;
    losses_of_training(want);
    OK(generator_open(&g, &a.m, &at, SEQ, 0));
    for (int i = 0; i < SEQ; i++) {
        OK(generator_push(&g, tokens[i]));
        if (i == 3 || i == 4) /* then three at once */
            continue;
        OK(generator_logits(&g, &x));
        ck_assert_msg(fabs(loss_of(x, tokens[i + 1]) - want[i]) <= variants[_i].bound,
                      "%s, token %d: %.8f, in training %.8f", variants[_i].name, i,
                      loss_of(x, tokens[i + 1]), want[i]);
        lowest = fmin(lowest, want[i]);
        highest = fmax(highest, want[i]);
    }
    ck_assert_double_gt(highest - lowest, 1); /* the tokens matter */
    generator_close(&g);
    comm_destroy(at.tp);
    tiny_model_close(&a);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decode");
    TCase *c = tcase_create("decode");

    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_loop_test(c, test_losses, 0, VARIANTS);
    return check_unit(suite);
}
