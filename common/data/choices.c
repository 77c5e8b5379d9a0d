#include "common/data/choices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 256, START = 65535, HEAD = 6 }; /* words of a question before its context */

int choices_is(const char *path)
{
    FILE *in = fopen(path, "rb");
    int32_t magic = 0;
    int is = in && fread(&magic, sizeof magic, 1, in) == 1 && magic == CHOICES_MAGIC;

    if (in)
        fclose(in);
    return is;
}

/* ---- reading ---- */

static enum status read_words(struct choices *c, FILE *in)
{
    int32_t header[HEADER];
    long end;

    if (fread(header, sizeof header, 1, in) != 1)
        return fail(ST_EFORMAT, "%s: no header of %d numbers", c->path, HEADER);
    if (header[0] != CHOICES_MAGIC || header[1] != 1)
        return fail(ST_EFORMAT, "%s: magic %d and version %d; %d and 1 are expected", c->path,
                    header[0], header[1], CHOICES_MAGIC);
    c->questions = header[2];
    if (fseek(in, 0, SEEK_END) || (end = ftell(in)) < 0 || fseek(in, (long)sizeof header, SEEK_SET))
        return fail(ST_EIO, "cannot read %s: %s", c->path, strerror(errno));
    c->n = (end - (long)sizeof header) / 2;
    if ((end - (long)sizeof header) % 2 || c->questions < 1 || c->questions > c->n / HEAD)
        return fail(ST_EFORMAT, "%s: %lld questions in %ld bytes", c->path, (long long)c->questions,
                    end);
    c->words = malloc((size_t)c->n * sizeof *c->words);
    c->start = malloc((size_t)c->questions * sizeof *c->start);
    if (!c->words || !c->start)
        return fail(ST_ENOMEM, "no memory for the %ld bytes of %s", end, c->path);
    if (fread(c->words, sizeof *c->words, (size_t)c->n, in) != (size_t)c->n)
        return fail(ST_EIO, "cannot read %s: %s", c->path, strerror(errno));
    return ST_OK;
}

/* n tokens at word `at`, which moves on. what: for the message. */
static enum status check_tokens(struct choices *c, int64_t *at, int64_t n, int64_t question,
                                const char *what)
{
    if (n < 1 || n > c->n - *at)
        return fail(ST_EFORMAT, "%s: question %lld: %s of %lld tokens; %lld words are left",
                    c->path, (long long)question, what, (long long)n, (long long)(c->n - *at));
    for (int64_t i = 0; i < n; i++)
        c->largest = c->words[*at + i] > c->largest ? c->words[*at + i] : c->largest;
    *at += n;
    return ST_OK;
}

static enum status check_answers(struct choices *c, int64_t *at, int64_t context, int64_t question)
{
    int answers = c->words[c->start[question] + 4];

    for (int a = 0; a < answers; a++) {
        int64_t n;

        if (*at >= c->n)
            return fail(ST_EFORMAT, "%s: question %lld ends in its answer %d: it was cut off",
                        c->path, (long long)question, a);
        n = c->words[(*at)++];
        TRY(check_tokens(c, at, n, question, "an answer"));
        c->longest = context + n > c->longest ? context + n : c->longest;
    }
    return ST_OK;
}

static enum status check_question(struct choices *c, int64_t *at, int64_t i)
{
    const uint16_t *w = c->words + *at;
    int64_t begin = *at;

    if (*at > c->n - HEAD || w[0] != START)
        return fail(ST_EFORMAT, "%s: question %lld does not begin at byte %lld", c->path,
                    (long long)i, (long long)(*at * 2 + HEADER * 4));
    if (w[4] < 1 || w[4] > CHOICES_MOST || w[3] >= w[4])
        return fail(ST_EFORMAT,
                    "%s: question %lld has %d answers (1 to %d are possible) and the "
                    "right one is %d",
                    c->path, (long long)i, w[4], CHOICES_MOST, w[3]);
    c->start[i] = begin;
    *at += HEAD;
    TRY(check_tokens(c, at, w[5], i, "a context"));
    TRY(check_answers(c, at, w[5], i));
    if ((*at - begin) * 2 != w[1])
        return fail(ST_EFORMAT, "%s: question %lld takes %lld bytes and says %d", c->path,
                    (long long)i, (long long)((*at - begin) * 2), w[1]);
    return ST_OK;
}

static enum status open_all(struct choices *c)
{
    FILE *in = fopen(c->path, "rb");
    int64_t at = 0;
    enum status st;

    if (!in)
        return fail(ST_EIO, "cannot read %s: %s", c->path, strerror(errno));
    st = read_words(c, in);
    fclose(in);
    for (int64_t i = 0; st == ST_OK && i < c->questions; i++)
        st = check_question(c, &at, i);
    if (st == ST_OK && at != c->n)
        st = fail(ST_EFORMAT, "%s: %lld bytes behind the last question", c->path,
                  (long long)(c->n - at) * 2);
    return st;
}

enum status choices_open(struct choices *c, const char *path)
{
    enum status st;

    memset(c, 0, sizeof *c);
    c->path = strdup(path);
    st = c->path ? open_all(c) : fail(ST_ENOMEM, "no memory to open %s", path);
    if (st != ST_OK)
        choices_close(c);
    return st;
}

void choices_close(struct choices *c)
{
    free(c->path);
    free(c->words);
    free(c->start);
    memset(c, 0, sizeof *c);
}

void choices_question(struct choices_question *q, const struct choices *c, int64_t i)
{
    const uint16_t *w = c->words + c->start[i];

    q->right = w[3];
    q->answers = w[4];
    q->context_tokens = w[5];
    q->context = w + HEAD;
    w = q->context + q->context_tokens;
    for (int a = 0; a < q->answers; a++) {
        q->answer_tokens[a] = w[0];
        q->answer[a] = w + 1;
        w += 1 + w[0];
    }
}
