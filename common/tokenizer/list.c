#include "common/tokenizer/list.h"

#include <stdlib.h>
#include <string.h>

/* Where `room` grows to, so that n more than count fit; 0 when they do already. */
static int64_t wanted(int64_t count, int64_t room, int64_t n)
{
    if (n <= room - count)
        return 0;
    return count + n > 2 * room ? count + n : 2 * room;
}

static enum status no_memory(int64_t n)
{
    return fail(ST_ENOMEM, "no memory for %lld tokens or bytes of text; give shorter documents",
                (long long)n);
}

enum status list_tokens_room(struct token_list *list, int64_t n)
{
    int64_t room = wanted(list->count, list->room, n);
    int32_t *bigger;

    if (room == 0)
        return ST_OK;
    bigger = realloc(list->ids, (size_t)room * sizeof *bigger);
    if (!bigger)
        return no_memory(room);
    list->ids = bigger;
    list->room = room;
    return ST_OK;
}

enum status list_bytes_room(struct byte_list *list, int64_t n)
{
    int64_t room = wanted(list->count, list->room, n);
    char *bigger;

    if (room == 0)
        return ST_OK;
    bigger = realloc(list->bytes, (size_t)room);
    if (!bigger)
        return no_memory(room);
    list->bytes = bigger;
    list->room = room;
    return ST_OK;
}

enum status list_tokens_add(struct token_list *list, const int32_t *ids, int64_t n)
{
    TRY(list_tokens_room(list, n));
    if (n > 0)
        memcpy(list->ids + list->count, ids, (size_t)n * sizeof *ids);
    list->count += n;
    return ST_OK;
}

enum status list_bytes_add(struct byte_list *list, const void *bytes, int64_t n)
{
    TRY(list_bytes_room(list, n));
    if (n > 0)
        memcpy(list->bytes + list->count, bytes, (size_t)n);
    list->count += n;
    return ST_OK;
}

void list_tokens_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

void list_bytes_free(struct byte_list *list)
{
    free(list->bytes);
    *list = (struct byte_list){0};
}
