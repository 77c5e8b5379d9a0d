/* How the spans of a profile are read, private to trace_write.c and trace_sum.c. */
#ifndef COMMON_BACKEND_TRACE_SPANS_H
#define COMMON_BACKEND_TRACE_SPANS_H

#include "common/backend/trace.h"

/* When each of t's moments was, seconds since the first: at [t->moments]; the caller frees *at.
 * Waits for the device. Errors: ST_ENOMEM, what failed while spans were recorded. */
enum status trace_moments(double **at, const struct trace *t);

/* When span s began. A collective begins when the rank's work reached it, and not before the one in
 * front of it on the same communicator had ended: free_at [TRACE_TRACKS + 1], zeros at first, goes
 * from span to span in their order. */
double trace_begin(const struct trace_span *s, const double *at, double *free_at);

#endif
