/* narrows checkpoint: looks into, checks, prunes and exports checkpoints of training. */
#include "common/checkpoint/checkpoint.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/checkpoint/folder.h"
#include "common/cli/checkpoint_export.h"
#include "common/cli/commands.h"
#include "common/cli/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct checkpoint_options {
    bool tensors;
    int64_t keep_last, keep_every;
    const char *output;
};

enum { OPTIONS = 5 };

/* ---- which ones ---- */

/* The checkpoints that `where` means: one, or all of a run. */
struct found {
    char root[FOLDER_PATH]; /* "" when `where` is one */
    char one[FOLDER_PATH];
    int64_t *step; /* newest first */
    int n;
};

static enum status list_run(struct found *f, const char *where)
{
    TRY(folder_join(f->root, where, CHECKPOINT_FOLDER));
    if (access(f->root, F_OK))
        snprintf(f->root, sizeof f->root, "%s", where);
    TRY(checkpoint_list(&f->step, &f->n, f->root));
    if (f->n == 0)
        return fail(ST_EIO,
                    "no checkpoint in %s: give the folder of a run, its " CHECKPOINT_FOLDER
                    "/, or one of the folders step-N in it",
                    where);
    return ST_OK;
}

/* Nonzero for a folder that holds a manifest, or is named as if it had lost it. */
static int is_one(const char *where)
{
    const char *slash = strrchr(where, '/'), *name = slash ? slash + 1 : where;
    char path[FOLDER_PATH];

    return folder_join(path, where, MANIFEST_NAME) == ST_OK &&
           (!access(path, F_OK) || !strncmp(name, "step-", 5));
}

static enum status find(struct found *f, const char *where)
{
    memset(f, 0, sizeof *f);
    if (!is_one(where))
        return list_run(f, where);
    if (strlen(where) >= sizeof f->one)
        return fail(ST_EIO, "the path %.64s... is too long", where);
    snprintf(f->one, sizeof f->one, "%s", where);
    f->n = 1;
    return ST_OK;
}

/* The path of the i-th. */
static enum status path_of(char *out, const struct found *f, int i)
{
    if (f->root[0])
        return checkpoint_path(out, f->root, f->step[i]);
    memcpy(out, f->one, sizeof f->one);
    return ST_OK;
}

/* ---- inspect ---- */

static void print_head(const char *path, const struct manifest *m)
{
    const struct config *c = &m->cfg;
    const struct manifest_state *s = &m->state;
    char size[TEXT_NUMBER];
    long long next = s->step * c->train.batch;

    printf("checkpoint   %s\n", path);
    printf("step         %lld of %lld\n", (long long)s->step, (long long)c->train.steps);
    printf("data         next sequence %lld, %lld an epoch  %s\n", next, (long long)s->samples,
           c->data.train);
    printf("model        %s  d %lld  layers %lld  vocab %lld  %s  seed %lld\n",
           config_choice_name("model.layer", (int)c->model.layer), (long long)c->model.width,
           (long long)c->model.layers, (long long)c->model.vocab,
           config_choice_name("train.precision", (int)c->train.precision),
           (long long)c->train.seed);
    printf("statistics   loss %.4f  gradient norm %.4f", s->loss, s->norm);
    printf(isfinite(s->best) ? "  best validation loss %.4f\n" : "  no validation yet\n", s->best);
    printf("written by   %d rank(s), tp %lld x dp %lld\n", m->ranks, (long long)c->parallel.tp,
           (long long)c->parallel.dp);
    printf("files        %d, %s, %d pieces\n", m->files,
           text_bytes(size, (double)manifest_bytes(m)), m->pieces);
}

/* One line a tensor and kind. */
static void print_tensors(const struct manifest *m)
{
    int n;

    for (int i = 0; i < m->pieces; i += n) {
        const struct manifest_piece *p = &m->piece[i], *first;

        n = manifest_find(&first, m, p->tensor, (enum part_kind)p->kind);
        printf("%-52s %-7s %-5s [%lld, %lld]  %d piece(s)\n", p->tensor,
               part_kind_name((enum part_kind)p->kind), manifest_type_name((enum dtype)p->dtype),
               (long long)p->rows, (long long)p->cols, n);
    }
}

static void print_others(const struct found *f)
{
    for (int i = 1; i < f->n; i++)
        printf("%s%lld", i > 1 ? ", " : "older        ", (long long)f->step[i]);
    if (f->n > 1)
        putchar('\n');
}

static enum status inspect(const struct found *f, const struct checkpoint_options *o)
{
    char path[FOLDER_PATH];
    struct manifest m;

