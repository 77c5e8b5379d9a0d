#!/usr/bin/env python3
"""C, headers and CUDA are laid out as .clang-format says ("make format" does it)."""
import os
import re
import subprocess

import lintlib

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".clang-format")


def check(root):
    files = lintlib.c_files(root)
    if not files:
        return []
    run = subprocess.run(["clang-format", f"--style=file:{CONFIG}", "--dry-run"] + files, cwd=root,
                         stderr=subprocess.PIPE, check=True)
    problems = []
    for line in run.stderr.decode().split("\n"):
        found = re.match(r"(\S+:\d+):\d+: warning: code should be clang-formatted", line)
        if found:
            problems.append(f"{found.group(1)}: not as .clang-format says; run: make format")
    return sorted(set(problems))


CLEAN = {"common/a.c": "int f(void)\n{\n    return 1;\n}\n"}
PLANTED = [({"common/b.c": "int f(void) {\n  return 1;\n}\n"}, "common/b.c:1: not as"),
           ({"gpu/b.cu": "int  a;\n"}, "gpu/b.cu:1: not as"),
           ({"ref/b.h": "int f( int a );\n"}, "ref/b.h:1: not as")]

if __name__ == "__main__":
    lintlib.main(check, CLEAN, PLANTED)
