#!/usr/bin/env python3
"""clang-tidy, with the checks of .clang-tidy, over the C sources ("make lint" gives the flags in
LINT_CFLAGS). CUDA sources are left to nvcc: clang 14 does not know CUDA 12 and later."""
import concurrent.futures
import os
import re
import shlex
import subprocess

import lintlib

# Checks of .clang-tidy's families that cannot judge this code.
NOT = (
    "clang-analyzer-optin.mpi*",            # requests live in structs and end in another function
    "clang-analyzer-optin.performance*",    # the order of members is for the reader
    "clang-analyzer-optin.portability*",    # malloc(0) is never used through
    "misc-unused-parameters",               # the compilers' own warning judges better
    "bugprone-sizeof-expression",           # arrays of pointers are meant
    "bugprone-suspicious-string-compare",   # strcmp() as a truth value is C's own idiom
    "bugprone-macro-parentheses",           # X-macros paste their arguments as they are
)
# Names: constants may be written in capitals, and macros that stand for a type or a function
# (ref/real.h) like what they stand for.
OPTIONS = """
  - {key: readability-identifier-naming.VariableIgnoredRegexp, value: '^[A-Z][A-Z0-9_]*$'}
  - {key: readability-identifier-naming.MacroDefinitionIgnoredRegexp, value: '^[a-z][a-z0-9_]*$'}
"""
# The analyzer does not see into status.c; this tells it that fail(st, ...) returns st.
ANALYZER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "analyzer.h")
CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".clang-tidy")


def tidy(root, name):
    flags = shlex.split(os.environ.get("LINT_CFLAGS", "-D_GNU_SOURCE -std=c11"))
    if not name.endswith("base/status.c"):
        flags += ["-include", ANALYZER]
    run = subprocess.run(["clang-tidy", "--quiet", "--config=" + lintlib.read("", CONFIG) + OPTIONS,
                          "--checks=" + ",".join("-" + check for check in NOT), name, "--", "-I."]
                         + flags, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = [line for line in run.stdout.decode().split("\n")
             if re.search(r": (warning|error): ", line)]
    if run.returncode and not found:
        found = [f"{name}: clang-tidy ended with {run.returncode}: {run.stdout.decode()[-400:]}"]
    top = os.path.realpath(root) + "/"
    return [line.replace(top, "").replace(root + "/", "") for line in found]


def check(root):
    files = lintlib.c_files(root, (".c",), ("common", "ref", "gpu", "validation"))
    if "HAVE_CUDA" not in os.environ.get("LINT_CFLAGS", ""):
        files = [f for f in files if not f.startswith("gpu/")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda f: tidy(root, f), files)
        return sorted({problem for result in results for problem in result})


STATUS = """#ifndef STATUS_H
#define STATUS_H
enum status { ST_OK, ST_EIO };
enum status fail(enum status st, const char *fmt, ...);
enum status status_trace(enum status st, const char *file, int line, const char *expr);
#define TRY(expr)                                                \\
    do {                                                         \\
        enum status st_ = (expr);                                \\
        if (st_ != ST_OK)                                        \\
            return status_trace(st_, __FILE__, __LINE__, #expr); \\
    } while (0)
#endif
"""
# A pointer that is set unless the callee failed: no mistake.
CLEAN = {"common/base/status.h": STATUS, "common/a.c": """#include "common/base/status.h"
int h(void);
enum status g(void);
static enum status f(int **p, int *q)
{
    *p = 0;
    if (h())
        return fail(ST_EIO, "no");
    *p = q;
    return ST_OK;
}
enum status g(void)
{
    int *p, q = 0;

    TRY(f(&p, &q));
    return *p ? ST_OK : ST_EIO;
}
"""}
PLANTED = [
    ({"common/b.c": "int f(int a);\nint f(int a)\n{\n    return a == a;\n}\n"}, "misc-redundant"),
    ({"common/b.c": "#include <stdlib.h>\nint f(void);\nint f(void)\n{\n    int *p = NULL;\n"
                    "    return *p;\n}\n"}, "NullDereference"),
    ({"ref/b.c": "int badName(int a);\nint badName(int a)\n{\n    return a;\n}\n"},
     "identifier-naming"),
    ({"common/base/status.h": STATUS, "common/b.c": '#include "common/base/status.h"\n'
      "enum status f(int **p);\nenum status g(void);\n"
      "enum status f(int **p)\n{\n    *p = 0;\n    return ST_OK;\n}\n"
      "enum status g(void)\n{\n    int *p;\n    TRY(f(&p));\n    return *p;\n}\n"},
     "NullDereference"),
    ({"ref/b.c": "int f(int a)\n{\n    return b;\n}\n"}, "undeclared identifier"),
]

if __name__ == "__main__":
    lintlib.main(check, CLEAN, PLANTED)
