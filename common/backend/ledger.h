/* What was sent, by purpose: counted by the wrappers in comm.c, never assumed.
 *
 * elements: of the whole tensor that a collective works on (all-reduce: its count; all-gather and
 * reduce-scatter: the count of the full side), which is what the closed formulas of docs/math.md
 * count. wire bytes: what one rank sends in a ring, 2 (p-1)/p of the bytes for an all-reduce,
 * (p-1)/p for an all-gather, reduce-scatter or broadcast, all of them for a send, none for a
 * receive, which is timed but not counted. Groups of one rank send nothing and are not counted.
 * One grouped launch of several tensors is one call.
 */
#ifndef COMMON_BACKEND_LEDGER_H
#define COMMON_BACKEND_LEDGER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define LEDGER_LIST(X)                       \
    X(LEDGER_TP_FORWARD, "tp forward")       \
    X(LEDGER_TP_BACKWARD, "tp backward")     \
    X(LEDGER_TP_RECOMPUTE, "tp recompute")   \
    X(LEDGER_NORM_FORWARD, "norm forward")   \
    X(LEDGER_NORM_BACKWARD, "norm backward") \
    X(LEDGER_EMBED, "embedding")             \
    X(LEDGER_HEAD, "head and loss")          \
    X(LEDGER_DP, "dp gradients")             \
    X(LEDGER_ZERO, "zero")                   \
    X(LEDGER_PP, "pipeline")                 \
    X(LEDGER_NORM2, "grad norm")             \
    X(LEDGER_SAVE, "checkpoint")

enum ledger_purpose {
#define X(id, name) id,
    LEDGER_LIST(X)
#undef X
        LEDGER_COUNT
};

enum { LEDGER_SPANS = 64 };

struct ledger_row {
    int64_t calls, elements, wire_bytes;
    double seconds; /* from the first begin to the end of wait; part of it may be hidden */
    double exposed; /* spent in wait; a wait for several purposes counts in equal parts */
};

/* Collectives of one purpose that one communicator has begun and not ended. */
struct ledger_span {
    const void *who;
    enum ledger_purpose purpose;
    double since; /* seconds */
};

struct ledger {
    enum ledger_purpose purpose; /* of the collectives to come */
    struct ledger_row row[LEDGER_COUNT];
    struct ledger_span span[LEDGER_SPANS];
    int spans;
};

/* "tp forward" ... */
const char *ledger_name(enum ledger_purpose p);

/* Counts a call; l may be NULL. */
void ledger_add(struct ledger *l, int64_t elements, int64_t wire_bytes);

/* A collective of communicator who begins at second `now` (any monotonic clock); several of one
 * purpose are one span. l may be NULL. Errors: ST_EINTERNAL when LEDGER_SPANS are open. */
enum status ledger_begin(struct ledger *l, const void *who, double now);

/* All collectives that who has begun end at second `now`, after a wait since second `waited`. */
void ledger_end(struct ledger *l, const void *who, double waited, double now);

/* Sets what the following collectives are for; returns what they were for before. With
 * l NULL nothing is set. */
enum ledger_purpose ledger_for(struct ledger *l, enum ledger_purpose purpose);

/* Sets all counts to zero; the purpose and what is in flight stay. */
void ledger_clear(struct ledger *l);

/* out [LEDGER_COUNT]: calls, elements and bytes counted since l was `before`. */
void ledger_since(struct ledger_row *out, const struct ledger *l, const struct ledger_row *before);

/* Counts them once more: the same was sent again. Of its times nothing is known. l may be NULL. */
void ledger_repeat(struct ledger *l, const struct ledger_row *rows);

/* Sum over the purposes first .. last. */
struct ledger_row ledger_sum(const struct ledger *l, enum ledger_purpose first,
                             enum ledger_purpose last);

/* A table: purpose, calls, elements, wire bytes and, if timed, ms and ms exposed; rows without
 * calls left out. A rehearsal sends nothing, so its times say nothing. */
void ledger_print(const struct ledger *l, bool timed, FILE *out);

#endif
