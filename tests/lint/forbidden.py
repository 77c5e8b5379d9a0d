#!/usr/bin/env python3
"""Words that must not stand in the tree, each with its reason and the files that may use it."""
import re

import lintlib

CODE = r"(common|ref|gpu)/.*\.(c|cu|h|cuh|def)$"
HOST_MATH = r"(common|ref)/.*\.(c|h|def)$"
ALL_C = r".*\.(c|cu|h|cuh|def)$"
ANY = r".*"

# pattern, files it is looked for in, why not and what instead, files that may (a pattern)
RULES = (
    (r"\b(exit|abort|quick_exit)\s*\(", CODE,
     "only cli/main.c ends the program; return a status", r"common/cli/main\.c$"),
    # host.c: when ranks are gone, MPI_Finalize would wait for them for ever.
    (r"\b(MPI_Abort|_Exit)\s*\(", CODE,
     "only cli/main.c ends the program; return a status",
     r"common/(cli/main|backend/host)\.c$"),
    # interrupt.c: the second Ctrl-C, in a signal handler; launch_job.c: a forked child.
    (r"\b_exit\s*\(", CODE, "only cli/main.c ends the program; return a status",
     r"common/cli/(interrupt|launch_job)\.c$"),
    (r"\bgoto\b", ALL_C, "no goto; return early or split the function", None),
    (r"\btypedef\b", CODE, "no typedef; struct x and enum x stay visible", None),
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof)\s*\(", CODE,
     "has no bound or reports no error; use snprintf, strtol with its checks", None),
    (r"\b(rand|srand|random|drand48|rand_r)\s*\(", ALL_C,
     "random numbers are counter-based (common/base/rng.h), or layouts differ", None),
    (r"\b(setjmp|longjmp|alloca)\b", ALL_C, "hides control flow or memory", None),
    (r"\b(sin|cos|tan|exp|exp2|expm1|log|log2|log10|log1p|pow|tanh|erf|cbrt|sincos)[fl]?\s*\(",
     HOST_MATH, "libm picks its code by processor, so bits would differ between machines; "
     "use common/base/elementary.h",
     # Figures for a reader's eye, in a few digits: nothing is computed from them.
     r"common/(train/metrics|cli/train\w*)\.c$"),
    (r"#\s*pragma\s+omp\b[^\n]*\breduction\s*\(", HOST_MATH,
     "sums in an order that depends on the threads; sum in the fixed tree", None),
    (r"\batomic(Add|Sub|Exch|Max|Min)\s*\(\s*\(?\s*(float|double|__half|__nv_bfloat16)", r"gpu/.*",
     "atomics on floats sum in any order; reduce in a fixed order", None),
    (r"-ffast-math|-Ofast|-funsafe-math-optimizations|--?use_fast_math", r".*(\.am|\.c|\.h|\.cu)$",
     "changes results, which are promised bit for bit", None),
    (r"\b(TODO|FIXME|XXX|HACK)\b", ANY,
     "unfinished work does not land; finish it or say in docs/ what is missing", None),
    (r"(?i)\b(issue|pull request|PR|ticket)s?\s*#?\s*\d+\b", ANY,
     "numbers of a tracker mean nothing outside it; give the reason itself",
     r"docs/papers\.md$"),
)
# What stands in the text of this file as a pattern is not a use of it.
SELF = r"tests/lint/forbidden\.py$|LICENSE|(.*/)?LICENSE\..*"

# Absolute paths may begin so; anything else is a folder of somebody's machine.
SYSTEM = {"bin", "dev", "etc", "lib", "opt", "path", "proc", "sys", "tmp", "usr", "var"}
SCRIPTS = r".*(\.(sh|am|ac|m4|yaml|yml|md|c|h|cu|py|def)|quickstart|/run)$"


def check_paths(name, text, problems):
    """Paths that name one machine's folders, or leave the tree."""
    for match in re.finditer(r"(?<![\w.\-/$})*>~:+@%&\\\]])/([a-z][\w.-]*)/[\w.-]+", text):
        if match.group(1) not in SYSTEM:
            problems.append(f"{name}:{lintlib.line_of(text, match.start())}: {match.group(0)} is a "
                            "folder of one machine; the tree stands alone")
    for match in re.finditer(r"(?<![\w.])((?:\.\./)+)\w", text):
        if match.group(1).count("/") > name.count("/"):
            problems.append(f"{name}:{lintlib.line_of(text, match.start())}: {match.group(0)}... "
                            "leads out of the tree, which stands alone")


def check(root):
    problems = []
    for name in lintlib.tree_files(root):
        if re.match(SELF, name) or not lintlib.is_text(root, name) or name.endswith(".json"):
            continue
        text = lintlib.read(root, name)
        code = lintlib.code_only(text) if name.endswith(lintlib.C_FILES) else text
        for pattern, where, why, allowed in RULES:
            if not re.match(where, name) or (allowed and re.match(allowed, name)):
                continue
            for match in re.finditer(pattern, text if where == ANY else code):
                problems.append(f"{name}:{lintlib.line_of(text, match.start())}: "
                                f"{match.group(0).strip()!r}: {why}")
        if re.match(SCRIPTS, name) and not name.startswith("tests/lint/"):
            check_paths(name, text, problems)
    return problems


CLEAN = {"common/cli/main.c": "int main(void)\n{\n    exit(1); /* exp( and goto */\n}\n",
         "common/a.c": 'int f(void)\n{\n    return elementary_expf(x) + log_info("exp(1) /usr/lib/x");\n}\n',
         "docs/a.md": "See [b](../README.md), $HOME/x/y, common/base/a.c and /usr/local/cuda.\n",
         "README.md": "text\n"}
PLANTED = [
    ({"common/train/a.c": "    exit(1);\n"}, "only cli/main.c"),
    ({"common/backend/comm.c": "    MPI_Abort(c, 1);\n"}, "only cli/main.c"),
    ({"common/cli/main.c": "    _exit(1);\n"}, "only cli/main.c"),
    ({"ref/a.c": "    goto out;\n"}, "no goto"),
    ({"ref/a.c": "    y = expf(x);\n"}, "libm picks"),
    ({"ref/a.c": "#pragma omp parallel for reduction(+ : s)\n"}, "fixed tree"),
    ({"common/a.h": "typedef int a;\n"}, "no typedef"),
    ({"common/a.c": "    sprintf(b, c);\n"}, "has no bound"),
    ({"tests/unit/test_a.c": "    x = rand();\n"}, "counter-based"),
    ({"gpu/a.cu": "    atomicAdd((float *)p, x);\n"}, "atomics on floats"),
    ({"gpu/gpu.am": "NVCCFLAGS = --use_fast_math\n"}, "bit for bit"),
    ({"docs/b.md": "TODO: write\n"}, "unfinished"),
    ({"docs/b.md": "as said in issue #12\n"}, "tracker"),
    ({"docs/b.md": "see /home/me/data\n"}, "folder of one machine"),
    ({"docs/b.md": "see ../../elsewhere/data\n"}, "out of the tree"),
    ({"tests/cli/a.sh": "cat ../../../x\n"}, "out of the tree"),
]

if __name__ == "__main__":
    lintlib.main(check, CLEAN, PLANTED)
