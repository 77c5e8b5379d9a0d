/* Cutting text into words as the regular expressions of well-known tokenizers do, by hand. The
 * unit tests compare with PCRE2. Bytes that are not UTF-8 count as characters of their own that are
 * neither letter, number nor space.
 */
#ifndef COMMON_TOKENIZER_SCAN_H
#define COMMON_TOKENIZER_SCAN_H

#include <stdint.h>

enum scan_class { SCAN_OTHER, SCAN_LETTER, SCAN_NUMBER, SCAN_SPACE };

/* The regular expression of GPT-2, and of cl100k_base and LLaMA 3 with numbers of at most
 * "{1,3}" digits (Qwen 2: without that: one digit). */
#define SCAN_GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SCAN_CL100K(digits)                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The class of a code point: \p{L}, \p{N}, White_Space, or none of them. */
enum scan_class scan_class(int32_t code);

/* The class of the character at text[at], at < n, and its length in bytes. */
enum scan_class scan_char(int *length, const unsigned char *text, int64_t n, int64_t at);

/* The code point at text[at] and its length; -1 and 1 for a byte that begins no character. */
int32_t scan_code(int *length, const unsigned char *text, int64_t n, int64_t at);

/* Where the word that begins at text[at] ends; at < n. The words cover the text. */
int64_t scan_gpt2(const unsigned char *text, int64_t n, int64_t at);
int64_t scan_cl100k(const unsigned char *text, int64_t n, int64_t at, int digits);

#endif
