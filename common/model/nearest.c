#include "common/model/nearest.h"

#include <limits.h>
#include <string.h>

enum { LETTERS = 64 }; /* longer words are cut to 63 */

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int cell(int row[3][LETTERS], const char *a, const char *b, size_t i, size_t j)
{
    int d = least(row[1][j] + 1, row[2][j - 1] + 1);

    d = least(d, row[1][j - 1] + (a[i - 1] != b[j - 1]));
    if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d = least(d, row[0][j - 2] + 1);
    return d;
}

int nearest_distance(const char *a, const char *b)
{
    int row[3][LETTERS]; /* of letters i - 2, i - 1 and i of a */
    size_t na = strnlen(a, LETTERS - 1), nb = strnlen(b, LETTERS - 1);

    memset(row, 0, sizeof row);
    for (size_t j = 0; j <= nb; j++)
        row[2][j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        memmove(row[0], row[1], 2 * sizeof row[0]);
        row[2][0] = (int)i;
        for (size_t j = 1; j <= nb; j++)
            row[2][j] = cell(row, a, b, i, j);
    }
    return row[2][nb];
}

struct nearest nearest_to(const char *word)
{
    return (struct nearest){word, NULL, INT_MAX};
}

void nearest_offer(struct nearest *n, const char *known)
{
    int d = nearest_distance(n->word, known);
    int letters = (int)strnlen(n->word, LETTERS - 1);
    int allowed = letters < 6 ? least(2, letters - 1) : letters / 3;

    if (d <= allowed && d < n->distance) {
        n->distance = d;
        n->best = known;
    }
}
