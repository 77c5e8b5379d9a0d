/* The head and its loss on a few sequences at a time: the same bits for every number of them, in
 * every layout; memory as foretold.
 * ranks: 1 4 */
#include "tests/mpi/check_job.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

enum { STEPS = 2, BATCH = 8, SEQ = 32, WORDS = 16 };

static struct host *job;
static int rank, size;

static void set_up(void)
{
    tiny_run_begin(job);
}

/* Words for a form and more, and a chunk. */
struct words {
    const char *word[WORDS];
    char chunk[32];
};

/* Where the key of `word` stands, or the end of the list. */
static int place_of(const struct words *w, const char *word)
{
    size_t key = strcspn(word, "=") + 1;
    int i = 0;

    while (w->word[i] && strncmp(w->word[i], word, key) != 0)
        i++;
    ck_assert_int_lt(i, WORDS - 1);
    return i;
}

/* Later words win. */
static void add_words(struct words *w, const char *const *more)
{
    for (int i = 0; more && more[i]; i++)
        w->word[place_of(w, more[i])] = more[i];
}

static void set_words(struct words *w, const char *const *form, const char *const *more, int chunk)
{
    memset(w, 0, sizeof *w);
    snprintf(w->chunk, sizeof w->chunk, "train.head_chunk=%d", chunk);
    add_words(w, form);
    add_words(w, more);
    add_words(w, (const char *const[]){w->chunk, NULL});
}

/* What a run of STEPS steps and an evaluation found, on rank 0. */
struct trace {
    uint64_t hash[STEPS];
    double loss[STEPS], norm[STEPS], sample[BATCH];
};

static struct trace trace_of(const struct words *w, struct tiny_layout layout, int chunk)
{
    struct trace t = {0};
    struct tiny_run r;
    double sum;

    if (tiny_run_open(&r, job, tiny_t4, w->word, layout)) {
        CHECK(!chunk || r.step.head_chunk == chunk, "%lld at once", (long long)r.step.head_chunk);
        CHECK(!chunk || r.step.head_chunks > 1, "the head is in one piece");
        for (int i = 0; i < STEPS; i++) {
            struct step_result result = tiny_run_train(&r, i + 1, TINY_SHORT);

            t.loss[i] = result.loss;
            t.norm[i] = result.grad_norm;
            t.hash[i] = tiny_run_hash(&r);
        }
        OK(step_evaluate(&r.step, r.tokens, r.targets, &sum));
        memcpy(t.sample, r.step.sample_loss, sizeof t.sample);
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
    return t;
}

static const struct way {
    const char *name;
    struct tiny_layout layout;
    int chunk; /* below the micro-batch: 3 of 4 and 3 of 8 leave a smaller one */
    const char *more[4];
} ways[] = {
    {"one at a time", {1, 1, 0}, 1, {NULL}},
    {"two at a time", {1, 1, 0}, 2, {NULL}},
    {"three of eight", {1, 1, 0}, 3, {NULL}},
    {"micro-batches", {1, 1, 4}, 1, {"parallel.recompute=block"}},
    {"three of four", {1, 1, 4}, 3, {"parallel.recompute=none"}},
    {"tp", {4, 1, 0}, 2, {NULL}},
    {"tp and dp", {2, 2, 0}, 1, {NULL}},
    {"dp, shards", {1, 4, 0}, 1, {"parallel.zero=1"}},
    {"zb-h1",
     {2, 1, 2},
     1,
     {"parallel.pp=2", "parallel.schedule=zb-h1", "parallel.recompute=none"}},
    {"gpipe, dp", {1, 2, 2}, 1, {"parallel.pp=2", "parallel.schedule=gpipe"}},
};
enum { WAYS = sizeof ways / sizeof *ways };

static int ranks_of(const struct way *w)
{
    return w->layout.tp * w->layout.dp * (w->more[0] && strstr(w->more[0], "pp=2") ? 2 : 1);
}

START_TEST(no_bit_changes)
{
    const struct tiny_form *form = &tiny_forms[_i];
    struct trace one, other;
    struct words w;

    set_words(&w, form->changes, NULL, BATCH);
    one = trace_of(&w, (struct tiny_layout){1, 1, 0}, 0);
    for (int k = 0; k < WAYS; k++) {
        if (ranks_of(&ways[k]) > size)
            continue;
        set_words(&w, form->changes, ways[k].more, ways[k].chunk);
        other = trace_of(&w, ways[k].layout, ways[k].chunk);
        for (int i = 0; rank == 0 && i < STEPS; i++) {
            CHECK(one.loss[i] > 0 && one.loss[i] == other.loss[i], "%s, %s: loss %a, not %a",
                  form->name, ways[k].name, other.loss[i], one.loss[i]);
            CHECK(one.norm[i] == other.norm[i], "%s, %s: norm %a, not %a", form->name, ways[k].name,
                  other.norm[i], one.norm[i]);
            CHECK(one.hash[i] == other.hash[i], "%s, %s: other weights", form->name, ways[k].name);
        }
        CHECK(rank != 0 || !memcmp(one.sample, other.sample, sizeof one.sample),
              "%s, %s: another evaluation", form->name, ways[k].name);
    }
}
END_TEST

/* Without one hash for all, later chunks add to the first one's gradients. */
START_TEST(chunks_add_up_without_a_tree)
{
    static const char *const off[] = {"parallel.layout_exact=off", NULL};
    struct trace one, other;
    struct words w;

    set_words(&w, tiny_forms[_i].changes, off, 2);
    one = trace_of(&w, (struct tiny_layout){1, 1, 2}, 0);
    set_words(&w, tiny_forms[_i].changes, off, 1);
    other = trace_of(&w, (struct tiny_layout){1, 1, 2}, 1);
    for (int i = 0; rank == 0 && i < STEPS; i++) {
        CHECK(fabs(one.loss[i] - other.loss[i]) < 1e-5 * one.loss[i], "%s: loss %g, not %g",
              tiny_forms[_i].name, other.loss[i], one.loss[i]);
        CHECK(fabs(one.norm[i] - other.norm[i]) < 1e-4 * one.norm[i], "%s: norm %g, not %g",
              tiny_forms[_i].name, other.norm[i], one.norm[i]);
    }
}
END_TEST

/* ---- memory ---- */

struct memory {
    size_t planned, reached; /* scratch                */
    size_t grads, head;      /* of these the head's end */
};

static struct memory memory_of(const char *const *more, int chunk)
{
    struct memory m = {0};
    struct tiny_run r;
    struct words w;

