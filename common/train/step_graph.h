/* A step as one graph (run.graph); private to step*.c.
 *
 * All that a step does before the update is the same sequence of calls on the same memory, whatever
 * the tokens are; only the scale of the loss's gradient, 1 / valid targets, is a number among them.
 * So a device that can record is told once, and then again by one call, which costs the host next
 * to nothing. Tokens are uploaded before; the update, whose numbers change, follows plainly.
 *
 * A step is given plainly unless the one before had its scale: what a backend settles at first use
 * (memory, plans of products, connections) must be settled before something is recorded. The next
 * one of that scale is recorded and replayed at once, those after it are replayed. A step of a
 * profile is given plainly: moments are no part of a graph. So are replays of a shadow and
 * validations, which are other sequences.
 */
#ifndef COMMON_TRAIN_STEP_GRAPH_H
#define COMMON_TRAIN_STEP_GRAPH_H

#include "common/train/step.h"

/* work(s, scale), plainly or by a graph, as run.graph and what came before say. The ledger counts
 * what was sent either way. Errors: those of work and of the device; nothing is recorded then. */
enum status step_graph_run(struct step *s, enum status (*work)(struct step *, double),
                           double scale);

/* Frees what was recorded. */
void step_graph_close(struct step *s);

#endif
