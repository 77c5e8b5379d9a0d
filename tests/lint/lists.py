#!/usr/bin/env python3
"""Every file of the tree stands in a list of an .am file, so that the build and "make dist" have it.

The lists are written by hand, or from the tree by "tests/lint/lists.py --write" (make lists)."""
import os
import re
import sys

import lintlib

ROOMS = ("base", "tokenizer", "tensor", "backend", "compress", "parallel", "model", "data",
         "checkpoint", "train", "cli")
# Of ref/, what knows no element type and is compiled once.
REF_ONCE = r"ref/.*\.h$|ref/(comm\w*|factor|rank_sum)\.c$"

# .am file, list, the files in it, what is cut off each name's end
LISTS = (
    ("common/common.am", "libcommon_a_SOURCES",
     r"common/\w+/[\w.]+\.(c|h|def)$(?<!/cli/main\.c)", ""),
    ("common/common.am", "common_scripts", r"common/\w+/\w+\.(py|sh)$", ""),
    ("ref/ref.am", "ref_once", REF_ONCE, ""),
    ("ref/ref.am", "ref_math", r"(?!" + REF_ONCE + r")ref/\w+\.c$", ""),
    ("gpu/gpu.am", "gpu_sources", r"gpu/.*\.(c|cu|h|cuh)$", ""),
    ("tests/tests.am", "unit_tests", r"tests/unit/test_\w+\.c$", ".c"),
    ("tests/tests.am", "mpi_tests", r"tests/mpi/test_\w+\.c$", ".c"),
    ("tests/tests.am", "cli_tests", r"tests/cli/(?!lib\.sh)\w+\.sh$", ""),
    ("tests/tests.am", "test_helpers", r"tests/(?!lint/|fuzz/|gpu/|.*/test_).*\.(c|h)$", ""),
    ("tests/tests.am", "stand_in", r"tests/gpu/.*", ""),
    ("tests/tests.am", "test_files",
     r"tests/(lint/|fuzz/|(?!gpu/)(?!cli/(?!lib\.sh)\w+\.sh$)(?!.*\.(c|h|am)$)).*", ""),
    ("validation/validation.am", "validation_sources", r"validation/\w+\.(c|h|def)$", ""),
    ("validation/validation.am", "validation_files", r"validation/(?!\w+\.(c|h|def|am)$).*", ""),
    ("docs/docs.am", "docs_files", r"docs/(?!docs\.am$).*", ""),
    ("examples/examples.am", "examples_files", r"examples/(?!examples\.am$).*", ""),
)
# Named in Makefile.am and common/common.am, or part of the repository only.
ELSEWHERE = r"common/cli/main\.c$|[^/]+$|\.ci/|m4/|\.git|.*\.am$"


def room_order(name):
    parts = name.split("/")
    room = parts[1] if parts[0] == "common" else ""
    return (ROOMS.index(room) if room in ROOMS else len(ROOMS), name)


def wanted(files, pattern, cut):
    found = sorted((f for f in files if re.match(pattern, f)), key=room_order)
    return [f[:len(f) - len(cut)] if cut else f for f in found]


def list_text(am, variable, names):
    folder = os.path.dirname(am)
    lines = [f"{variable} ="]
    for i, name in enumerate(names):
        if i and name.startswith("common/") and room_order(name)[0] != room_order(names[i - 1])[0]:
            lines.append("   ")
        lines.append("    %D%/" + name[len(folder) + 1:])
    return " \\\n".join(lines) + "\n"


def list_span(text, variable):
    return re.search(rf"^{variable} =[^\n]*(?<!\\)\n|^{variable} =[^\n]*\\\n(?:[^\n]*\\\n)*[^\n]*\n",
                     text, re.M)


def listed(text, variable, folder):
    span = list_span(text, variable)
    if not span:
        return None
    words = span.group(0).split("=", 1)[1].replace("\\", " ").split()
    return [w.replace("%D%", folder) for w in words]


def check(root):
    problems, covered = [], set()
    files = lintlib.tree_files(root)
    for am, variable, pattern, cut in LISTS:
        names = wanted(files, pattern, cut)
        covered.update(n + cut for n in names)
        have = []
        if os.path.exists(os.path.join(root, am)):
            have = listed(lintlib.read(root, am), variable, os.path.dirname(am)) or []
        problems += [f"{n}{cut} is not in {variable} of {am}; add it, or run: make lists"
                     for n in names if n not in have]
        problems += [f"{am}: {variable} names {n}{cut}, which is not in the tree; take it out, or "
                     "run: make lists" for n in have if n not in names]
    problems += [f"{f} belongs to no list of tests/lint/lists.py; give it a place" for f in files
                 if f not in covered and not re.match(ELSEWHERE, f)]
    return problems


def write(root):
    files = lintlib.tree_files(root)
    for am, variable, pattern, cut in LISTS:
        text = lintlib.read(root, am)
        span = list_span(text, variable)
        if not span:
            sys.exit(f"{am} has no list {variable}")
        new = text[:span.start()] + list_text(am, variable, wanted(files, pattern, cut)) + \
            text[span.end():]
        if new != text:
            lintlib.write_tree(root, {am: new})
            print(f"{am}: {variable} written")


CLEAN = {"common/common.am": "libcommon_a_SOURCES = \\\n    %D%/base/a.c \\\n    \\\n    %D%/cli/b.h\n",
         "common/base/a.c": "", "common/cli/b.h": "", "common/cli/main.c": "",
         "tests/tests.am": "unit_tests = \\\n    %D%/unit/test_a\n\ncli_tests =\n",
         "tests/unit/test_a.c": "", "configure.ac": ""}
PLANTED = [
    ({"common/base/new.c": ""}, "common/base/new.c is not in libcommon_a_SOURCES"),
    ({"gpu/new.cu": ""}, "gpu/new.cu is not in gpu_sources"),
    ({"ref/new.c": ""}, "ref/new.c is not in ref_math"),
    ({"ref/comm.c": ""}, "ref/comm.c is not in ref_once"),
    ({"tests/unit/test_new.c": ""}, "tests/unit/test_new.c is not in unit_tests"),
    ({"tests/cli/new.sh": ""}, "tests/cli/new.sh is not in cli_tests"),
    ({"examples/new.yaml": ""}, "examples/new.yaml is not in examples_files"),
    ({"attic/new.c": ""}, "attic/new.c belongs to no list"),
    ({"common/common.am": "libcommon_a_SOURCES = %D%/base/a.c %D%/cli/b.h %D%/base/gone.c\n"},
     "names common/base/gone.c, which is not in the tree"),
]

if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write(".")
    else:
        lintlib.main(check, CLEAN, PLANTED)
