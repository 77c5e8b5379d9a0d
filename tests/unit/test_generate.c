/* Generation: the cache changes no token, text comes in whole characters, and it ends where it
 * should. */
#include "common/backend/record.h"
#include "common/base/utf8.h"
#include "common/train/generate.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { TEXT = 1 << 16 };

static struct tiny_model a;
static struct step_place at;
static struct tokenizer bytes;

static void setup(void)
{
    status_clear();
    OK(tokenizer_open(&bytes, "bytes"));
}

static void teardown(void)
{
    tokenizer_close(&bytes);
}

/* Model a with changes; gains of logits as large as those of a trained model. */
static void open_model(const char *const *changes)
{
    tiny_model_config(&a.cfg, changes, 1);
    tiny_model_open(&a, 0, 1, 0, 3);
    at = (struct step_place){.dev = a.dev};
    OK(record_comm(&at.tp, a.dev, 0, 1, NULL)); /* of one rank: nothing is sent */
}

static void close_model(void)
{
    comm_destroy(at.tp);
    tiny_model_close(&a);
}

/* ---- the cache ---- */

static const struct {
    const char *name;
    const char *changes[8];
    double bound; /* of the logits' relative difference */
} variants[] = {
    {"cola", {"model.init_std=0.5", NULL}, 1e-5},
    {"cola fp64", {"model.init_std=0.5", "train.precision=fp64", NULL}, 1e-13},
    {"svd tied, one key head",
     {"model.init_std=0.5", "model.layer=svd", "model.tied=on", "model.kv_heads=1", NULL},
     1e-5},
    {"full", {"model.init_std=0.3", "model.layer=full", NULL}, 1e-5},
    {"full fp64", {"model.init_std=0.3", "model.layer=full", "train.precision=fp64", NULL}, 1e-13},
    {"vanilla",
     {"model.init_std=0.5", "parallel.strategy=vanilla", "model.kv_heads=4", NULL},
     1e-5},
    {"released",
     {"model.init_std=0.5", "parallel.strategy=vanilla", "parallel.vanilla=released",
      "model.kv_heads=4", NULL},
     1e-5},
    {"online_local", {"model.init_std=0.5", "parallel.norm=online_local", NULL}, 1e-5},
};

enum { VARIANTS = sizeof variants / sizeof *variants };

static int32_t highest(const float *x, int64_t n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Largest difference over the largest magnitude. */
static double difference(const float *x, const float *y, int64_t n)
{
    double most = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
        size = fmax(size, fabs((double)y[i]));
        ck_assert(isfinite(x[i]) && isfinite(y[i]));
    }
    return most / size;
}

START_TEST(test_cache)
{
    struct generator with, without;
    const float *x, *y;
    int32_t token = 5, tokens[40];
    int changes = 0;
    double bound = variants[_i].bound > 1e-7 ? variants[_i].bound : 1e-7; /* logits are floats */

    open_model(variants[_i].changes);
    OK(generator_open(&with, &a.m, &at, 16, 0)); /* full twice in 40 tokens */
    OK(generator_open(&without, &a.m, &at, 16, 1));
    for (int i = 0; i < 40; i++) {
        tokens[i] = token;
        changes += i > 0 && tokens[i] != tokens[i - 1];
        OK(generator_push(&with, token));
        OK(generator_push(&without, token));
        if (i == 1) /* the prompt: several tokens at once */
            continue;
        OK(generator_logits(&with, &x));
        OK(generator_logits(&without, &y));
        ck_assert_msg(difference(x, y, 70) <= bound, "%s, token %d: %g", variants[_i].name, i,
                      difference(x, y, 70));
        token = highest(x, 70);
        ck_assert_int_eq(token, highest(y, 70));
        if (i % 3 == 0)
            token = (token + 7 * i + 1) % 70;
    }
    ck_assert_int_gt(changes, 7);
    generator_close(&with);
    generator_close(&without);
    close_model();
}
END_TEST