    TRY(path_of(path, f, 0));
    TRY(manifest_read(&m, path));
    print_head(path, &m);
    print_others(f);
    if (o->tensors)
        print_tensors(&m);
    manifest_free(&m);
    return ST_OK;
}

/* ---- verify ---- */

static enum status verify_one(const char *path, struct checkpoint_read *count)
{
    struct manifest m;
    enum status st;

    TRY(manifest_read(&m, path));
    st = checkpoint_verify(path, &m, count);
    manifest_free(&m);
    return st;
}

static enum status verify(const struct found *f)
{
    char path[FOLDER_PATH], size[TEXT_NUMBER];
    struct checkpoint_read count;
    int bad = 0;

    for (int i = 0; i < f->n; i++) {
        TRY(path_of(path, f, i));
        if (verify_one(path, &count) == ST_OK) {
            printf("%s  whole  %s read\n", path, text_bytes(size, (double)count.read));
            continue;
        }
        printf("%s  DAMAGED  %s\n", path, status_message());
        status_clear();
        bad++;
    }
    return bad ? fail(ST_EFORMAT, "%d of %d checkpoint(s) are damaged", bad, f->n) : ST_OK;
}

/* ---- prune ---- */

static enum status prune(const struct found *f, const struct checkpoint_options *o)
{
    struct checkpoint_keep keep = {.last = o->keep_last, .every = o->keep_every};
    int removed;

    if (!f->root[0])
        return fail(ST_EUSAGE, "prune takes the folder of a run, not one checkpoint");
    TRY(checkpoint_prune(&removed, f->root, keep));
    printf("%d removed, %d left in %s\n", removed, f->n - removed, f->root);
    return ST_OK;
}

/* ---- the command ---- */

static enum status act(struct host *job, const char *what, const char *where,
                       const struct checkpoint_options *o)
{
    char path[FOLDER_PATH];
    struct found f;
    enum status st;

    if (!strcmp(what, "export")) {
        TRY(checkpoint_find(path, where));
        return checkpoint_export(job, o->output, path);
    }
    TRY(find(&f, where));
    if (!strcmp(what, "inspect"))
        st = inspect(&f, o);
    else if (!strcmp(what, "verify"))
        st = verify(&f);
    else if (!strcmp(what, "prune"))
        st = prune(&f, o);
    else
        st = fail(ST_EUSAGE, "checkpoint knows inspect, verify, prune and export, not '%s'", what);
    free(f.step);
    return st;
}

static void fill_options(struct option *table, struct checkpoint_options *o)
{
    const struct option options[OPTIONS] = {
        {"--tensors", 't', NULL, OPTION_SWITCH, &o->tensors, 0, 0,
         "inspect: list every tensor with kind, type, shape and number of pieces"},
        {"--keep-last", 'k', "N", OPTION_INT, &o->keep_last, 1, 1000000,
         "prune: the newest N stay (2)"},
        {"--keep-every", 'e', "N", OPTION_INT, &o->keep_every, 0, 1000000000,
         "prune: those of a step that N divides stay as well; 0 = none (0)"},
        {"--output", 'o', "FOLDER", OPTION_TEXT, &o->output, 0, 0,
         "export: where the weights go, as a run leaves them in final/"},
        {0}};

    memcpy(table, options, sizeof options);
}

enum status command_checkpoint(struct host *job, int argc, char **argv)
{
    struct checkpoint_options o = {.keep_last = 2};
    struct option table[OPTIONS];
    const struct options_spec spec = {
        "checkpoint",
        "looks into (inspect), checks every byte of (verify) or removes (prune) checkpoints of a "
        "training run, or writes the weights of one as whole tensors (export)",
        "inspect|verify|prune|export RUN|CHECKPOINT",
        2,
        2,
        false,
        table,
        "narrows checkpoint inspect runs/quickstart\n"
        "narrows checkpoint verify runs/quickstart\n"
        "narrows checkpoint prune runs/quickstart --keep-last 1 --keep-every 1000\n"
        "narrows checkpoint export runs/quickstart/checkpoints/step-000000300 --output weights"};
    struct options words;

    fill_options(table, &o);
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    if (host_size(job) > 1)
        return fail(ST_EUSAGE, "narrows checkpoint is for one process, not for %d ranks",
                    host_size(job));
    if (!strcmp(words.word[0], "export") != !!o.output)
        return fail(ST_EUSAGE, "--output FOLDER goes with export, and export with it");
    return act(job, words.word[0], words.word[1], &o);
}
