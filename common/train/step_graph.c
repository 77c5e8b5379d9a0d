#include "common/train/step_graph.h"

#include "common/base/log.h"

#include <string.h>

void step_graph_close(struct step *s)
{
    device_capture_free(s->at.dev, s->graph.recorded);
    s->graph.recorded = NULL;
}

/* Recording ends whether or not what was recorded went well. */
static enum status record(struct step *s, enum status (*work)(struct step *, double), double scale)
{
    struct step_graph *g = &s->graph;
    struct ledger_row before[LEDGER_COUNT];
    enum status st, end;

    step_graph_close(s);
    memcpy(before, s->at.ledger->row, sizeof before);
    TRY(device_capture_begin(s->at.dev));
    st = work(s, scale);
    end = device_capture_end(s->at.dev, &g->recorded);
    if (st != ST_OK)
        step_graph_close(s);
    TRY(st);
    TRY(end);
    log_info(
        "graph      forward, backward and reduction of this step are recorded, and replayed from "
        "here on");
    g->scale = scale;
    ledger_since(g->sent, s->at.ledger, before);
    return ST_OK;
}

/* What was recorded, once more; plainly where that holds no more. counted: the ledger has it. */
static enum status replay(struct step *s, enum status (*work)(struct step *, double), double scale,
                          int counted)
{
    int done;

    TRY(device_replay(s->at.dev, s->graph.recorded, &done));
    if (!done) {
        step_graph_close(s);
        return work(s, scale);
    }
    if (!counted)
        ledger_repeat(s->at.ledger, s->graph.sent);
    return ST_OK;
}

enum status step_graph_run(struct step *s, enum status (*work)(struct step *, double), double scale)
{
    struct step_graph *g = &s->graph;
    int known = g->recorded && g->scale == scale, seen = g->last == scale;

    g->last = scale;
    if (!s->cfg->run.graph || s->at.dev->trace || (!known && !seen))
        return work(s, scale);
    if (!known)
        TRY(record(s, work, scale));
    return replay(s, work, scale, !known);
}
