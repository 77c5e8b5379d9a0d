#!/usr/bin/env python3
"""Functions of at most 60 lines, 7 parameters and 3 nested blocks; .c files of at most 400 lines,
headers of at most 250; 100 columns. What is longer is split where the reader would pause."""
import re

import lintlib

FUNCTION_LINES, PARAMETERS, NESTING, COLUMNS = 60, 7, 3, 100
FILE_LINES = {".c": 400, ".cu": 400, ".h": 250, ".cuh": 250}


def nesting(code):
    """The deepest nesting of control blocks in a function's body (its outer braces not counted)."""
    deepest, stack = 0, []
    for i, c in enumerate(code):
        if c == "{":
            stack.append(_is_control(code[:i].rstrip()))
            deepest = max(deepest, sum(stack))
        elif c == "}" and stack:
            stack.pop()
    return deepest


def _is_control(before):
    """Whether a brace after this text opens the block of if, for, while, switch, do or else."""
    if before.endswith(("else", "do")):
        return True
    if not before.endswith(")"):
        return False
    depth = 0
    for i in range(len(before) - 1, -1, -1):
        depth += (before[i] == ")") - (before[i] == "(")
        if depth == 0:
            return re.search(r"\b(if|for|while|switch|\w*[A-Z]\w*)\s*$", before[:i]) is not None
    return False


def check_functions(name, code, problems):
    for function, parameters, start, opened, closed in lintlib.functions(code):
        where = f"{name}:{lintlib.line_of(code, start)}: {function}()"
        lines = code.count("\n", start, closed) + 1
        if lines > FUNCTION_LINES:
            problems.append(f"{where} has {lines} lines, allowed {FUNCTION_LINES}; split it")
        count = len(lintlib.split_parameters(parameters))
        if count > PARAMETERS:
            problems.append(f"{where} has {count} parameters, allowed {PARAMETERS}; "
                            "gather them in a struct")
        deep = nesting(code[opened + 1:closed])
        if deep > NESTING:
            problems.append(f"{where} nests {deep} blocks, allowed {NESTING}; "
                            "return early or split it")


def check(root):
    problems = []
    for name in lintlib.c_files(root):
        text = lintlib.read(root, name)
        limit = FILE_LINES["." + name.rsplit(".", 1)[1]]
        lines = text.count("\n")
        if lines > limit:
            problems.append(f"{name}: {lines} lines, allowed {limit}; split the file")
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > COLUMNS:
                problems.append(f"{name}:{number}: {len(line)} columns, allowed {COLUMNS}")
        check_functions(name, lintlib.without_preprocessor(lintlib.code_only(text)), problems)
    return problems


CLEAN = {"common/a.c": """#include "a.h"
enum { N = 3 };
static const int table[] = {1, 2};
/* A comment with { braces. */
static int f(int a, const char *b, int (*g)(int, int))
{
    struct s x = {.a = {1, 2}};
    for (int i = 0; i < a; i++) {
        if (b[i] == '{') {
            while (g(a, (struct s){1, {2}}.a)) {
                a--;
            }
        }
    }
    return a;
}
"""}
PLANTED = [
    ({"common/b.c": "int f(void)\n{\n" + "    g();\n" * 58 + "}\n"}, "f() has 61 lines"),
    ({"ref/b.c": "int f(int a, int b, int c, int d, int e, int g, int h, int i)\n{\n    return 0;\n}\n"},
     "8 parameters"),
    ({"gpu/b.cu": "__global__ void k(int a)\n{\n    if (a) {\n        for (;;) {\n            while (a)"
                  " {\n                do {\n                    a--;\n                } while (a);\n"
                  "            }\n        }\n    }\n}\n"}, "k() nests 4 blocks"),
    ({"common/c.c": "int a;\n" * 401}, "401 lines, allowed 400"),
    ({"common/c.h": "int a(void);\n" * 251}, "251 lines, allowed 250"),
    ({"tests/unit/test_a.c": "/* " + "x" * 100 + " */\n"}, "106 columns, allowed 100"),
]

if __name__ == "__main__":
    lintlib.main(check, CLEAN, PLANTED)
