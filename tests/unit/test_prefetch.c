/* Reading ahead: the same batches as without, failures in their place, no thread left. */
#include "common/data/prefetch.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SEQ = 4, BATCH = 6, FIRST = 2, ROWS = 3, TOKENS = 601, ELEMENTS = ROWS * SEQ };

/* A text in memory, documents of 7 tokens. */
struct scene {
    int32_t tokens[TOKENS];
    int64_t starts[TOKENS / 7 + 2];
    char name[8];
    struct corpus corpus;
    struct mixture m;
    struct prefetch p;
    struct batch b;
};

static struct scene *make(void)
{
    struct loader_options o = {
        .mode = LOADER_TRAIN, .packing = 1, .seq = SEQ, .batch = BATCH, .seed = 5};
    struct scene *s = calloc(1, sizeof *s);
    int64_t documents = TOKENS / 7 + 1;

    ck_assert_ptr_nonnull(s);
    strcpy(s->name, "memory");
    for (int32_t i = 0; i < TOKENS; i++)
        s->tokens[i] = i;
    for (int64_t i = 0; i <= documents; i++)
        s->starts[i] = 7 * i < TOKENS ? 7 * i : TOKENS;
    s->corpus = (struct corpus){.path = s->name,
                                .tokens = s->tokens,
                                .starts = s->starts,
                                .count = TOKENS,
                                .documents = documents,
                                .pad = -1,
                                .token_bytes = 4};
    status_clear();
    ck_assert_int_eq(mixture_open(&s->m, &s->corpus, NULL, 1, &o), ST_OK);
    ck_assert_int_eq(batch_open(&s->b, ROWS, SEQ, 1), ST_OK);
    ck_assert_int_eq(prefetch_open(&s->p, &s->m, FIRST, ROWS, 1), ST_OK);
    return s;
}

static void end(struct scene *s)
{
    prefetch_close(&s->p);
    batch_close(&s->b);
    mixture_close(&s->m);
    free(s);
}

static void is_batch(const struct scene *s, int64_t step)
{
    int32_t tokens[ELEMENTS], targets[ELEMENTS], starts[ELEMENTS];
    int64_t valid;

    ck_assert_int_eq(mixture_rows(tokens, targets, starts, &s->m, step, FIRST, ROWS), ST_OK);
    ck_assert_int_eq(mixture_valid(&valid, &s->m, step), ST_OK);
    ck_assert_mem_eq(s->b.tokens, tokens, sizeof tokens);
    ck_assert_mem_eq(s->b.targets, targets, sizeof targets);
    ck_assert_mem_eq(s->b.starts, starts, sizeof starts);
    ck_assert_int_eq(s->b.valid, valid);
}

/* Steps in order, over several epochs, and from anywhere else: as read directly. */
START_TEST(test_same_batches)
{
    static const int64_t jumps[] = {70, 3, 3, 1000000, 0};
    struct scene *s = make();

    for (int64_t step = 0; step < 60; step++) {
        ck_assert_int_eq(prefetch_take(&s->p, &s->b, step, step + 1), ST_OK);
        is_batch(s, step);
    }
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        ck_assert_int_eq(prefetch_take(&s->p, &s->b, jumps[i], i % 2 ? -1 : jumps[i] + 1), ST_OK);
        is_batch(s, jumps[i]);
    }
    end(s);
}
END_TEST

/* Some seconds at most, so that a test of what never comes ends. */
static void until_ready(struct prefetch *p)
{
    const struct timespec turn = {.tv_nsec = 1000000};
    int ready = 0;

    for (int i = 0; i < 10000 && !ready; i++) {
        pthread_mutex_lock(&p->lock);
        ready = p->ready;
        pthread_mutex_unlock(&p->lock);
        nanosleep(&turn, NULL);
    }
    ck_assert_msg(ready, "nothing is read ahead");
}

/* The next batch is read before it is asked for, and into memory of its own: it is there although
 * the text has gone, and the one in hand does not change. */
START_TEST(test_ahead)
{
    struct scene *s = make();
    int32_t first[ELEMENTS], second[ELEMENTS], targets[ELEMENTS];

    ck_assert_int_eq(mixture_rows(first, targets, NULL, &s->m, 0, FIRST, ROWS), ST_OK);
    ck_assert_int_eq(mixture_rows(second, targets, NULL, &s->m, 1, FIRST, ROWS), ST_OK);
    ck_assert_int_eq(prefetch_take(&s->p, &s->b, 0, 1), ST_OK);
    until_ready(&s->p);
    ck_assert_mem_eq(s->b.tokens, first, sizeof first);
    memset(s->tokens, 0, sizeof s->tokens);
    ck_assert_int_eq(prefetch_take(&s->p, &s->b, 1, -1), ST_OK);
    ck_assert_mem_eq(s->b.tokens, second, sizeof second);
    end(s);
}
END_TEST

/* What fails ahead is told when its step is asked for, with its own message, and only then. */
START_TEST(test_failure)
{
    const int64_t far = (INT64_C(1) << 62) / BATCH;
    struct scene *s = make();

    ck_assert_int_eq(prefetch_take(&s->p, &s->b, 0, far), ST_OK);
    until_ready(&s->p);
    ck_assert_str_eq(status_message(), "");
    is_batch(s, 0);
    ck_assert_int_eq(prefetch_take(&s->p, &s->b, far, far + 1), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "step 768614336404564650 of batches of 6"));
    status_clear();
    ck_assert_int_eq(prefetch_take(&s->p, &s->b, 1, far), ST_OK);
    is_batch(s, 1);
    ck_assert_int_eq(prefetch_take(&s->p, &s->b, 2, -1), ST_OK); /* far was never taken */
    is_batch(s, 2);
    end(s);
}
END_TEST

static int threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    ck_assert_ptr_nonnull(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Nonzero once there are n threads: one that was joined may stand in the list a moment longer. */
static int settles(int n)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    for (int i = 0; i < 2000 && threads() != n; i++)
        nanosleep(&moment, NULL);
    return threads() == n;
}

/* Closed before anything was asked for, while a batch is read, after one was, after a failure. */
START_TEST(test_no_thread_left)
{
    int before = threads();

    for (int how = 0; how < 4; how++) {
        struct scene *s = make();

        ck_assert(settles(before + 1));
        if (how > 0)
            ck_assert_int_eq(prefetch_take(&s->p, &s->b, 0, how == 3 ? INT64_MAX : 1), ST_OK);
        if (how > 1)
            until_ready(&s->p);
        end(s);
        ck_assert(settles(before));
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("prefetch");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, test_same_batches);
    tcase_add_test(tests, test_ahead);
    tcase_add_test(tests, test_failure);
    tcase_add_test(tests, test_no_thread_left);
    suite_add_tcase(s, tests);
    return s;
}

int main(void)
{
    return check_unit(suite());
}