    set_words(&w, (const char *const[]){"model.vocab=8000", NULL}, more, chunk);
    if (tiny_run_open(&r, job, tiny_t4, w.word, (struct tiny_layout){1, 1, 0})) {
        tiny_run_train(&r, 1, TINY_ALL);
        m.planned = r.step.memory.scratch;
        m.reached = r.step.scratch.peak;
        m.grads = r.step.grads.peak;
        m.head = (size_t)r.step.model.params.head_plane;
        CHECK(m.grads == r.step.memory.grads, "%zu of gradients", m.grads);
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
    return m;
}

/* Scratch of the head for `samples` at once, by its tensors: logits; h, dh; statistics of the loss
 * and of the norm, whose dot and coefficients backward makes. */
static size_t head_scratch(size_t samples)
{
    static const size_t cols[] = {8000, 64, 64, 3, 1, 1, 2};
    size_t bytes = 0;

    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
        bytes +=
            (samples * SEQ * cols[i] * sizeof(float) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    return bytes;
}

/* Of eight sums of one sample three wait at most, of four sums of two samples two. */
START_TEST(memory_falls_as_foretold)
{
    static const char *const exact[] = {NULL}, *const off[] = {"parallel.layout_exact=off", NULL};
    static const struct {
        int chunk;
        size_t slots;
    } of[] = {{8, 1}, {4, 1}, {2, 2}, {1, 3}};
    struct memory all = {0};

    for (int k = 0; k < 8; k++) {
        struct memory m = memory_of(k < 4 ? exact : off, of[k % 4].chunk);
        size_t more = k < 4 ? of[k % 4].slots - 1 : 0;

        if (rank != 0)
            continue;
        all = k % 4 ? all : m;
        CHECK(m.planned == m.reached, "%zu of scratch, %zu foretold", m.reached, m.planned);
        CHECK(all.reached - m.reached == head_scratch(8) - head_scratch((size_t)of[k % 4].chunk),
              "chunks of %d: %zu less of scratch", of[k % 4].chunk, all.reached - m.reached);
        CHECK(m.grads - all.grads == more * m.head, "chunks of %d: %zu more of gradients",
              of[k % 4].chunk, m.grads - all.grads);
        CHECK(m.head == (8000 * 64 + 64) * sizeof(float), "%zu of the head's gradient", m.head);
    }
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("head_chunk");
    TCase *tc = tcase_create("head_chunk");
    int forms = 0;

    if (host_start(&job, &argc, &argv) != ST_OK)
        return EXIT_FAILURE;
    rank = host_rank(job);
    size = host_size(job);
    while (tiny_forms[forms].name)
        forms++;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, no_bit_changes, 0, forms);
    tcase_add_loop_test(tc, chunks_add_up_without_a_tree, 0, forms);
    tcase_add_test(tc, memory_falls_as_foretold);
    suite_add_tcase(s, tc);
    return check_job(job, s);
}
