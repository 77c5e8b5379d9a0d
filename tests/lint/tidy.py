#!/usr/bin/env python3
"""clang-tidy, with the checks of .clang-tidy, over the C sources ("make lint" gives the flags in
LINT_CFLAGS). CUDA sources are left to nvcc: clang 14 does not know CUDA 12 and later."""
import concurrent.futures
import os
import re
import shlex
import subprocess

import lintlib

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".clang-tidy")


def tidy(root, name):
    flags = shlex.split(os.environ.get("LINT_CFLAGS", "-D_GNU_SOURCE -std=c11"))
    run = subprocess.run(["clang-tidy", "--quiet", f"--config-file={CONFIG}", name, "--", "-I."]
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


CLEAN = {"common/a.c": "int f(int a);\nint f(int a)\n{\n    return a + 1;\n}\n"}
PLANTED = [
    ({"common/b.c": "int f(int a);\nint f(int a)\n{\n    return a == a;\n}\n"}, "misc-redundant"),
    ({"common/b.c": "#include <stdlib.h>\nint f(void);\nint f(void)\n{\n    int *p = NULL;\n"
                    "    return *p;\n}\n"}, "NullDereference"),
    ({"ref/b.c": "int badName(int a);\nint badName(int a)\n{\n    return a;\n}\n"},
     "identifier-naming"),
    ({"ref/b.c": "int f(int a)\n{\n    return b;\n}\n"}, "undeclared identifier"),
]

if __name__ == "__main__":
    lintlib.main(check, CLEAN, PLANTED)
