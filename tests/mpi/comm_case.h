/* What the tests of collectives share: a communicator over the whole job, numbers whose sum over
 * ranks depends on the order of additions, and the sums that are to come out. */
#ifndef TESTS_MPI_COMM_CASE_H
#define TESTS_MPI_COMM_CASE_H

#include "common/backend/comm.h"
#include "common/backend/host.h"
#include "ref/comm.h"

#include <check.h>

#undef fail /* an old name of check.h; here common/base/status.h's is meant */

enum { MANY = 70001 }; /* elements: more than any small-message path takes */

struct comm_case {
    struct device *device;
    struct host *job;
    struct comm *comm;
    struct ledger ledger;
    int rank, size;
};
extern struct comm_case test;

/* Makes and destroys test.comm; around each test. Collective. */
void case_comm(void);
void case_drop(void);

/* Number i of rank r; integers cover their range. */
double case_number(enum dtype dt, int r, int64_t i);

/* Fills t with rank r's numbers from `first` on. */
void case_fill(struct tensor *t, int r, int64_t first);

/* A tensor on the heap with guard bytes behind it, and its end, which looks at them. */
struct tensor case_tensor(enum dtype dt, int64_t rows, int64_t cols);
void case_done(struct tensor *t);

/* Asserts that t has the bits of the sum over all ranks of their numbers from `first` on; that it
 * holds rank r's numbers; that it cannot be read between begin and wait (on more than one rank). */
void case_check_sum(const struct tensor *t, int64_t first);
void case_check_numbers(const struct tensor *t, int r, int64_t first);
void case_check_poisoned(const struct tensor *t);

/* n times what a training step would do on c, checked. Collective. */
void case_steps(struct comm *c, int n);

/* Runs the suite on all ranks; the exit status of the program. */
int case_main(TCase *tests, int argc, char **argv);

#endif
