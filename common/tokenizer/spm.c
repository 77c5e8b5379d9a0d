#include "common/tokenizer/spm.h"

#include "common/tokenizer/pieces.h"
#include "common/tokenizer/wire.h"

#include <stdio.h>

/* What a file says besides its pieces; names as in sentencepiece_model.proto. */
struct settings {
    uint64_t model_type, treat_whitespace_as_suffix; /* trainer_spec */
    int32_t begin, end, pad;
    uint64_t add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces; /* normalizer_spec */
    int64_t table; /* bytes of precompiled_charsmap */
    char name[32];
    int trainer, normalizer; /* the two stand in the file */
};

struct piece {
    struct wire text;
    float score;
    uint64_t type;
};

struct reading {
    struct settings settings;
    struct pieces pieces;
};

/* Hands each field of a message to take(). */
static enum status each_field(struct wire message, void *context,
                              enum status (*take)(void *context, const struct wire_field *f))
{
    struct wire_field f;
    int more;

    TRY(wire_next(&f, &more, &message));
    while (more) {
        TRY(take(context, &f));
        TRY(wire_next(&f, &more, &message));
    }
    return ST_OK;
}

static enum status piece_field(void *context, const struct wire_field *f)
{
    struct piece *p = context;

    switch (f->number) {
    case 1:
        p->text = f->bytes;
        return wire_expect(f, WIRE_BYTES, "the text of a piece");
    case 2:
        p->score = wire_float(f);
        return wire_expect(f, WIRE_FIXED32, "the score of a piece");
    case 3:
        p->type = f->value;
        return wire_expect(f, WIRE_VARINT, "the type of a piece");
    default:
        return ST_OK;
    }
}

static enum status read_piece(struct pieces *pieces, struct wire message)
{
    struct piece p = {.type = PIECE_NORMAL};

    TRY(each_field(message, &p, piece_field));
    if (p.type < PIECE_NORMAL || p.type > PIECE_BYTE)
        return fail(ST_EFORMAT, "piece %d is of type %llu, which is not known", (int)pieces->count,
                    (unsigned long long)p.type);
    return pieces_add(pieces, p.text.at, p.text.end - p.text.at, p.score, (enum piece_type)p.type);
}

static enum status trainer_field(void *context, const struct wire_field *f)
{
    struct settings *s = context;

    if (f->type != WIRE_VARINT)
        return ST_OK;
    if (f->number == 3)
        s->model_type = f->value;
    else if (f->number == 24)
        s->treat_whitespace_as_suffix = f->value;
    else if (f->number == 41)
        s->begin = (int32_t)f->value;
    else if (f->number == 42)
        s->end = (int32_t)f->value;
    else if (f->number == 43)
        s->pad = (int32_t)f->value;
    return ST_OK;
}

static enum status normalizer_field(void *context, const struct wire_field *f)
{
    struct settings *s = context;
    size_t n = (size_t)(f->bytes.end - f->bytes.at);

    if (f->number == 1 && f->type == WIRE_BYTES)
        snprintf(s->name, sizeof s->name, "%.*s", n < 31 ? (int)n : 31,
                 n ? (const char *)f->bytes.at : "");
    else if (f->number == 2 && f->type == WIRE_BYTES)
        s->table = (int64_t)n;
    else if (f->number == 3)
        s->add_dummy_prefix = f->value;
    else if (f->number == 4)
        s->remove_extra_whitespaces = f->value;
    else if (f->number == 5)
        s->escape_whitespaces = f->value;
    return ST_OK;
}

static enum status model_field(void *context, const struct wire_field *f)
{
    struct reading *r = context;

    if (f->number > 3)
        return ST_OK;
    TRY(wire_expect(f, WIRE_BYTES, "a part of the model"));
    if (f->number == 1)
        return read_piece(&r->pieces, f->bytes);
    *(f->number == 2 ? &r->settings.trainer : &r->settings.normalizer) = 1;
    return each_field(f->bytes, &r->settings, f->number == 2 ? trainer_field : normalizer_field);
}

static enum status check(const struct settings *s)
{
    static const char *const types[] = {"", "unigram", "BPE", "word", "char"};

    if (!s->trainer || !s->normalizer)
        return fail(ST_EFORMAT, "it ends before its trainer_spec or normalizer_spec");
    if (s->model_type != 2)
        return fail(ST_EFORMAT, "it is a model of type %llu (%s); BPE (2) is supported",
                    (unsigned long long)s->model_type,
                    s->model_type < 5 ? types[s->model_type] : "not known");
    if (s->table > 0)
        return fail(ST_EFORMAT,
                    "its normalizer '%s' has a table of %lld bytes, which is not supported; train "
                    "with --normalization_rule_name=identity",
                    s->name, (long long)s->table);
    if (s->treat_whitespace_as_suffix || !s->escape_whitespaces)
        return fail(ST_EFORMAT, "treat_whitespace_as_suffix and models without "
                                "escape_whitespaces are not supported");
    return ST_OK;
}

/* An id of trainer_spec, or -1 where no piece of that type has it. */
static int32_t special_id(const struct recipe *r, int32_t id)
{
    return id >= 0 && id < r->vocab.size && r->vocab.entries[id].special ? id : -1;
}

static void set_special(struct tokenizer *t, struct recipe *r, const struct settings *s)
{
    t->begin = special_id(r, s->begin);
    t->end = special_id(r, s->end);
    t->pad = special_id(r, s->pad);
    if (t->begin >= 0)
        r->before[r->before_n++] = t->begin;
}

enum status spm_open(struct tokenizer *t, const struct byte_list *content)
{
    const unsigned char *bytes = (const unsigned char *)content->bytes;
    struct reading r = {.settings = {.model_type = 1, /* the proto's defaults */
                                     .begin = 1,
                                     .end = 2,
                                     .pad = -1,
                                     .add_dummy_prefix = 1,
                                     .remove_extra_whitespaces = 1,
                                     .escape_whitespaces = 1}};
    enum status st = recipe_open(&r.pieces.recipe);

    if (st == ST_OK)
        st = each_field((struct wire){bytes, bytes + content->count}, &r, model_field);
    if (st == ST_OK)
        st = check(&r.settings);
    if (st == ST_OK)
        st = pieces_merges(&r.pieces);
    if (st == ST_OK)
        st = pieces_finish(t, &r.pieces, r.settings.add_dummy_prefix != 0,
                           r.settings.remove_extra_whitespaces != 0);
    if (st == ST_OK)
        set_special(t, r.pieces.recipe, &r.settings);
    if (st == ST_OK)
        r.pieces.recipe = NULL; /* it belongs to t */
    recipe_close(r.pieces.recipe);
    pieces_close(&r.pieces);
    return st;
}