/* Without a word from the older half, the window after a drop gives what a new generator gives. */
START_TEST(test_window)
{
    struct generator g, fresh;
    const float *x, *y;

    open_model(variants[0].changes);
    OK(generator_open(&g, &a.m, &at, 8, 0));
    OK(generator_open(&fresh, &a.m, &at, 8, 0));
    for (int32_t i = 0; i < 11; i++) { /* 0..7 | 4..7, 8, 9, 10 */
        OK(generator_push(&g, i));
        OK(generator_logits(&g, &x));
        if (i >= 4)
            OK(generator_push(&fresh, i));
    }
    OK(generator_logits(&fresh, &y));
    ck_assert_double_le(difference(x, y, 70), 1e-5);
    ck_assert_int_eq(generator_push(&g, 70), ST_EINTERNAL);
    generator_close(&g);
    generator_close(&fresh);
    ck_assert_int_eq(generator_open(&g, &a.m, &at, 1, 0), ST_ECONFIG);
    close_model();
}
END_TEST

/* ---- text ---- */

static const char *const random_text[] = {"model.vocab=300", "model.init_std=0.02", NULL};

struct heard {
    char *text;
    int64_t n, chunks;
    int64_t border[TEXT];
};

static enum status hear(void *context, const char *text, int64_t n)
{
    struct heard *h = context;

    ck_assert_int_gt(n, 0);
    ck_assert_int_lt(h->n + n, TEXT);
    memcpy(h->text + h->n, text, (size_t)n);
    h->n += n;
    h->border[h->chunks++] = h->n;
    return ST_OK;
}

static struct heard *listen(void)
{
    struct heard *h = calloc(1, sizeof *h);

    h->text = calloc(1, TEXT);
    return h;
}

static void forget(struct heard *h)
{
    free(h->text);
    free(h);
}

static struct generate_request ask(struct heard *h, int64_t tokens)
{
    struct generate_request q = generate_request(&a.cfg);

    q.tokens = tokens;
    q.sampler = (struct sampler){.temperature = 1, .seed = 11};
    q.past_end = 1;
    q.write = hear;
    q.context = h;
    return q;
}

START_TEST(test_characters)
{
    struct heard *h = listen();
    struct generate_result r;
    struct generate_request q;
    int64_t wide = 0, border = 0;

    open_model(random_text);
    q = ask(h, 4000);
    OK(generate_text(&r, &a.m, &at, &bytes, &q));
    ck_assert_int_eq(r.tokens, 4000);
    ck_assert_int_gt(h->n, 3900); /* begin, end and padding give no text */
    ck_assert_int_lt(h->n, 4000);
    for (int64_t i = 0; i < h->n;) {
        int64_t length = (int64_t)utf8_length((unsigned char *)h->text + i, (size_t)(h->n - i));

        while (h->border[border] <= i)
            border++;
        if (length > 1) { /* no border inside a character */
            ck_assert_int_ge(h->border[border], i + length);
            wide++;
        }
        i += length ? length : 1;
    }
    ck_assert_int_gt(wide, 50);
    ck_assert_int_gt(h->chunks, 3000); /* and yet it comes as it is made */
    forget(h);
    close_model();
}
END_TEST

START_TEST(test_end)
{
    struct heard *all = listen(), *part = listen();
    struct generate_result r;
    struct generate_request q;

    open_model(random_text);
    q = ask(all, 2000);
    OK(generate_text(&r, &a.m, &at, &bytes, &q));
    ck_assert_int_eq(r.ended, 0);
    q = ask(part, 2000);
    q.past_end = 0;
    OK(generate_text(&r, &a.m, &at, &bytes, &q));
    ck_assert_int_eq(r.ended, 1);
    ck_assert_int_lt(r.tokens, 2000);
    ck_assert_int_le(part->n, r.tokens);
    ck_assert_mem_eq(part->text, all->text, (size_t)part->n);
    forget(all);
    forget(part);
    close_model();
}
END_TEST

static int asked;

