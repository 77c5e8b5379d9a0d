/* 64-bit hashes of bytes (XXH64, as `xxh64sum` prints them) and their hexadecimal text.
 *
 * Not meant against an adversary: they find damage and differences, and turn names into streams
 * of random numbers.
 */
#ifndef COMMON_BASE_HASH_H
#define COMMON_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { HASH_HEX = 17 }; /* bytes of a hash as text: 16 digits and the closing zero */

/* A hash whose bytes come in pieces. State lives inside: nothing to free, copies are forks. */
struct hash {
    uint64_t state[11];
};

/* XXH64 of n bytes with seed 0. n = 0 is allowed, data may then be NULL. */
uint64_t hash_bytes(const void *data, size_t n);

/* hash_bytes of a text without its closing zero; the stream number of a parameter's name. */
uint64_t hash_text(const char *text);

/* A hash of the pair (h, n bytes); order matters: hash_more(hash_more(0, a), b) chains records. */
uint64_t hash_more(uint64_t h, const void *data, size_t n);

/* In pieces: begin, add any number of times, and read at any time. The value equals hash_bytes of
 * the pieces put together. */
void hash_begin(struct hash *s);
void hash_add(struct hash *s, const void *data, size_t n);
uint64_t hash_value(const struct hash *s);

/* 16 lower-case hexadecimal digits, most significant first. */
void hash_hex(char out[HASH_HEX], uint64_t h);

#endif
