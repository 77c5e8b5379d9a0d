#!/usr/bin/env python3
"""Every prototype in a header has a comment right above it. Prototypes on consecutive lines share
the comment of the first; a blank line ends the sharing. Every header begins with a comment."""
import re

import lintlib


def is_prototype(statement):
    if re.match(r"(typedef|struct\s+\w+\s*\{|enum\b[^(]*\{|union\b[^(]*\{|static_assert|_Static_assert)",
                statement):
        return False
    bare = re.sub(r"__attribute__\s*\(\(.*?\)\)\s*$", "", statement, flags=re.S).rstrip()
    return bare.endswith(")") and "=" not in bare.split("(")[0]


def documented(lines, number, covered):
    """Whether line `number` (from 1) follows a comment's end or a covered prototype's last line."""
    above = lines[number - 2].rstrip() if number > 1 else ""
    return above.endswith("*/") or above.lstrip().startswith("//") or number - 1 in covered


def check_header(name, text, problems):
    code = lintlib.without_preprocessor(lintlib.code_only(text))
    lines = text.split("\n")
    covered = set()
    if not text.lstrip().startswith("/*"):
        problems.append(f"{name}:1: the header does not begin with a comment on what it is for")
    for start, end, body in lintlib.statements(code):
        statement = code[start:end].strip()
        if not is_prototype(statement):
            continue
        first = lintlib.line_of(code, start)
        last = lintlib.line_of(code, end if body is None else body)
        if documented(lines, first, covered):
            covered.add(last)
        else:
            found = re.search(r"(\w+)\s*\(", statement)
            problems.append(f"{name}:{first}: {found.group(1)}() has no comment right above it; say "
                            "what it does, shapes, ownership, errors, local or collective")


def check(root):
    problems = []
    for name in lintlib.c_files(root, (".h", ".cuh")):
        check_header(name, lintlib.read(root, name), problems)
    return problems


CLEAN = {"common/a.h": """/* What it is for. */
#ifndef A_H
#define A_H
#ifdef __cplusplus
extern "C" {
#endif

struct table {
    int (*slot)(int a);
};

/* Does it. */
enum status f(int a,
              int b) __attribute__((format(printf, 1, 2)));
int g(void); /* and this */

/* Twice. */
static inline int h(void)
{
    return 2;
}

extern const struct table t;
#ifdef __cplusplus
}
#endif
#endif
"""}
PLANTED = [
    ({"common/b.h": "/* b */\n\nint f(void);\n"}, "f() has no comment"),
    ({"common/b.h": "/* b */\n\n/* f */\nint f(void);\n\nint g(void);\n"}, "g() has no comment"),
    ({"ref/b.h": "/* b */\n\nstatic inline int f(void)\n{\n    return 1;\n}\n"}, "f() has no comment"),
    ({"ref/b.h": '/* b */\n#ifdef __cplusplus\nextern "C" {\n#endif\n\nint f(int a)'
                 " __attribute__((format(printf, 1, 2)));\n"}, "f() has no comment"),
    ({"gpu/b.h": "#ifndef B\n/* f */\nint f(void);\n"}, "does not begin with a comment"),
]

if __name__ == "__main__":
    lintlib.main(check, CLEAN, PLANTED)
