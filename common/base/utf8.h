/* UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing over U+10FFFF. */
#ifndef COMMON_BASE_UTF8_H
#define COMMON_BASE_UTF8_H

#include <stddef.h>

/* Bytes of the character at text[0], 1 to 4; 0 when the n bytes there do not begin with a whole,
 * valid one. */
size_t utf8_length(const unsigned char *text, size_t n);

/* Offset of the first byte that does not start a valid character, or n when all is valid. */
size_t utf8_invalid(const unsigned char *text, size_t n);

#endif
