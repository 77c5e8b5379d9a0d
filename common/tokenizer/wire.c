#include "common/tokenizer/wire.h"

#include <string.h>

static enum status too_short(const char *what)
{
    return fail(ST_EFORMAT, "the file ends inside of %s", what);
}

static enum status varint(uint64_t *value, struct wire *w)
{
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        unsigned char byte;

        if (w->at == w->end)
            return too_short("a number");
        byte = *w->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return ST_OK;
    }
    return fail(ST_EFORMAT, "a number has more than 10 bytes");
}

/* A number of n bytes, the lowest first. */
static enum status fixed(uint64_t *value, struct wire *w, int n)
{
    if (w->end - w->at < n)
        return too_short("a number");
    *value = 0;
    for (int i = 0; i < n; i++)
        *value |= (uint64_t)w->at[i] << 8 * i;
    w->at += n;
    return ST_OK;
}

static enum status bytes(struct wire_field *f, struct wire *w)
{
    TRY(varint(&f->value, w));
    if (f->value > (uint64_t)(w->end - w->at))
        return fail(ST_EFORMAT, "field %u is to have %llu bytes, and %lld are left in the file",
                    (unsigned)f->number, (unsigned long long)f->value, (long long)(w->end - w->at));
    f->bytes = (struct wire){w->at, w->at + f->value};
    w->at += f->value;
    return ST_OK;
}

enum status wire_next(struct wire_field *f, int *more, struct wire *w)
{
    uint64_t tag;

    *f = (struct wire_field){0};
    *more = w->at < w->end;
    if (!*more)
        return ST_OK;
    TRY(varint(&tag, w));
    f->number = (uint32_t)(tag >> 3);
    f->type = (enum wire_type)(tag & 7);
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return fail(ST_EFORMAT, "a field has number %llu; it is no protobuf message",
                    (unsigned long long)(tag >> 3));
    switch (f->type) {
    case WIRE_VARINT:
        return varint(&f->value, w);
    case WIRE_FIXED64:
        return fixed(&f->value, w, 8);
    case WIRE_BYTES:
        return bytes(f, w);
    case WIRE_FIXED32:
        return fixed(&f->value, w, 4);
    }
    return fail(ST_EFORMAT, "field %u has wire type %d, which is not in use", (unsigned)f->number,
                (int)(tag & 7));
}

float wire_float(const struct wire_field *f)
{
    uint32_t bits = (uint32_t)f->value;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

enum status wire_expect(const struct wire_field *f, enum wire_type type, const char *what)
{
    if (f->type == type)
        return ST_OK;
    return fail(ST_EFORMAT, "%s (field %u) has wire type %d, not %d", what, (unsigned)f->number,
                (int)f->type, (int)type);
}
