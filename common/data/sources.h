/* What data.train and data.validation name: one source of text, or a list of them with weights.
 *
 *     data/books.txt                          one source
 *     [data/books.bin, data/web-*.bin]        several, each as often as it is long
 *     [0.7 data/books.bin, 0.3 data/web]      several, by weights
 */
#ifndef COMMON_DATA_SOURCES_H
#define COMMON_DATA_SOURCES_H

#include "common/base/status.h"

#include <stdint.h>

enum { SOURCES_MOST = 64 };

struct sources {
    int n;
    char *path[SOURCES_MOST];     /* point into text */
    int64_t weight[SOURCES_MOST]; /* millionths */
    int weighted;                 /* nonzero when weights were given */
    char *text;                   /* owned */
};

/* Reads such a text; key is the name for messages. Weights are decimal numbers from 0.000001 to
 * 1000000; a weight is taken up to its sixth decimal, and more are refused. Release with
 * sources_close; on failure there is nothing to release. Errors: ST_ECONFIG for an empty list or
 * entry, a weight that is none, and weights for some sources only; ST_ENOMEM. */
enum status sources_read(struct sources *s, const char *key, const char *text);
void sources_close(struct sources *s);

#endif
