/* "Did you mean ...?": the known word that is closest to a misspelt one. */
#ifndef COMMON_MODEL_NEAREST_H
#define COMMON_MODEL_NEAREST_H

#include <stddef.h>

/* Letters to insert, delete, replace or swap with their neighbour to turn a into b. Words longer
 * than 63 letters are cut there. */
int nearest_distance(const char *a, const char *b);

/* The closest of words so far: start with best NULL, offer each known word, read best. A word is
 * taken only when it is near enough to be a slip of the finger: at most a third of the letters of
 * `word` differ, or two of a short one. */
struct nearest {
    const char *word; /* as typed */
    const char *best; /* NULL: nothing is near */
    int distance;     /* of best */
};

/* A search for word. */
struct nearest nearest_to(const char *word);

/* Offers one known word, which must outlive n. The first of equally close ones stays. */
void nearest_offer(struct nearest *n, const char *known);

#endif
