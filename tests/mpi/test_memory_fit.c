/* The largest micro-batch that a memory holds: what the search says is what arenas really reach on
 * the fullest rank, n sequences stay within the limit, n + 1 do not.
 * ranks: 1 4 */
#include "common/base/text.h"
#include "common/train/memory_fit.h"
#include "tests/mpi/check_job.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#undef fail
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

enum { WORDS = 12 };

static struct host *job;
static int size;

/* Layouts for as many ranks as the job has: words, tp, dp; and the memory, KiB. */
struct trial {
    int ranks;
    const char *word[6];
    struct tiny_layout layout;
    int kib;
};
static const struct trial trials[] = {
    {1, {"model.layer=full"}, {1, 1, 0}, 9000},
    {1, {"model.layer=full", "parallel.recompute=block"}, {1, 1, 0}, 9000},
    {1, {"parallel.strategy=vanilla", "parallel.recompute=block"}, {1, 1, 0}, 5000},
    {1, {"parallel.recompute=none"}, {1, 1, 0}, 5000},
    {1, {"parallel.recompute=bottleneck"}, {1, 1, 0}, 5000},
    {1, {"parallel.recompute=block", "parallel.layout_exact=off"}, {1, 1, 0}, 5000},
    {1, {"parallel.recompute=none"}, {1, 1, 2}, 5000}, /* several micro-batches a step */
    {1, {"model.vocab=4000", "train.head_chunk=2"}, {1, 1, 0}, 30000},
    {4, {"model.layer=full"}, {2, 2, 0}, 5000},
    {4, {"parallel.recompute=bottleneck", "parallel.zero=1"}, {2, 2, 0}, 4000},
    {4, {"parallel.zero=1", "model.tied=on"}, {1, 4, 0}, 7000},
    {4, {"parallel.pp=2", "parallel.zero=1"}, {1, 2, 1}, 5000},
    {4, {"parallel.pp=4", "model.layer=full"}, {1, 1, 1}, 6000},
    {4, {"parallel.pp=2", "parallel.strategy=vanilla"}, {2, 1, 1}, 5000},
    {4, {"parallel.overlap=all", "parallel.recompute=none"}, {4, 1, 0}, 5000},
    {4, {"parallel.overlap=all", "model.layer=full", "parallel.recompute=block"}, {2, 2, 0}, 5000},
    {4,
     {"parallel.pp=2", "model.vocab=4000", "train.head_chunk=2", "model.tied=on",
      "parallel.recompute=block"},
     {2, 1, 2},
     30000},
    {4, /* the last stage is the fullest */
     {"parallel.pp=4", "parallel.schedule=gpipe", "model.vocab=4000", "parallel.recompute=block"},
     {1, 1, 1},
     30000},
};

static void set_up(void)
{
    tiny_run_begin(job);
}

/* What the arenas of this rank reached. */
static size_t reached(const struct step *s)
{
    const struct step_memory *m = &s->memory;
    size_t slot = 0, slots = 0;

    for (int i = 0; i < s->chunks; i++) {
        size_t peak = stage_slot_peak(&s->chunk[i]);

        slot = peak > slot ? peak : slot;
        slots += (size_t)s->chunk[i].slots;
    }
    return s->state.peak + s->grads.peak + slot * slots + s->scratch.peak + s->batch.peak +
           m->tp_staging + m->dp_staging + m->pp_staging + m->second_staging;
}

/* The most that a rank reaches in a real step with micro-batches of n. */
static size_t train(const struct trial *t, const struct config *cfg, int64_t n)
{
    int64_t dp = cfg->parallel.dp, micros = cfg->train.batch / dp / cfg->train.micro_batch;
    struct tiny_layout layout = t->layout;
    const char *words[WORDS] = {NULL};
    struct tiny_run r;
    char batch[32];
    double most = 0.0;
    int k = 0;

    snprintf(batch, sizeof batch, "train.batch=%lld", (long long)(n * micros * dp));
    words[k++] = batch;
    for (int i = 0; t->word[i]; i++)
        words[k++] = t->word[i];
    layout.micro = (int)n;
    if (tiny_run_open(&r, job, tiny_t8, words, layout)) {
        tiny_run_train(&r, 1, TINY_ALL);
        most = (double)reached(&r.step);
    }
    tiny_run_close(&r);
    TINY_OK(job, host_max_f64(job, &most, 1));
    return (size_t)most;
}

START_TEST(n_fits_and_one_more_does_not)
{
    const struct trial *t = &trials[_i];
    struct memory_limit limit = {.bytes = (size_t)t->kib << 10, .beside = memory_beside_none};
    struct memory_fit fit;
    struct memory_use use;
    struct config cfg;
    int64_t n;

    if (t->ranks != size)
        return;
    tiny_run_config(&cfg, tiny_t8, t->word, t->layout);
    TINY_OK(job, memory_fit(&fit, &cfg, &limit));
    n = fit.fits.micro_batch;
    CHECK(n > 1 && fit.over.micro_batch == n + 1, "%lld sequences fit", (long long)n);
    CHECK(fit.fits.bytes <= limit.bytes && fit.over.bytes > limit.bytes, "%zu and %zu of %zu",
          fit.fits.bytes, fit.over.bytes, limit.bytes);
    CHECK(train(t, &cfg, n) == fit.fits.bytes, "%lld sequences reach %zu, not %zu", (long long)n,
          train(t, &cfg, n), fit.fits.bytes);
    CHECK(train(t, &cfg, n + 1) == fit.over.bytes, "%lld sequences do not reach %zu",
          (long long)n + 1, fit.over.bytes);
    TINY_OK(job, memory_use(&use, &cfg, &limit, n));
    CHECK(use.bytes == fit.fits.bytes, "%zu and %zu for one size", use.bytes, fit.fits.bytes);
}
END_TEST

