/* Regular expressions of tokenizer files, which are written for Oniguruma or Rust, through PCRE2.
 *
 * \s and \S mean Unicode's White_Space as there (PCRE2's own have a character more), ^ and $ match
 * at lines. A pattern with set operations ("&&"), which PCRE2 would misread, is refused.
 */
#ifndef COMMON_TOKENIZER_PATTERN_H
#define COMMON_TOKENIZER_PATTERN_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pattern {
    void *code; /* read by all threads */
};

/* What one thread needs to match; start with {0}. */
struct pattern_scratch {
    void *data, *context, *stack;
};

/* Compiles n bytes. Errors: ST_EFORMAT with the place for what PCRE2 does not understand,
 * ST_ENOMEM. */
enum status pattern_open(struct pattern *p, const char *text, size_t n);
void pattern_close(struct pattern *p);

/* The first match in text[at .. n) that is not empty: *begin and *end, or *begin = *end = n for
 * none. What stands before `at` is seen by look-behind. Errors: ST_EFORMAT when PCRE2 gives up. */
enum status pattern_next(int64_t *begin, int64_t *end, const struct pattern *p,
                         struct pattern_scratch *s, const unsigned char *text, int64_t n,
                         int64_t at);
void pattern_scratch_free(struct pattern_scratch *s);

#endif
