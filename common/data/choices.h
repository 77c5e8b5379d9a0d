/* Multiple-choice questions as llm.c stores them (hellaswag_val.bin and the like).
 *
 * 256 int32 (magic 20240522, version 1, number of questions, bytes of the longest), then uint16.
 * A question: 65535, its bytes, its number, the right answer, number of answers, tokens of the
 * context, the context, and for each answer its tokens' number and its tokens. The file ends with
 * the last question.
 */
#ifndef COMMON_DATA_CHOICES_H
#define COMMON_DATA_CHOICES_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { CHOICES_MAGIC = 20240522, CHOICES_MOST = 64 }; /* answers of a question */

struct choices {
    char *path;
    uint16_t *words; /* the file behind its header */
    int64_t n;       /* of them */
    int64_t questions;
    int64_t *start;  /* [questions]: where each begins in words */
    int64_t longest; /* most tokens of a context and one answer together */
    int32_t largest; /* largest token id */
};

/* One question; pointers into the file's words. */
struct choices_question {
    int answers, right;
    const uint16_t *context;
    int64_t context_tokens;
    const uint16_t *answer[CHOICES_MOST];
    int64_t answer_tokens[CHOICES_MOST];
};

/* Nonzero when path is a file that begins with the magic number. */
int choices_is(const char *path);

/* Reads and checks all of path. On failure nothing needs closing. Local. Errors: ST_EIO; ST_EFORMAT
 * with the question and the cause: a number that does not fit the file, no answer or more than
 * CHOICES_MOST, an empty context or answer; ST_ENOMEM. */
enum status choices_open(struct choices *c, const char *path);
void choices_close(struct choices *c);

/* Question i of [0, c->questions). */
void choices_question(struct choices_question *q, const struct choices *c, int64_t i);

#endif
