#include "common/tokenizer/decoder.h"

#include <string.h>

struct decoder decoder_begin(const struct tokenizer *t, unsigned how)
{
    return (struct decoder){.t = t, .how = how, .strip = t->strip};
}

struct decoder decoder_continue(const struct tokenizer *t, unsigned how)
{
    return (struct decoder){.t = t, .how = how};
}

/* Bytes at the end of text that may be the beginning of a character. */
static int32_t unfinished(const char *bytes, int64_t n)
{
    for (int32_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)bytes[n - back];
        int length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if ((c & 0xc0) == 0x80) /* inside a character */
            continue;
        return back < length ? back : 0;
    }
    return 0;
}

/* Leaves out the spaces at the beginning of a text; strip is 0 once something else was met. */
static void strip(struct decoder *d, struct token_piece *p)
{
    while (d->strip > 0 && p->n > 0) {
        if (*p->bytes != ' ') {
            d->strip = 0;
            return;
        }
        p->bytes++;
        p->n--;
        d->strip--;
    }
}

enum status decoder_add(struct byte_list *out, struct decoder *d, int32_t id)
{
    int64_t from = out->count;
    struct token_piece p;

    TRY(tokenizer_piece(&p, d->t, id));
    if (p.special && !(d->how & TOKENIZER_SPECIAL))
        return ST_OK;
    strip(d, &p);
    TRY(list_bytes_add(out, d->waiting, d->held));
    d->held = 0;
    TRY(list_bytes_add(out, p.bytes, p.n));
    d->held = out->count > from ? unfinished(out->bytes + from, out->count - from) : 0;
    out->count -= d->held;
    if (d->held > 0)
        memcpy(d->waiting, out->bytes + out->count, (size_t)d->held);
    return ST_OK;
}

enum status decoder_end(struct byte_list *out, struct decoder *d)
{
    TRY(list_bytes_add(out, d->waiting, d->held));
    d->held = 0;
    return ST_OK;
}
