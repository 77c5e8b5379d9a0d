/* The suite of an MPI test: every rank runs all of it, and the ranks end together. */
#ifndef TESTS_MPI_CHECK_JOB_H
#define TESTS_MPI_CHECK_JOB_H

#include "common/backend/host.h"

#include <check.h>
#include <stdlib.h>

/* Runs the suite in this process (MPI does not survive fork) and frees it; the number of checks
 * that failed on this rank. */
static inline int check_job_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed;
}

/* Ends the job, waiting a minute at most for ranks that failed elsewhere; the exit status. */
static inline int check_job_end(struct host *job, int failed)
{
    host_set_timeout(job, 60);
    host_end(job, failed ? ST_EMISMATCH : ST_OK);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Both: the last line of a main. */
static inline int check_job(struct host *job, Suite *suite)
{
    return check_job_end(job, check_job_run(suite));
}

#endif
