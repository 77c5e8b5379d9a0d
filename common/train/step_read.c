/* What steps found, brought to the host: losses of all ranks added up in one order, and the results
 * of several steps at once, so that the device need not wait for the host after each. */
#include "common/train/step_read.h"

#include <stdlib.h>
#include <string.h>

static size_t loss_bytes(const struct step *s)
{
    return (size_t)tensor_count(&s->loss) * dtype_size(s->at.dev->wide);
}

/* Summed loss of each of this rank's samples, in token order, in float64. */
static void sample_losses(const struct step *s, const void *loss, double *out)
{
    int64_t seq = s->cfg->train.seq;
    enum dtype wide = s->at.dev->wide;

    for (int64_t i = 0; i < step_samples(s); i++) {
        out[i] = 0.0;
        for (int64_t j = 0; j < seq; j++)
            out[i] += dtype_load(loss, wide, i * seq + j);
    }
}

/* The losses of all samples, from the ranks of the last stage that computed them. */
static enum status gather_losses(struct step *s, const void *loss)
{
    int dp = s->at.dp->size;
    int64_t room = step_room(s), begin, end;
    double *all = s->sample_loss + s->cfg->train.batch, *mine = all + dp * room;

    sample_losses(s, loss, mine);
    if (dp > 1 && s->at.dp_host)
        TRY(host_gather(s->at.dp_host, all, mine, (size_t)room * sizeof *mine));
    else
        memcpy(all, mine, (size_t)step_samples(s) * sizeof *mine);
    for (int r = 0; r < dp; r++) {
        sample_share(s->cfg->train.batch, r, dp, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            s->sample_loss[i] = all[r * room + i - begin];
    }
    return ST_OK;
}

/* The loss of the global batch: samples added in their order, whoever computed them. loss: of this
 * rank's tokens, on the host. */
static enum status sum_losses(struct step *s, const void *loss, double *sum)
{
    size_t bytes = (size_t)s->cfg->train.batch * sizeof *s->sample_loss;

    if (step_is_last(s))
        TRY(gather_losses(s, loss));
    if (s->at.pp_host)
        TRY(host_broadcast(s->at.pp_host, s->sample_loss, bytes, step_stages(s) - 1));
    *sum = 0.0;
    for (int64_t i = 0; i < s->cfg->train.batch; i++)
        *sum += s->sample_loss[i];
    return ST_OK;
}

/* n batches of losses of tokens, from where they stand on the device. */
static enum status fetch(struct step *s, const void *loss, int n)
{
    if (!step_is_last(s))
        return ST_OK;
    return device_download(s->at.dev, s->host_loss, loss, (size_t)n * loss_bytes(s));
}

enum status step_total_loss(struct step *s, double *sum)
{
    TRY(fetch(s, s->loss.data, 1));
    return sum_losses(s, s->host_loss, sum);
}

/* ---- several steps at once ---- */

int step_slots(const struct step *s)
{
    int64_t slots = s->training == STEP_TRAINS ? s->cfg->train.read_every : 1;

    return slots > 1 ? (int)slots : 1;
}

enum status step_kept_open(struct step *s)
{
    struct step_kept *k = &s->kept;
    size_t n = (size_t)step_slots(s), norms = n * sizeof *k->host_norm;

    k->host_norm = malloc(norms);
    k->valid = malloc(n * sizeof *k->valid);
    if (!k->host_norm || !k->valid)
        return fail(ST_ENOMEM, "no memory for the results of %zu steps", n);
    if (n == 1)
        return ST_OK;
    TRY(arena_take(&s->batch, &k->loss, n * loss_bytes(s)));
    return arena_take(&s->batch, &k->norm, norms);
}

void step_kept_close(struct step *s)
{
    free(s->kept.host_norm);
    free(s->kept.valid);
    s->kept = (struct step_kept){0};
}

/* A single slot is what the step works on itself. */
enum status step_keep(struct step *s, int64_t valid)
{
    struct step_kept *k = &s->kept;
    size_t loss = loss_bytes(s), norm = sizeof *k->host_norm;

    FAIL_IF(k->n == step_slots(s), ST_EINTERNAL);
    if (k->loss && step_is_last(s))
        TRY(device_copy(s->at.dev, (char *)k->loss + (size_t)k->n * loss, s->loss.data, loss));
    if (k->loss)
        TRY(device_copy(s->at.dev, (char *)k->norm + (size_t)k->n * norm,
                        s->optimizer.norm_scale.data, norm));
    k->valid[k->n++] = valid;
    return ST_OK;
}

enum status step_read(struct step *s, struct step_result *r)
{
    struct step_kept *k = &s->kept;
    int n = k->n;

    k->n = 0;
    if (n == 0)
        return ST_OK;
    TRY(fetch(s, k->loss ? k->loss : s->loss.data, n));
    TRY(device_download(s->at.dev, k->host_norm, k->loss ? k->norm : s->optimizer.norm_scale.data,
                        (size_t)n * sizeof *k->host_norm));
    for (int i = 0; i < n; i++) {
        double sum;

        TRY(sum_losses(s, (const char *)s->host_loss + (size_t)i * loss_bytes(s), &sum));
        r[i] = (struct step_result){.loss = sum / (double)k->valid[i],
                                    .grad_norm = k->host_norm[i][0],
                                    .scale = k->host_norm[i][1],
                                    .valid = k->valid[i]};
    }
    return ST_OK;
}
