#include "common/backend/ledger.h"

#include <string.h>

static const char *const name[] = {
#define X(id, text) text,
    LEDGER_LIST(X)
#undef X
};

const char *ledger_name(enum ledger_purpose p)
{
    return (int)p >= 0 && p < LEDGER_COUNT ? name[p] : "unknown purpose";
}

void ledger_add(struct ledger *l, int64_t elements, int64_t wire_bytes)
{
    struct ledger_row *row;

    if (!l)
        return;
    row = &l->row[l->purpose];
    row->calls++;
    row->elements += elements;
    row->wire_bytes += wire_bytes;
}

enum status ledger_begin(struct ledger *l, const void *who, double now)
{
    if (!l)
        return ST_OK;
    for (int i = 0; i < l->spans; i++)
        if (l->span[i].who == who && l->span[i].purpose == l->purpose)
            return ST_OK;
    FAIL_IF(l->spans == LEDGER_SPANS, ST_EINTERNAL);
    l->span[l->spans++] = (struct ledger_span){.who = who, .purpose = l->purpose, .since = now};
    return ST_OK;
}

void ledger_end(struct ledger *l, const void *who, double waited, double now)
{
    int ended = 0, left = 0;

    if (!l)
        return;
    for (int i = 0; i < l->spans; i++)
        ended += l->span[i].who == who;
    for (int i = 0; i < l->spans; i++) {
        struct ledger_span *s = &l->span[i];

        if (s->who != who) {
            l->span[left++] = *s;
            continue;
        }
        l->row[s->purpose].seconds += now - s->since;
        l->row[s->purpose].exposed += (now - waited) / ended;
    }
    l->spans = left;
}

enum ledger_purpose ledger_for(struct ledger *l, enum ledger_purpose purpose)
{
    enum ledger_purpose before;

    if (!l)
        return purpose;
    before = l->purpose;
    l->purpose = purpose;
    return before;
}

void ledger_clear(struct ledger *l)
{
    memset(l->row, 0, sizeof l->row);
}

void ledger_since(struct ledger_row *out, const struct ledger *l, const struct ledger_row *before)
{
    for (int p = 0; p < LEDGER_COUNT; p++)
        out[p] = (struct ledger_row){.calls = l->row[p].calls - before[p].calls,
                                     .elements = l->row[p].elements - before[p].elements,
                                     .wire_bytes = l->row[p].wire_bytes - before[p].wire_bytes};
}

void ledger_repeat(struct ledger *l, const struct ledger_row *rows)
{
    for (int p = 0; l && p < LEDGER_COUNT; p++) {
        l->row[p].calls += rows[p].calls;
        l->row[p].elements += rows[p].elements;
        l->row[p].wire_bytes += rows[p].wire_bytes;
    }
}

struct ledger_row ledger_sum(const struct ledger *l, enum ledger_purpose first,
                             enum ledger_purpose last)
{
    struct ledger_row sum = {0};

    for (int p = (int)first; p <= (int)last; p++) {
        sum.calls += l->row[p].calls;
        sum.elements += l->row[p].elements;
        sum.wire_bytes += l->row[p].wire_bytes;
        sum.seconds += l->row[p].seconds;
        sum.exposed += l->row[p].exposed;
    }
    return sum;
}

static void print_row(const char *title, const struct ledger_row *row, bool timed, FILE *out)
{
    fprintf(out, "%-14s %10lld %16lld %16lld", title, (long long)row->calls,
            (long long)row->elements, (long long)row->wire_bytes);
    if (timed)
        fprintf(out, " %12.3f %12.3f", 1e3 * row->seconds, 1e3 * row->exposed);
    fprintf(out, "\n");
}

void ledger_print(const struct ledger *l, bool timed, FILE *out)
{
    struct ledger_row all = ledger_sum(l, 0, LEDGER_COUNT - 1);

    fprintf(out, "%-14s %10s %16s %16s", "purpose", "calls", "elements", "wire bytes");
    if (timed)
        fprintf(out, " %12s %12s", "ms", "ms exposed");
    fprintf(out, "\n");
    for (int p = 0; p < LEDGER_COUNT; p++)
        if (l->row[p].calls > 0)
            print_row(name[p], &l->row[p], timed, out);
    print_row("all", &all, timed, out);
}
