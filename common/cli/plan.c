/* `narrows plan schedule`: a pipeline's order drawn, and what it loses, without any model. */
#include "common/cli/plan.h"

#include "common/cli/commands.h"
#include "common/cli/options.h"
#include "common/cli/verbs.h"
#include "common/parallel/schedule_play.h"

#include <string.h>

struct plan_options {
    int64_t stages, micro_batches, chunks;
    const char *order;
    double forward, input, weight;
};

enum { ORDERS = 4 };
static const char *const order_name[ORDERS] = {[ORDER_GPIPE] = "gpipe",
                                               [ORDER_1F1B] = "1f1b",
                                               [ORDER_INTERLEAVED] = "interleaved",
                                               [ORDER_ZB_H1] = "zb-h1"};

static enum status shape_of(struct schedule_shape *s, const struct plan_options *o)
{
    int order = 0;

    while (order < ORDERS && strcmp(order_name[order], o->order) != 0)
        order++;
    if (order == ORDERS)
        return fail(ST_EUSAGE,
                    "--order %s is none of gpipe, 1f1b, interleaved and zb-h1: choose one",
                    o->order);
    if (o->chunks > 1 && order != ORDER_INTERLEAVED)
        return fail(ST_EUSAGE,
                    "--virtual-stages %lld needs --order interleaved, not %s: set one of them",
                    (long long)o->chunks, o->order);
    if (order == ORDER_INTERLEAVED && o->stages < 2)
        return fail(ST_EUSAGE, "--order interleaved needs --stages 2 or more, not 1");
    if (order == ORDER_INTERLEAVED && o->micro_batches % o->stages)
        return fail(ST_EUSAGE,
                    "--micro-batches %lld is not a multiple of --stages %lld, which --order "
                    "interleaved needs: set --micro-batches %lld",
                    (long long)o->micro_batches, (long long)o->stages,
                    (long long)((o->micro_batches / o->stages + 1) * o->stages));
    *s = (struct schedule_shape){.order = (enum schedule_order)order,
                                 .stages = (int)o->stages,
                                 .chunks = (int)o->chunks,
                                 .micro_batches = (int)o->micro_batches};
    return ST_OK;
}

static void print(const struct schedule_shape *shape, const struct plan_options *o,
                  const struct schedule_played *p)
{
    double least = o->forward < o->input ? o->forward : o->input;
    double unit = (shape->order == ORDER_ZB_H1 && o->weight < least ? o->weight : least);
    struct schedule_shape s = *shape;

    printf("%s, %d stages, %d micro-batches", o->order, s.stages, s.micro_batches);
    if (s.chunks > 1)
        printf(", %d virtual stages each", s.chunks);
    printf("; a stage takes %g forward, %g for input and %g for weight gradients\n\n", o->forward,
           o->input, o->weight);
    schedule_chart(p, s.chunks, unit / s.chunks, stdout);
    printf("\ntime    %g, of which a stage computes %g\n", p->end, p->busy / s.stages);
    printf("bubble  %.1f %%\n", 100.0 * schedule_bubble(p));
    printf("live    micro-batches whose activations a stage holds at once:");
    for (s.stage = 0; s.stage < s.stages; s.stage++)
        printf(" %d", schedule_peak(&s));
    printf("%s\n", s.chunks > 1 ? " (of one virtual stage each)" : "");
}

static enum status draw(const struct plan_options *o)
{
    struct schedule_cost cost = {o->forward, o->input, o->weight};
    struct schedule_played played;
    struct schedule_shape shape;

    TRY(shape_of(&shape, o));
    TRY(schedule_play(&played, &shape, cost));
    print(&shape, o, &played);
    schedule_played_close(&played);
    return ST_OK;
}

static enum status plan_schedule(struct host *job, int argc, char **argv)
{
    struct plan_options o = {.stages = 4,
                             .micro_batches = 8,
                             .chunks = 1,
                             .order = "1f1b",
                             .forward = 1,
                             .input = 1,
                             .weight = 1};
    const struct option table[] = {
        {"--stages", 'p', "P", OPTION_INT, &o.stages, 1, 256, "stages (default 4)"},
        {"--micro-batches", 'm', "M", OPTION_INT, &o.micro_batches, 1, 4096,
         "micro-batches of a step (default 8)"},
        {"--order", 0, "ORDER", OPTION_TEXT, &o.order, 0, 0,
         "gpipe, 1f1b (default), interleaved or zb-h1"},
        {"--virtual-stages", 'v', "V", OPTION_INT, &o.chunks, 1, 64,
         "runs of layers on a stage, with --order interleaved (default 1)"},
        {"--forward", 0, "TIME", OPTION_REAL, &o.forward, 1, 1000,
         "time of a forward pass through a stage (default 1)"},
        {"--input", 0, "TIME", OPTION_REAL, &o.input, 1, 1000,
         "time of its input gradients (default 1)"},
        {"--weight", 0, "TIME", OPTION_REAL, &o.weight, 1, 1000,
         "time of its weight gradients (default 1)"},
        {0}};
    const struct options_spec spec = {
        "plan schedule",
        "draws the order in which a pipeline's stages work, and its bubble",
        "",
        0,
        0,
        false,
        table,
        "narrows plan schedule --stages 4 --micro-batches 8 --order zb-h1\n"
        "narrows plan schedule -p 4 -m 8 --order interleaved -v 2"};
    struct options words;

    (void)job;
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    return draw(&o);
}

enum status command_plan(struct host *job, int argc, char **argv)
{
    static const struct verb verbs[] = {
        {"schedule", "draws the order in which a pipeline's stages work, and its bubble",
         plan_schedule},
        {"memory", "finds the largest micro-batch of each strategy in a given memory", plan_memory},
        {NULL, NULL, NULL},
    };

    return verbs_run(job, "plan", "works out what a run would do, without running it.", verbs, argc,
                     argv);
}
