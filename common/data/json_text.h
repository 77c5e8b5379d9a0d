/* The text under a key of a JSON object that is too long to be held: the object comes in pieces and
 * its text goes out in pieces. What stands around the text, which is short as a rule, is kept for
 * the JSON parser, with an empty text in its place; so is checked what it would have checked.
 */
#ifndef COMMON_DATA_JSON_TEXT_H
#define COMMON_DATA_JSON_TEXT_H

#include "common/tokenizer/list.h"

/* Start with {.key = KEY}. */
struct json_text {
    const char *key;            /* borrowed */
    struct byte_list rest;      /* all but the text */
    struct byte_list name_text; /* the last key of the outermost object, in quotes */
    int depth;                  /* of objects and lists around */
    int in_string, in_text;     /* within a string that is kept; within the text */
    int escaped;                /* the character before, in a kept string, is a backslash */
    int wanted;                 /* the last key of the outermost object is ours */
    int64_t name, name_end;     /* in rest: the last string that is kept, without quotes */
};

/* Takes *used <= n bytes of whole characters and appends what they hold of the text to out. What is
 * not used yet (the beginning of an escape) is to be given again with more behind it. Errors:
 * ST_EFORMAT, without a place, for a text that JSON does not allow; ST_ENOMEM. */
enum status json_text_add(struct byte_list *out, int64_t *used, struct json_text *j,
                          const char *bytes, int64_t n);

/* Releases the memory. */
void json_text_free(struct json_text *j);

#endif