static int stop_at_5(void)
{
    return ++asked == 5;
}

START_TEST(test_request)
{
    struct heard *x = listen(), *y = listen();
    struct generate_result r;
    struct generate_request q;

    open_model(random_text);
    q = ask(x, 100);
    q.prompt = "";
    q.prompt_bytes = 0;
    OK(generate_text(&r, &a.m, &at, &bytes, &q));
    ck_assert_int_eq(r.prompt_tokens, 1);
    q.context = y; /* the same request: the same text; another seed: another one */
    q.uncached = 1;
    OK(generate_text(&r, &a.m, &at, &bytes, &q));
    ck_assert(x->n == y->n && !memcmp(x->text, y->text, (size_t)x->n));
    q.sampler.seed++;
    y->n = y->chunks = 0;
    OK(generate_text(&r, &a.m, &at, &bytes, &q));
    ck_assert(x->n != y->n || memcmp(x->text, y->text, (size_t)x->n) != 0);
    q.write = NULL;
    q.stop = stop_at_5;
    asked = 0;
    ck_assert_int_eq(generate_text(&r, &a.m, &at, &bytes, &q), ST_ESTOP);
    ck_assert_int_eq(r.tokens, 5);
    q.sampler.temperature = -1;
    ck_assert_int_eq(generate_text(&r, &a.m, &at, &bytes, &q), ST_ECONFIG);
    forget(x);
    forget(y);
    close_model();
}
END_TEST

static struct heard *ear;

/* Called after each token: its text has come. */
static int all_heard(void)
{
    ck_assert_int_eq(ear->n, ++asked);
    return 0;
}

START_TEST(test_at_once)
{
    struct generate_result r;
    struct generate_request q;
    struct param *gain;

    open_model(random_text);
    ear = listen();
    gain = params_find(&a.m.params, "model.norm.weight");
    memset(gain->w.data, 0, (size_t)gain->cols * sizeof(float)); /* all logits equal: byte 0 */
    q = ask(ear, 9);
    q.sampler.temperature = 0;
    q.stop = all_heard;
    asked = 0;
    OK(generate_text(&r, &a.m, &at, &bytes, &q));
    ck_assert_int_eq(ear->n, 9);
    ck_assert_mem_eq(ear->text, "\0\0\0\0\0\0\0\0", 9);
    forget(ear);
    close_model();
}
END_TEST

/* A model of fewer ids than the tokenizer has cannot speak its language. */
START_TEST(test_vocabulary)
{
    struct generate_result r;
    struct generate_request q;

    open_model(NULL);
    q = ask(NULL, 5);
    q.write = NULL;
    ck_assert_int_eq(generate_text(&r, &a.m, &at, &bytes, &q), ST_ECONFIG);
    ck_assert_msg(strstr(status_message(), "the model has 70 tokens, the tokenizer 'bytes' 259"),
                  "%s", status_message());
    close_model();
}
END_TEST

/* The plan is what is needed: no less, no more. */
START_TEST(test_memory)
{
    struct generator g;
    const float *logits;

    open_model(NULL);
    OK(generator_open(&g, &a.m, &at, 64, 0));
    for (int32_t i = 0; i < 64; i++)
        OK(generator_push(&g, i));
    OK(generator_logits(&g, &logits));
    ck_assert_uint_eq(g.memory.used, g.memory.size);
    ck_assert_uint_eq(g.scratch.peak, g.scratch.size);
    ck_assert_uint_eq(g.scratch.used, 0);
    generator_close(&g);
    close_model();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generate");
    TCase *c = tcase_create("generate");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_loop_test(c, test_cache, 0, VARIANTS);
    tcase_add_test(c, test_window);
    tcase_add_test(c, test_characters);
    tcase_add_test(c, test_end);
    tcase_add_test(c, test_request);
    tcase_add_test(c, test_at_once);
    tcase_add_test(c, test_vocabulary);
    tcase_add_test(c, test_memory);
    return check_unit(suite);
}
