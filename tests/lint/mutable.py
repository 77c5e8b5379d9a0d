#!/usr/bin/env python3
"""No variable that outlives a function and is not const, but those allowed below with a reason.

Reads the symbols of the compiled archives, so that nothing hides in a macro: "make lint" builds
them first."""
import glob
import os
import re
import shutil
import subprocess
import sys

import lintlib

# object file: variable: why it may be
ALLOWED = {
    "status.o": {"record": "the record of the current failure, which passes functions by"},
    "log.o": {"state": "who prints and where, set once by log_open()"},
    "interrupt.o": {"requested": "a signal handler can reach nothing else"},
}
# What compilers add of their own.
COMPILER = ("__gcov", "__nv", "__fatbin", "__cuda", "_ZL", "__asan", "__odr", "__gcc", "_ZGV",
            "__emutls", "__hip")
# What nvcc and the headers of its toolkit (CUB, NVTX, the C++ library) add to an object of a .cu.
TOOLKIT = re.compile(r"__device_stub__|3cub|[Nn]vtx|^DW\.ref\.|^_ZStL")


def variables(path):
    """(object, name) of each writable variable in an archive or object file."""
    output = subprocess.run(["nm", "-f", "sysv", "--defined-only", path], check=True,
                            stdout=subprocess.PIPE).stdout.decode()
    unit = os.path.basename(path)
    for line in output.split("\n"):
        if line.startswith("Symbols from "):
            unit = line.split("[")[-1].split("]")[0] if "[" in line else unit
        fields = [f.strip() for f in line.split("|")]
        if len(fields) < 7 or fields[3] not in ("OBJECT", "TLS"):
            continue
        section = fields[6]
        if section.startswith((".data", ".bss", ".tdata", ".tbss", "*COM*")) and \
                not section.startswith(".data.rel.ro"):
            yield unit, fields[0]


def check_binaries(paths):
    problems = []
    for path in paths:
        for unit, name in variables(path):
            plain = name.split(".")[0]
            if plain.startswith(COMPILER) or TOOLKIT.search(name):
                continue
            source = unit.split("-")[-1]
            if plain not in ALLOWED.get(source, {}):
                problems.append(f"{path}: {unit}: variable {name} is not const and outlives its "
                                "function; pass it in a struct (tests/lint/mutable.py lists the "
                                "exceptions)")
    return problems


def check(root):
    """For the self-test: compiles the C files of root and looks at the objects."""
    objects = []
    for name in lintlib.c_files(root, (".c",)):
        out = os.path.join(root, os.path.basename(name)[:-2] + ".o")
        compiler = shutil.which("cc") or shutil.which("gcc") or "clang"
        subprocess.run([compiler, "-c", os.path.join(root, name), "-o", out], check=True)
        objects.append(out)
    return check_binaries(objects)


CLEAN = {"common/a.c": "static const int t[] = {1};\nconst char *const n[] = {\"a\"};\n"
                       "int f(void)\n{\n    static const int u = 2;\n    return t[0] + u + n[0][0];\n}\n",
         "common/base/status.c": "static int record;\nint g(void)\n{\n    return record++;\n}\n"}
PLANTED = [
    ({"common/b.c": "int counter;\n"}, "variable counter"),
    ({"common/b.c": "static int counter = 3;\nint f(void)\n{\n    return counter++;\n}\n"},
     "variable counter"),
    ({"ref/b.c": "int f(void)\n{\n    static int calls;\n    return ++calls;\n}\n"}, "variable calls"),
    ({"ref/b.c": "_Thread_local int scratch;\n"}, "variable scratch"),
    ({"common/b.c": "const char *name = \"a\";\n"}, "variable name"),
]

if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        lintlib.main(check, CLEAN, PLANTED)
    archives = glob.glob(os.path.join(sys.argv[1] if len(sys.argv) > 1 else ".", "lib*.a"))
    # The rule is the product's; tests keep their fixtures where their cases find them.
    archives = [a for a in archives if os.path.basename(a) != "libtesting.a"]
    if not archives:
        sys.exit("tests/lint/mutable.py: no lib*.a here; run it by make lint, or name a build folder")
    found = check_binaries(sorted(archives))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(1 if found else 0)
