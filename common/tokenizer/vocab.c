#include "common/tokenizer/vocab.h"

#include "common/base/hash.h"

#include <stdlib.h>
#include <string.h>

static enum status make_room(struct vocab *v, int64_t id)
{
    int64_t room = id < 2 * (int64_t)v->room ? 2 * (int64_t)v->room : id + 1;
    struct vocab_entry *bigger;

    if (id < v->room)
        return ST_OK;
    bigger = realloc(v->entries, (size_t)room * sizeof *bigger);
    if (!bigger)
        return fail(ST_ENOMEM, "no memory for %lld tokens", (long long)room);
    memset(bigger + v->room, 0, (size_t)(room - v->room) * sizeof *bigger);
    v->entries = bigger;
    v->room = (int32_t)room;
    return ST_OK;
}

enum status vocab_put(struct vocab *v, int64_t id, const void *key, int64_t n)
{
    struct vocab_entry *e;

    if (id < 0 || id >= VOCAB_MOST)
        return fail(ST_EFORMAT, "token '%.*s' has id %lld; ids go from 0 to %d",
                    (int)(n < 40 ? n : 40), (const char *)key, (long long)id, VOCAB_MOST - 1);
    TRY(make_room(v, id));
    e = &v->entries[id];
    if (e->present)
        return fail(ST_EFORMAT, "id %lld is given to two tokens, '%.*s' and '%.*s'", (long long)id,
                    e->key_n < 40 ? e->key_n : 40, v->bytes.bytes + e->key, (int)(n < 40 ? n : 40),
                    (const char *)key);
    e->present = 1;
    e->key = e->text = v->bytes.count;
    e->key_n = e->text_n = (int32_t)n;
    if (id >= v->size)
        v->size = (int32_t)id + 1;
    return list_bytes_add(&v->bytes, key, n);
}

enum status vocab_text(struct vocab *v, int32_t id, const void *text, int64_t n)
{
    v->entries[id].text = v->bytes.count;
    v->entries[id].text_n = (int32_t)n;
    return list_bytes_add(&v->bytes, text, n);
}

/* The slot of that key, or the free one where it would go. */
static uint64_t slot_of(const struct vocab *v, const void *key, int64_t n)
{
    uint64_t slot = hash_bytes(key, (size_t)n) & v->mask;

    for (; v->slots[slot]; slot = (slot + 1) & v->mask) {
        const struct vocab_entry *e = &v->entries[v->slots[slot] - 1];

        if (e->key_n == n && (n == 0 || memcmp(v->bytes.bytes + e->key, key, (size_t)n) == 0))
            break;
    }
    return slot;
}

static enum status insert(struct vocab *v, int32_t id)
{
    const struct vocab_entry *e = &v->entries[id];
    const char *key = v->bytes.bytes + e->key;
    uint64_t slot = slot_of(v, key, e->key_n);

    if (v->slots[slot])
        return fail(ST_EFORMAT, "token '%.*s' has two ids, %d and %d",
                    e->key_n < 40 ? e->key_n : 40, key, (int)v->slots[slot] - 1, (int)id);
    v->slots[slot] = id + 1;
    return ST_OK;
}

enum status vocab_index(struct vocab *v)
{
    uint64_t size = 16;

    while (size < 2 * (uint64_t)v->size)
        size *= 2;
    free(v->slots);
    v->mask = size - 1;
    v->slots = calloc(size, sizeof *v->slots);
    if (!v->slots)
        return fail(ST_ENOMEM, "no memory for %d tokens", (int)v->size);
    for (int32_t id = 0; id < v->size; id++)
        if (v->entries[id].present && !v->entries[id].hidden)
            TRY(insert(v, id));
    return ST_OK;
}

enum status vocab_seal(struct vocab *v)
{
    if (v->size == 0)
        return fail(ST_EFORMAT, "the vocabulary is empty");
    for (int32_t id = 0; id < v->size; id++)
        if (!v->entries[id].present)
            return fail(ST_EFORMAT,
                        "no token has id %d, and the largest id is %d; ids must be without holes",
                        (int)id, (int)v->size - 1);
    return vocab_index(v);
}

void vocab_close(struct vocab *v)
{
    list_bytes_free(&v->bytes);
    free(v->entries);
    free(v->slots);
    *v = (struct vocab){0};
}

int32_t vocab_find(const struct vocab *v, const void *key, int64_t n)
{
    return v->slots[slot_of(v, key, n)] - 1;
}

const char *vocab_key_of(const struct vocab *v, int32_t id)
{
    return v->bytes.bytes + v->entries[id].key;
}

const char *vocab_text_of(const struct vocab *v, int32_t id)
{
    return v->bytes.bytes + v->entries[id].text;
}
