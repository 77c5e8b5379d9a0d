/* For clang-tidy alone: what common/base/status.c does, which the analyzer cannot see from another
 * file. Without this every pointer that a failed call left unset looks as if it were used.
 */
#ifndef TESTS_LINT_ANALYZER_H
#define TESTS_LINT_ANALYZER_H

#if __has_include("common/base/status.h")
#include "common/base/status.h"

#define fail(st, ...)         (fail((st), __VA_ARGS__), (st))
#define status_trace(st, ...) (status_trace((st), __VA_ARGS__), (st))
#endif

#endif
