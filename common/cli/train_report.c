#include "common/cli/train_report.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/blas_kernel.h"
#include "common/train/generate.h"
#include "common/train/memory_fit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Who stands where, of more than one rank; zero and the pipeline's order where they matter. */
static void print_mesh(const struct trainer *t)
{
    const struct config_parallel *p = &t->cfg.parallel;

    if (p->tp * p->dp * p->pp == 1)
        return;
    log_info(
        "mesh       rank = (stage x %lld + replica) x %lld + tp rank, counted by %s  zero %lld",
        (long long)p->dp, (long long)p->tp,
        config_choice_name("parallel.placement", (int)p->placement), (long long)p->zero);
    log_info("           in this order the ranks of mpirun are %s  (%d %s)", t->place.nodes.ranks,
             t->place.nodes.nodes, t->place.nodes.nodes == 1 ? "node" : "nodes, a bar between");
    if (t->place.nodes.across)
        log_warn(
            "%d of %lld tensor-parallel groups have ranks on several nodes, where messages are "
            "slow: give each node a multiple of %lld ranks%s",
            t->place.nodes.across, (long long)p->dp * (long long)p->pp, (long long)p->tp,
            p->placement == PLACEMENT_NODE ? "" : ", or set parallel.placement=node");
    if (p->pp == 1)
        return;
    log_info("pipeline   %s  %d micro-batches",
             config_choice_name("parallel.schedule", (int)p->schedule), t->step.micro_batches);
    for (int k = 0; k < p->pp * p->virtual_stages; k++)
        log_info("           stage %d: blocks %d to %d", k % (int)p->pp, t->step.model.first[k],
                 t->step.model.first[k + 1] - 1);
}

void train_settings(const struct trainer *t)
{
    const struct config *c = &t->cfg;
    const struct step_memory *m = &t->step.memory;
    char a[TEXT_NUMBER], b[TEXT_NUMBER], d[TEXT_NUMBER], e[TEXT_NUMBER], f[TEXT_NUMBER];

    log_info("model      %s  d %lld  layers %lld  heads %lld/%lld  ffn %lld  rank %lld  vocab %lld "
             "(%lld padded)  %s parameters",
             config_choice_name("model.layer", (int)c->model.layer), (long long)c->model.width,
             (long long)c->model.layers, (long long)c->model.heads, (long long)c->model.kv_heads,
             (long long)c->model.ffn, config_low_rank(c) ? (long long)c->model.rank : 0LL,
             (long long)c->model.vocab, (long long)t->step.model.shape.vocab_padded,
             text_count(a, (double)t->step.model.params_all));
    log_info(
        "layout     tp %lld x dp %lld x pp %lld  strategy %s  norm %s  recompute %s  grains %lld  "
        "%s  %s",
        (long long)c->parallel.tp, (long long)c->parallel.dp, (long long)c->parallel.pp,
        t->step.model.strategy->name, config_choice_name("parallel.norm", (int)c->parallel.norm),
        config_choice_name("parallel.recompute", (int)c->parallel.recompute),
        (long long)c->parallel.grains,
        c->parallel.layout_exact ? "same bits in every layout"
                                 : "layout_exact off: sums in rank order",
        config_choice_name("train.precision", (int)c->train.precision));
    print_mesh(t);
    log_info("batch      %lld sequences x %lld tokens  micro-batch %lld (head %lld at once)  steps "
             "%lld  lr %g %s",
             (long long)c->train.batch, (long long)c->train.seq, (long long)t->step.micro,
             (long long)t->step.head_chunk, (long long)c->train.steps, c->train.lr,
             config_choice_name("train.schedule", (int)c->train.schedule));
    log_info("data       %s  %lld sequences  validation %lld sequences  vocabulary of '%s'",
             c->data.train, (long long)t->data.train.samples, (long long)t->data.validation.samples,
             c->data.tokenizer);
    log_info("memory     weights and optimiser %s  gradients %s  activations %s  scratch %s a rank",
             text_bytes(b, (double)m->state), text_bytes(d, (double)m->grads),
             text_bytes(e, (double)m->acts), text_bytes(f, (double)m->scratch));
    if (c->shadow.every)
        log_info(
            "shadow     a micro-batch through ref every %lld steps, %s on the host  loss within "
            "%g, gradients within %g, else %s",
            (long long)c->shadow.every,
            text_bytes(a, (double)step_memory_bytes(&t->shadow.step.memory)), t->shadow.loss_most,
            t->shadow.gradient_most, c->shadow.stop ? "stop" : "a warning");
    log_info("device     %s (OpenBLAS %s)  %d thread(s) a rank  products at %sFLOP/s in all",
             t->place.at.dev->be->name, blas_kernel_name(), t->place.at.dev->threads,
             text_count(a, t->place.peak));
    log_info("run        %s", t->dir.path);
}

