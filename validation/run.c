#include "validation/run.h"

#include "validation/cases.h"
#include "validation/tempdir.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS = 96, TRAIN_DOCUMENTS = 61, VALIDATION_DOCUMENTS = 9 };

/* The file of a run of the tiny model. */
static enum status write_config(const char *folder, const char *path)
{
    char text[TEMPDIR_PATH + 32];
    FILE *f;
    int bad;

    snprintf(text, sizeof text, "%s/train.txt", folder);
    TRY(case_text(text, TRAIN_DOCUMENTS));
    snprintf(text, sizeof text, "%s/validation.txt", folder);
    TRY(case_text(text, VALIDATION_DOCUMENTS));
    f = fopen(path, "w");
    if (!f)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    fprintf(f,
            "data:\n  train: %s/train.txt\n  validation: %s/validation.txt\n  packing: off\n"
            "  document_separator: \"--\"\n",
            folder, folder);
    bad = ferror(f);
    return fclose(f) || bad ? fail(ST_EIO, "cannot write %s: %s", path, strerror(errno)) : ST_OK;
}

/* Lines "hash after step N  HASH  loss L  norm N". */
static enum status read_lines(struct run *run, const char *output, int64_t steps)
{
    run->line = calloc((size_t)steps, sizeof *run->line);
    if (!run->line)
        return fail(ST_ENOMEM, "no memory for %lld lines", (long long)steps);
    for (const char *at = output; run->steps < steps && (at = strstr(at, "hash after step "));) {
        at += strcspn(at, "0123456789");
        at += strspn(at, "0123456789");
        at += strspn(at, " ");
        snprintf(run->line[run->steps], RUN_LINE, "%.*s", (int)strcspn(at, "\n"), at);
        run->steps++;
    }
    if (run->steps)
        snprintf(run->hash, sizeof run->hash, "%.16s", run->line[run->steps - 1]);
    return ST_OK;
}

/* The last validation loss of metrics.jsonl. */
static void read_validation(struct run *run, const char *folder)
{
    char path[TEMPDIR_PATH + 32], line[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/run/metrics.jsonl", folder);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        json_t *o = json_loads(line, 0, NULL), *loss = json_object_get(o, "validation_loss");

        if (json_is_number(loss))
            run->validation = json_number_value(loss);
        json_decref(o);
    }
    if (f)
        fclose(f);
}

static enum status words_of(char *out, const struct check_options *o, const char *folder,
                            const char *more)
{
    char text[2 * CASE_WORDS + TEMPDIR_PATH];

    snprintf(text, sizeof text,
             "%s train.eval_every=0 train.log_every=1000 %s train.steps=%lld run.dir=%s/run "
             "run.hash=on run.save=off parallel.timeout=60 %s",
             o->config ? "train.warmup=0 train.schedule=constant"
                       : CASE_TINY "train.lr=3e-3 train.clip=0.5",
             o->config ? "" : "run.threads=1", (long long)o->steps, folder, more);
    return case_words(out, text);
}

/* Ranks that words ask for. */
static int ranks_of(const char *const *word, int n)
{
    int ranks = 1;

    for (int i = 0; i < n; i++)
        if (!strncmp(word[i], "parallel.tp=", 12) || !strncmp(word[i], "parallel.dp=", 12) ||
            !strncmp(word[i], "parallel.pp=", 12))
            ranks *= (int)strtol(word[i] + 12, NULL, 10);
    return ranks;
}

/* The end of what a failed job printed. */
static void keep_end(struct run *run, const char *output)
{
    size_t n = output ? strlen(output) : 0, skip = n < RUN_LOG ? 0 : n - RUN_LOG + 1;

    run->failed = 1;
    snprintf(run->log, sizeof run->log, "%s", output ? output + skip : "");
}

static enum status run_in(struct run *run, const struct check_options *o, const char *folder,
                          const char *more)
{
    char words[CASE_WORDS], config[TEMPDIR_PATH + 16], *output = NULL;
    const char *argv[ARGUMENTS] = {"train", o->config ? o->config : config};
    int n, failed = 0;
    enum status st;

    snprintf(config, sizeof config, "%s/tiny.yaml", folder);
    if (!o->config)
        TRY(write_config(folder, config));
    TRY(words_of(words, o, folder, more));
    n = 2 + case_split(argv + 2, ARGUMENTS - 3, words);
    argv[n] = NULL;
    st = o->launch.run(&output, &failed, ranks_of(argv + 2, n - 2), argv);
    if (st == ST_OK && failed)
        keep_end(run, output);
    else if (st == ST_OK)
        st = read_lines(run, output, o->steps);
    free(output);
    if (st == ST_OK)
        read_validation(run, folder);
    return st;
}

enum status run_open(struct run *run, const struct check_options *o, const char *words, ...)
{
    char text[CASE_WORDS], folder[TEMPDIR_PATH];
    enum status st;
    va_list ap;

    va_start(ap, words);
    vsnprintf(text, sizeof text, words, ap);
    va_end(ap);
    *run = (struct run){.hash = "-", .validation = NAN};
    TRY(tempdir_make(folder));
    st = run_in(run, o, folder, text);
    tempdir_remove(folder);
    if (st != ST_OK)
        run_close(run);
    return st;
}

void run_close(struct run *run)
{
    free(run->line);
    run->line = NULL;
}

int run_differs(const struct run *a, const struct run *b)
{
    int most = a->steps > b->steps ? a->steps : b->steps;

    for (int i = 1; i <= most; i++)
        if (i > a->steps || i > b->steps || strcmp(run_line(a, i), run_line(b, i)))
            return i;
    return most == 0 || a->failed || b->failed;
}

const char *run_line(const struct run *run, int step)
{
    return step >= 1 && step <= run->steps ? run->line[step - 1] : "(nothing)";
}
