/* The last line of a unit test's main. */
#ifndef TESTS_UNIT_CHECK_UNIT_H
#define TESTS_UNIT_CHECK_UNIT_H

#include "common/base/status.h" /* before check.h, which has an old name `fail` of its own */

#include <check.h>
#include <stdlib.h>

#undef fail

/* Runs the suite and frees it; CK_VERBOSITY says how much is printed. Returns main's status. */
static inline int check_unit(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
