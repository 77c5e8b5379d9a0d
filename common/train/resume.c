#include "common/train/resume.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/train/trainer_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct manifest_state resume_state(const struct trainer *t)
{
    struct manifest_state s = {.step = t->done,
                               .skips = t->skips,
                               .loss = t->loss,
                               .norm = t->metrics.last_norm,
                               .best = t->best,
                               .samples = t->data.train.samples};

    trainer_data_hashes(&s.train, &s.validation, t);
    return s;
}

/* ---- one checkpoint ---- */

static enum status check_texts(const struct trainer *t, const struct manifest *m)
{
    struct manifest_state now = resume_state(t);

    if (now.train != m->state.train || now.samples != m->state.samples)
        return fail(ST_ECONFIG,
                    "%s: data.train %s holds another text than the run began with (%lld sequences "
                    "an epoch, %lld then); bring the old one back, or begin a new run",
                    m->path, t->cfg.data.train, (long long)now.samples,
                    (long long)m->state.samples);
    if (now.validation != m->state.validation)
        return fail(ST_ECONFIG,
                    "%s: the validation text is another than the run began with; bring the old one "
                    "back, or begin a new run",
                    m->path);
    return ST_OK;
}

static enum status check(const struct trainer *t, const struct manifest *m)
{
    enum status st = resume_compare(&m->cfg, &t->cfg);

    if (st != ST_OK) {
        status_prefix("%s: ", m->path);
        return st;
    }
    TRY(check_texts(t, m));
    if (m->state.step > t->cfg.train.steps)
        return fail(ST_ECONFIG, "%s is of step %lld, train.steps is %lld: set it higher", m->path,
                    (long long)m->state.step, (long long)t->cfg.train.steps);
    return ST_OK;
}

/* Ranks that look at different disks could find different checkpoints under one name. */
static enum status same_step(struct trainer *t, const struct manifest *m)
{
    double step[2] = {(double)m->state.step, -(double)m->state.step};

    TRY(host_max_f64(t->job, step, 2));
    if (step[0] != -step[1])
        return fail(ST_EIO, "%s: other ranks found step %.0f there, this one %lld", m->path,
                    step[0], (long long)m->state.step);
    return ST_OK;
}

/* The trainer stands where the checkpoint was made. */
static void take_state(struct trainer *t, const char *path, const struct manifest *m)
{
    snprintf(t->from, sizeof t->from, "%s", path);
    t->done = t->first = m->state.step;
    t->skips = (int)m->state.skips;
    t->loss = m->state.loss;
    t->metrics.last_norm = m->state.norm;
    t->best = m->cfg.train.eval_sequences == t->cfg.train.eval_sequences ? m->state.best : INFINITY;
    t->resumed = 1;
}

/* What this rank reads. */
struct reading {
    struct trainer *t;
    const char *path;
    const struct manifest *m;
    struct checkpoint_read count;
};

static enum status read_state(void *context)
{
    struct reading *r = context;

    return checkpoint_load(&r->t->step.model.params, r->t->place.at.dev, r->path, r->m, &r->count);
}

static enum status load(struct trainer *t, const char *path, const struct manifest *m)
{
    struct reading reading = {.t = t, .path = path, .m = m};
    double sums[2], start = trainer_now();
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    enum status st;

    TRY(host_settle(t->job, same_step(t, m)));
    TRY(host_settle(t->job, check(t, m)));
    st = host_work(t->job, read_state, &reading);
    TRY(host_settle(t->job, st));
    sums[0] = (double)reading.count.read;
    TRY(host_max_f64(t->job, sums, 1));
    take_state(t, path, m);
    log_info("resume     step %lld of %s  %s read by a rank at most, of %s, in %.2f s",
             (long long)m->state.step, path, text_bytes(a, sums[0]),
             text_bytes(b, (double)reading.count.whole), trainer_now() - start);
    return ST_OK;
}

/* Loads the checkpoint in folder `path`. Collective. */
static enum status load_from(struct trainer *t, const char *path)
{
    struct manifest m;
    enum status mine = manifest_read(&m, path), st = host_settle(t->job, mine);

    if (st == ST_OK)
        st = load(t, path, &m);
    if (mine == ST_OK)
        manifest_free(&m);
    return st;
}

/* ---- which one ---- */

/* The list as rank 0 finds it, on all ranks. */
static enum status agree_list(struct trainer *t, int64_t **step, int *n, const char *root)
{
    enum status st = ST_OK;

    *step = NULL;
    *n = 0;
    if (host_rank(t->job) == 0)
        st = checkpoint_list(step, n, root);
    TRY(host_agree(t->job, st));
    TRY(host_broadcast(t->job, n, sizeof *n, 0));
    if (*n == 0)
        return ST_OK;
    if (!*step)
        *step = malloc((size_t)*n * sizeof **step);
    TRY(host_agree(t->job, *step ? ST_OK : fail(ST_ENOMEM, "no memory for %d steps", *n)));
    return host_broadcast(t->job, *step, (size_t)*n * sizeof **step, 0);
}

/* Damage makes a checkpoint be passed over; anything else is for the user to settle. */
static int is_damage(enum status st)
{
    return st == ST_EFORMAT || st == ST_EIO;
}

/* The newest of n that is whole; *found: whether there was one. */
static enum status load_newest(struct trainer *t, int *found, const char *root, const int64_t *step,
                               int n)
{
    char path[FOLDER_PATH];
    enum status st = ST_OK;

    *found = 0;
    for (int i = 0; i < n && !*found; i++) {
        TRY(checkpoint_path(path, root, step[i]));
        st = load_from(t, path);
        if (st != ST_OK && !is_damage(st))
            return st;
        *found = st == ST_OK;
        if (*found)
            break;
        t->skipped_damage = 1;
        log_warn("the checkpoint of step %lld is skipped: %s", (long long)step[i],
                 status_message());
        status_clear();
    }
    return ST_OK;
}

static enum status load_auto(struct trainer *t, const char *root)
{
    int64_t *step;
    int n, found = 0;
    enum status st = agree_list(t, &step, &n, root);

    if (st == ST_OK && n)
        st = load_newest(t, &found, root, step, n);
    free(step);
    TRY(st);
    if (n && !found)
        return fail(ST_EFORMAT,
                    "none of the %d checkpoints in %s is whole; narrows checkpoint verify tells "
                    "what is wrong with each",
                    n, root);
    if (!n)
        log_info("resume     no checkpoint in %s yet: the run begins at step 0", root);
    return ST_OK;
}

static enum status load_named(struct trainer *t)
{
    char path[FOLDER_PATH] = "";
    enum status st = ST_OK;

    if (host_rank(t->job) == 0)
        st = checkpoint_find(path, t->resume);
    TRY(host_agree(t->job, st));
    TRY(host_broadcast(t->job, path, sizeof path, 0));
    return load_from(t, path);
}

enum status resume_run(struct trainer *t)
{
    char root[FOLDER_PATH];

    if (!t->resume[0])
        return ST_OK;
    if (strcmp(t->resume, "auto") != 0)
        return load_named(t);
    trainer_checkpoints_path(root, t);
    return load_auto(t, root);
}
