/* Lists of token ids and of bytes that grow as they are filled. Start with {0}; the owner frees. */
#ifndef COMMON_TOKENIZER_LIST_H
#define COMMON_TOKENIZER_LIST_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct token_list {
    int32_t *ids;
    int64_t count, room;
};

struct byte_list {
    char *bytes; /* no closing zero */
    int64_t count, room;
};

/* Makes room for n more. What is there stays; pointers into it do not. Errors: ST_ENOMEM. */
enum status list_tokens_room(struct token_list *list, int64_t n);
enum status list_bytes_room(struct byte_list *list, int64_t n);

/* Appends n ids, or n bytes. Errors: ST_ENOMEM. */
enum status list_tokens_add(struct token_list *list, const int32_t *ids, int64_t n);
enum status list_bytes_add(struct byte_list *list, const void *bytes, int64_t n);

/* Releases the memory; the list is empty then and may be filled again. */
void list_tokens_free(struct token_list *list);
void list_bytes_free(struct byte_list *list);

#endif