/* No larger number fits either, although gradients wait in fewer slots for some of them. */
START_TEST(nothing_larger_fits)
{
    static const char *const words[] = {"train.batch=12", "model.layer=full",
                                        "parallel.recompute=block", NULL};
    struct memory_limit limit = {.beside = memory_beside_none};
    struct memory_fit fit;
    struct memory_use use;
    struct config cfg;

    if (size > 1)
        return;
    /* three micro-batches: 16 and 17 sequences take four slots, 18 take three */
    tiny_run_config(&cfg, tiny_t8, words, (struct tiny_layout){1, 1, 4});
    for (int64_t n = 1; n <= 20; n++) {
        TINY_OK(job, memory_use(&use, &cfg, &limit, n));
        limit.bytes = use.bytes;
        TINY_OK(job, memory_fit(&fit, &cfg, &limit));
        CHECK(fit.fits.micro_batch >= n, "%lld sequences fit, %lld found", (long long)n,
              (long long)fit.fits.micro_batch);
        for (int64_t m = fit.fits.micro_batch + 1; m < fit.fits.micro_batch + 20; m++) {
            TINY_OK(job, memory_use(&use, &cfg, &limit, m));
            CHECK(use.bytes > limit.bytes, "%lld sequences fit, %lld found", (long long)m,
                  (long long)fit.fits.micro_batch);
        }
        limit.bytes--; /* a byte less, and these n do not */
        TINY_OK(job, memory_fit(&fit, &cfg, &limit));
        CHECK(fit.fits.bytes <= limit.bytes, "%zu bytes in %zu", fit.fits.bytes, limit.bytes);
    }
}
END_TEST

/* What a backend takes beside counts, also where it falls as n grows. */
static enum status even_ones_cost(struct memory_beside *beside, const struct config *cfg)
{
    *beside = (struct memory_beside){.scratch = cfg->train.micro_batch % 2 ? 0 : 1 << 20};
    return ST_OK;
}

START_TEST(what_stands_beside_counts)
{
    struct memory_limit limit = {.beside = memory_beside_none};
    struct memory_fit fit;
    struct memory_use use;
    struct config cfg;

    if (size > 1)
        return;
    tiny_run_config(&cfg, tiny_t8, (const char *const[]){"parallel.layout_exact=off", NULL},
                    (struct tiny_layout){1, 1, 0});
    TINY_OK(job, memory_use(&use, &cfg, &limit, 10));
    limit = (struct memory_limit){.bytes = use.bytes, .beside = even_ones_cost};
    TINY_OK(job, memory_fit(&fit, &cfg, &limit));
    CHECK(fit.fits.micro_batch == 9 && fit.over.micro_batch == 10, "%lld fit",
          (long long)fit.fits.micro_batch);
    CHECK(fit.over.bytes == use.bytes + (1 << 20), "%zu with one more", fit.over.bytes);
    limit.bytes = 1000;
    TINY_OK(job, memory_fit(&fit, &cfg, &limit));
    CHECK(fit.fits.micro_batch == 0 && fit.over.micro_batch == 1, "in 1000 bytes %lld fit",
          (long long)fit.fits.micro_batch);
    limit.bytes = (size_t)1 << 60;
    TINY_OK(job, memory_fit(&fit, &cfg, &limit));
    CHECK(fit.fits.micro_batch == 1 << 24 && fit.over.micro_batch == 0, "without a limit %lld fit",
          (long long)fit.fits.micro_batch);
}
END_TEST

START_TEST(sizes_are_read)
{
    CHECK(text_size("80GiB") == 80 * 0x1p30, "GiB");
    CHECK(text_size("1.5 TiB") == 1.5 * 0x1p40, "TiB");
    CHECK(text_size("141GB") == 141e9, "GB");
    CHECK(text_size("4096") == 4096.0 && text_size("7B") == 7.0, "bytes");
    CHECK(text_size("") < 0 && text_size("GiB") < 0 && text_size("-1GiB") < 0, "no size");
    CHECK(text_size("80Gib") < 0 && text_size("80  GiB") < 0 && text_size("1GiBs") < 0, "no unit");
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("memory_fit");
    TCase *tc = tcase_create("memory_fit");

    if (host_start(&job, &argc, &argv) != ST_OK)
        return EXIT_FAILURE;
    size = host_size(job);
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, n_fits_and_one_more_does_not, 0, sizeof trials / sizeof *trials);
    tcase_add_test(tc, nothing_larger_fits);
    tcase_add_test(tc, what_stands_beside_counts);
    tcase_add_test(tc, sizes_are_read);
    suite_add_tcase(s, tc);
    return check_job(job, s);
}