/* Text as it comes, kept until it can be printed as one piece. */
struct sample {
    char *text;
    size_t n, room;
};

static enum status keep(void *context, const char *bytes, int64_t n)
{
    struct sample *s = context;

    if (s->n + (size_t)n + 1 > s->room) {
        size_t room = 2 * (s->room + (size_t)n + 1);
        char *text = realloc(s->text, room);

        if (!text)
            return fail(ST_ENOMEM, "no memory for %zu bytes of sampled text", room);
        s->text = text;
        s->room = room;
    }
    memcpy(s->text + s->n, bytes, (size_t)n);
    s->n += (size_t)n;
    s->text[s->n] = '\0';
    return ST_OK;
}

enum status train_sample(struct trainer *t)
{
    struct generate_request q = generate_request(&t->cfg);
    struct generate_result r = {0};
    struct sample s = {0};
    enum status st = ST_OK;

    if (t->cfg.parallel.pp > 1) {
        log_info("\nno sample: no rank of a pipeline holds the whole model; narrows generate %s%s",
                 t->dir.path, t->cfg.run.save ? " writes one" : " would, with run.save=on");
        return ST_OK;
    }
    q.write = keep;
    q.context = &s;
    if (t->place.at.dp->rank == 0)
        st = generate_text(&r, &t->step.model, &t->place.at, &t->tokenizer, &q);
    if (st != ST_OK)
        host_raise(t->job, st);
    st = host_agree(t->job, st);
    if (st == ST_OK)
        log_info("\nsample of %lld tokens\n%s%s\n", (long long)r.tokens, t->cfg.sample.prompt,
                 s.text ? s.text : "");
    free(s.text);
    return st;
}

/* What the whole GPU holds at the end, context and libraries too, to be held against --dry-run. */
static void print_device_memory(const struct trainer *t)
{
    struct device_info info;
    char a[TEXT_NUMBER], b[TEXT_NUMBER], d[TEXT_NUMBER];

    if (t->cfg.run.backend != BACKEND_GPU)
        return;
    if (device_info(t->place.at.dev, &info) != ST_OK) {
        status_clear(); /* the run is over, and went well */
        return;
    }
    log_info("GPU memory %s of %s in use, %s of it in the arenas of the step",
             text_bytes(a, (double)(info.memory_total - info.memory_free)),
             text_bytes(b, (double)info.memory_total),
             text_bytes(d, (double)step_memory_bytes(&t->step.memory)));
}

void train_summary(const struct trainer *t, const char *config)
{
    double seconds = trainer_seconds(t);
    double tokens = (double)(t->done - t->first) * (double)(t->cfg.train.batch * t->cfg.train.seq);
    char a[TEXT_NUMBER], b[TEXT_NUMBER], d[TEXT_NUMBER], launch[64] = "", best[96] = "";
    const char *self = program_invocation_name;

    if (isfinite(t->best))
        snprintf(best, sizeof best, "  best validation loss %.4f (perplexity %.2f)", t->best,
                 exp(t->best));
    log_info("done       %lld steps in %s  %s tokens  %s tok/s%s", (long long)(t->done - t->first),
             text_duration(a, seconds), text_count(b, tokens), text_count(d, tokens / seconds),
             best);
    if (t->shadow.looks)
        log_info(
            "shadow     %lld replays through ref, %lld beyond the bounds  %.2f s each, %.1f %% of "
            "the time",
            (long long)t->shadow.looks, (long long)t->shadow.missed,
            t->shadow.seconds / (double)t->shadow.looks, 100.0 * t->shadow.seconds / seconds);
    print_device_memory(t);
    log_info("run folder %s: config.yaml, metrics.jsonl, train.log%s", t->dir.path,
             t->cfg.run.save ? ", best/, final/, checkpoints/" : "");
    if (t->done < t->cfg.train.steps || !t->cfg.run.save)
        return;
    if (host_size(t->job) > 1)
        snprintf(launch, sizeof launch, "launch -n %d -- ", host_size(t->job));
    log_info("\nnext");
    log_info("  %s generate %s --prompt \"ROMEO:\" --temperature 0.7     # more text", self,
             t->dir.path);
    log_info("  %s %strain %s train.steps=%lld run.dir=%s-longer     # a longer run", self, launch,
             config, (long long)t->cfg.train.steps * 3, t->dir.path);
    log_info("  %s train %s --dry-run parallel.tp=4 --ranks 4     # what 4 ranks would send", self,
             config);
}
