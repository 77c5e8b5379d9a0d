/* with: common/base common/data/choices.c
 * seeds: tests/fuzz/questions.bin
 *
 * Any bytes as a file of multiple-choice questions: refused with a reason, or every question can be
 * read, within the numbers that were told of all. */
#include "common/data/choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

static void check(const struct choices *c, const uint16_t *tokens, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] > c->largest)
            abort();
}

static void use(const struct choices *c)
{
    struct choices_question q;

    for (int64_t i = 0; i < c->questions; i++) {
        choices_question(&q, c, i);
        if (q.answers < 1 || q.answers > CHOICES_MOST || q.right < 0 || q.right >= q.answers)
            abort();
        check(c, q.context, q.context_tokens);
        for (int a = 0; a < q.answers; a++) {
            check(c, q.answer[a], q.answer_tokens[a]);
            if (q.context_tokens < 1 || q.answer_tokens[a] < 1 ||
                q.context_tokens + q.answer_tokens[a] > c->longest)
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    int fd = memfd_create("fuzz", 0);
    struct choices c;
    char path[64];

    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    status_clear();
    if (choices_open(&c, path) == ST_OK) {
        use(&c);
        choices_close(&c);
    } else if (!*status_message()) {
        abort(); /* refused without a reason */
    }
    close(fd);
    return 0;
}
