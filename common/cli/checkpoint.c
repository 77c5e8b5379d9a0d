/* narrows checkpoint: looks into, checks, prunes and exports checkpoints of training. */
#include "common/checkpoint/checkpoint.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/checkpoint/folder.h"
#include "common/cli/checkpoint_export.h"
#include "common/cli/commands.h"
#include "common/cli/options.h"
#include "common/cli/verbs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static enum status inspect(const struct found *f, bool tensors)
{
    char path[FOLDER_PATH];
    struct manifest m;

    TRY(path_of(path, f, 0));
    TRY(manifest_read(&m, path));
    print_head(path, &m);
    print_others(f);
    if (tensors)
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

static enum status prune(const struct found *f, struct checkpoint_keep keep)
{
    int removed;

    if (!f->root[0])
        return fail(ST_EUSAGE, "prune takes the folder of a run, not one checkpoint");
    TRY(checkpoint_prune(&removed, f->root, keep));
    printf("%d removed, %d left in %s\n", removed, f->n - removed, f->root);
    return ST_OK;
}

/* ---- the verbs ---- */

/* The words of a verb and the checkpoints that its one word means; *help: the help was asked for,
 * and printed, and there is nothing to free. */
static enum status parse(struct found *f, bool *help, const struct options_spec *spec, int argc,
                         char **argv)
{
    struct options words;

    TRY(options_parse(&words, spec, argc, argv));
    *help = words.help;
    return words.help ? options_help(stdout, spec) : find(f, words.word[0]);
}

static enum status run_inspect(struct host *job, int argc, char **argv)
{
    bool tensors = false, help;
    const struct option table[] = {
        {"--tensors", 't', NULL, OPTION_SWITCH, &tensors, 0, 0,
         "list every tensor with kind, type, shape and number of pieces"},
        {0}};
    const struct options_spec spec = {
        "checkpoint inspect",
        "says what a checkpoint is, and which older ones a run has",
        "RUN|CHECKPOINT",
        1,
        1,
        false,
        table,
        "narrows checkpoint inspect runs/quickstart\n"
        "narrows checkpoint inspect runs/quickstart/checkpoints/step-000000300 --tensors"};
    struct found f;
    enum status st;

    (void)job;
    TRY(parse(&f, &help, &spec, argc, argv));
    if (help)
        return ST_OK;
    st = inspect(&f, tensors);
    free(f.step);
    return st;
}

static enum status run_verify(struct host *job, int argc, char **argv)
{
    const struct option table[] = {{0}};
    const struct options_spec spec = {"checkpoint verify",
                                      "reads every byte of a checkpoint, or of all of a run",
                                      "RUN|CHECKPOINT",
                                      1,
                                      1,
                                      false,
                                      table,
                                      "narrows checkpoint verify runs/quickstart"};
    struct found f;
    bool help;
    enum status st;

    (void)job;
    TRY(parse(&f, &help, &spec, argc, argv));
    if (help)
        return ST_OK;
    st = verify(&f);
    free(f.step);
    return st;
}

static enum status run_prune(struct host *job, int argc, char **argv)
{
    int64_t last = 2, every = 0;
    const struct option table[] = {
        {"--keep-last", 'k', "N", OPTION_INT, &last, 1, 1000000, "the newest N stay (2)"},
        {"--keep-every", 'e', "N", OPTION_INT, &every, 0, 1000000000,
         "those of a step that N divides stay as well; 0 = none (0)"},
        {0}};
    const struct options_spec spec = {
        "checkpoint prune",
        "removes old checkpoints of a run",
        "RUN",
        1,
        1,
        false,
        table,
        "narrows checkpoint prune runs/quickstart --keep-last 1 --keep-every 1000"};
    struct found f;
    bool help;
    enum status st;

    (void)job;
    TRY(parse(&f, &help, &spec, argc, argv));
    if (help)
        return ST_OK;
    st = prune(&f, (struct checkpoint_keep){.last = last, .every = every});
    free(f.step);
    return st;
}

static enum status run_export(struct host *job, int argc, char **argv)
{
    const char *output = NULL;
    const struct option table[] = {{"--output", 'o', "FOLDER", OPTION_TEXT, &output, 0, 0,
                                    "where the weights go, as a run leaves them in final/"},
                                   {0}};
    const struct options_spec spec = {
        "checkpoint export",
        "writes the weights of a checkpoint as whole tensors",
        "RUN|CHECKPOINT",
        1,
        1,
        false,
        table,
        "narrows checkpoint export runs/quickstart/checkpoints/step-000000300 --output weights"};
    char path[FOLDER_PATH];
    struct options words;

    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    if (!output)
        return fail(ST_EUSAGE, "say where the weights go: --output FOLDER");
    TRY(checkpoint_find(path, words.word[0]));
    return checkpoint_export(job, output, path);
}

enum status command_checkpoint(struct host *job, int argc, char **argv)
{
    static const struct verb verbs[] = {
        {"inspect", "says what a checkpoint is, and which older ones a run has", run_inspect},
        {"verify", "reads every byte of a checkpoint, or of all of a run", run_verify},
        {"prune", "removes old checkpoints of a run", run_prune},
        {"export", "writes the weights of a checkpoint as whole tensors", run_export},
        {NULL, NULL, NULL},
    };

    if (host_size(job) > 1)
        return fail(ST_EUSAGE, "narrows checkpoint is for one process, not for %d ranks",
                    host_size(job));
    return verbs_run(job, "checkpoint",
                     "looks into, checks, prunes and exports checkpoints of training.\n\n"
                     "RUN is the folder of a run, or its checkpoints/: the newest, or all of them\n"
                     "for verify. CHECKPOINT is one of the folders step-N in it.",
                     verbs, argc, argv);
}
