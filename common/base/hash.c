#define XXH_STATIC_LINKING_ONLY /* shows the size of the state */

#include "common/base/hash.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

_Static_assert(sizeof(XXH64_state_t) <= sizeof(struct hash), "struct hash holds XXH64's state");

uint64_t hash_bytes(const void *data, size_t n)
{
    return XXH64(n > 0 ? data : "", n, 0);
}

uint64_t hash_text(const char *text)
{
    return hash_bytes(text, strlen(text));
}

uint64_t hash_more(uint64_t h, const void *data, size_t n)
{
    return XXH64(n > 0 ? data : "", n, h);
}

/* The state is copied out and in, since struct hash hides its type. */

void hash_begin(struct hash *s)
{
    XXH64_state_t state;

    memset(&state, 0, sizeof state);
    memset(s, 0, sizeof *s);
    XXH64_reset(&state, 0);
    memcpy(s, &state, sizeof state);
}

void hash_add(struct hash *s, const void *data, size_t n)
{
    XXH64_state_t state;

    if (n == 0)
        return;
    memcpy(&state, s, sizeof state);
    XXH64_update(&state, data, n);
    memcpy(s, &state, sizeof state);
}

uint64_t hash_value(const struct hash *s)
{
    XXH64_state_t state;

    memcpy(&state, s, sizeof state);
    return XXH64_digest(&state);
}

void hash_hex(char out[HASH_HEX], uint64_t h)
{
    snprintf(out, HASH_HEX, "%016llx", (unsigned long long)h);
}
