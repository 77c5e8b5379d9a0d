/* How far the host runs ahead of the GPU, against a stream that is played: never so far that the
 * driver's queue could be full, no less far than it may, and with the right event of the ring.
 * Needs no GPU. */
#include "common/base/rng.h"
#include "gpu/ahead.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdlib.h>

/* The driver's queue, and the most that one call puts there before it is counted. */
enum { QUEUE = 1024, BURST = 16 };

/* A stream: things are done in order. event: after how many of them each is complete; 0: never
 * recorded, or found complete, so that it may be recorded anew. */
struct fake {
    int64_t put, done;
    int64_t event[GPU_AHEAD_SLOTS];
    int speed; /* things done between two looks at an event; 0: it hangs */
    int records, looks;
};

static int is_complete(struct fake *f, int slot)
{
    int64_t left = f->put - f->done;

    ck_assert_int_gt(f->event[slot], 0);
    f->looks++;
    f->done += left < f->speed ? left : f->speed;
    return f->done >= f->event[slot];
}

/* As gpu_put of device.c; returns 0 when `patience` looks at an event were not enough. */
static int put(struct gpu_ahead *a, struct fake *f, int n, int patience)
{
    int slot;

    f->put += n;
    slot = gpu_ahead_put(a, n);
    if (slot >= 0) {
        ck_assert_int_lt(slot, GPU_AHEAD_SLOTS);
        ck_assert_int_eq(f->event[slot], 0);
        f->event[slot] = f->put;
        f->records++;
    }
    while ((slot = gpu_ahead_far(a)) >= 0) {
        ck_assert_int_lt(slot, GPU_AHEAD_SLOTS);
        while (!is_complete(f, slot))
            if (patience-- == 0)
                return 0;
        f->event[slot] = 0;
        gpu_ahead_reached(a);
    }
    return 1;
}

START_TEST(hung_stream)
{
    struct gpu_ahead a = {0};
    struct fake f = {0};
    int n = 1 + _i, last = BURST - n;

    while (put(&a, &f, n, 100))
        ;
    ck_assert_int_gt(f.put, GPU_AHEAD_MOST);     /* no less than it may */
    ck_assert_int_le(f.put, GPU_AHEAD_MOST + n); /* held at once */
    ck_assert_int_le(f.put + last + n, QUEUE);   /* what one call had begun still found room */
    ck_assert_int_eq(f.looks, 101);              /* it would look for ever */
    ck_assert_int_ge(f.records, GPU_AHEAD_MOST / (GPU_AHEAD_EVERY + n));
}
END_TEST

/* As many marks as there can be. */
START_TEST(full_ring)
{
    struct gpu_ahead a = {0};
    struct fake f = {.speed = 1};

    for (int i = 0; i < GPU_AHEAD_MOST; i++)
        ck_assert(put(&a, &f, 1, 0));
    ck_assert(put(&a, &f, GPU_AHEAD_EVERY, GPU_AHEAD_EVERY));
    ck_assert_int_eq(f.records, GPU_AHEAD_SLOTS);
    ck_assert_int_eq(f.put - f.done, GPU_AHEAD_MOST);
}
END_TEST

/* Calls of all sizes on a stream of all speeds. */
START_TEST(slow_stream)
{
    struct gpu_ahead a = {0};
    struct fake f = {0};
    int64_t most = 0;
    struct rng_key key = rng_key((uint64_t)_i + 1, RNG_TEST, 0);

    for (int i = 0; i < 20000; i++) {
        int n = 1 + (int)rng_below(&key, 2 * (uint64_t)i, BURST);

        f.speed = 1 + (int)rng_below(&key, 2 * (uint64_t)i + 1, _i % 2 ? 8 : 300);
        ck_assert(put(&a, &f, n, 1000));
        ck_assert_int_le(f.put - f.done, GPU_AHEAD_MOST);
        most = f.put - f.done > most ? f.put - f.done : most;
    }
    if (_i % 2) /* the host does run ahead */
        ck_assert_int_gt(most, GPU_AHEAD_MOST - GPU_AHEAD_EVERY);
}
END_TEST

/* Where the GPU keeps up, an event costs one record and one look. */
START_TEST(fast_stream)
{
    struct gpu_ahead a = {0};
    struct fake f = {.speed = 1 << 30};

    for (int i = 0; i < 100 * GPU_AHEAD_EVERY; i++)
        ck_assert(put(&a, &f, 1, 0));
    ck_assert_int_eq(f.records, 100);
    ck_assert_int_le(f.looks, 100);
}
END_TEST

/* What counts for more than the host may be ahead, or for a good part of it: held until enough of
 * the things before, or it itself, is done. */
START_TEST(large_things)
{
    static const int sizes[] = {GPU_AHEAD_EVERY - 1, GPU_AHEAD_EVERY, 256, GPU_AHEAD_MOST, 5000};
    struct gpu_ahead a = {0};
    struct fake f = {.speed = 64};
    int held = 0;

    for (int i = 0; i < 1000; i++) {
        int looks = f.looks;

        ck_assert(put(&a, &f, sizes[_i], 1000));
        ck_assert(put(&a, &f, 1, 1000));
        ck_assert_int_le(f.put - f.done, GPU_AHEAD_MOST);
        held += f.looks > looks;
    }
    ck_assert_int_gt(held, 0);
    if (sizes[_i] > GPU_AHEAD_MOST)
        ck_assert_int_eq(held, 1000);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gpu_ahead");
    TCase *t = tcase_create("ahead");

    tcase_add_loop_test(t, hung_stream, 0, BURST);
    tcase_add_test(t, full_ring);
    tcase_add_loop_test(t, slow_stream, 0, 4);
    tcase_add_test(t, fast_stream);
    tcase_add_loop_test(t, large_things, 0, 5);
    suite_add_tcase(s, t);
    return check_unit(s);
}
