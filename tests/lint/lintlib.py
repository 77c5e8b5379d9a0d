"""What the lints share: the tree's files, C with comments blanked, and the self-test.

A lint is a script with a function check(root) that returns a list of problems ("file:line: what is
wrong; the way out"), a dict CLEAN of files in which it finds nothing, and a list PLANTED of
(files, expected text): each is a mistake that it has to find.
"""
import os
import re
import subprocess
import sys
import tempfile

# What a distribution holds beyond the repository, and build folders in it.
GENERATED = r"(_?build[^/]*|autom4te\.cache|runs)/|(configure~?|aclocal\.m4|Makefile\.in)$|\.|.*__pycache__/"
C_FILES = (".c", ".cu", ".h", ".cuh")


def tree_files(root):
    """All files that belong to the project: what git tracks or would, or all files without git."""
    if os.path.exists(os.path.join(root, ".git")):
        listing = subprocess.run(
            ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
            check=True, stdout=subprocess.PIPE).stdout.decode()
        names = set(listing.split("\0")) - {""}
        return sorted(n for n in names if os.path.exists(os.path.join(root, n)))
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(f for f in found if not re.match(GENERATED, f))


def c_files(root, endings=C_FILES, folders=("common", "ref", "gpu", "tests", "validation")):
    return [f for f in tree_files(root) if f.endswith(endings) and f.split("/")[0] in folders]


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def is_text(root, name):
    with open(os.path.join(root, name), "rb") as f:
        return b"\0" not in f.read(8192)


_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def code_only(text, keep_strings=False):
    """The text with comments (and strings) blanked; every character keeps its place."""
    def replace(match):
        token = match.group(0)
        if token[0] == "/":
            return _blank(token)
        return token if keep_strings else token[0] + _blank(token[1:-1]) + token[-1]
    return _TOKEN.sub(replace, text)


def without_preprocessor(code):
    """Blanks the lines of the preprocessor, continuation lines too."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: _blank(m.group(0)), code, flags=re.M)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def matching(code, start):
    """Offset of the bracket that closes the one at start, or -1."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    opening, closing = code[start], pairs[code[start]]
    depth = 0
    for i in range(start, len(code)):
        if code[i] == opening:
            depth += 1
        elif code[i] == closing:
            depth -= 1
            if depth == 0:
                return i
    return -1


def open_linkage(code):
    """Blanks 'extern "C" {' and 'namespace {' so that what they hold counts as file scope."""
    return re.sub(r'extern\s+"[^"]*"\s*\{|namespace\s+\w*\s*\{', lambda m: _blank(m.group(0)), code)


def statements(code):
    """Yields (start, end, body) for each declaration at file scope.

    end is the offset of its ';' or of the '{' of a function's body; body is the offset of the '}'
    of that body, None for a declaration. Give it code without comments and preprocessor lines.
    """
    code = open_linkage(code)
    start = i = 0
    while i < len(code):
        c = code[i]
        if c == ";":
            yield _skip_space(code, start, i), i, None
            start = i + 1
        elif c in "([":
            i = max(matching(code, i), i)
        elif c == "{":
            close = matching(code, i)
            close = len(code) - 1 if close < 0 else close
            if re.search(r"\)\s*(__attribute__\s*\(\(.*\)\)\s*)?$|\bEND_OF_HEAD$", code[start:i]):
                yield _skip_space(code, start, i), i, close
                start = close + 1
            i = close
        elif c == "}":  # of extern "C"
            start = i + 1
        i += 1


def _skip_space(code, start, end):
    while start < end and code[start].isspace():
        start += 1
    return start


def functions(code):
    """Yields (name, parameters, start, open brace, close brace) of each function defined."""
    for start, end, body in statements(code):
        if body is None:
            continue
        head = code[start:end]
        found = re.search(r"(\w+)\s*\(", re.sub(r"__\w+__\s*\(\(.*?\)\)|__launch_bounds__\s*\([^)]*\)",
                                                lambda m: _blank(m.group(0)), head))
        if not found:
            continue
        first = start + found.end() - 1
        last = matching(code, first)
        yield found.group(1), code[first + 1:last], start, end, body


def split_parameters(text):
    """The parameters in a parameter list; void is none."""
    depth, parts, last = 0, [], 0
    for i, c in enumerate(text):
        if c in "([{<":
            depth += 1
        elif c in ")]}>":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    parts = [p.strip() for p in parts + [text[last:]]]
    return [] if parts in ([""], ["void"]) else parts


def write_tree(root, files):
    for name, text in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


def _run_on(check, files):
    with tempfile.TemporaryDirectory() as root:
        write_tree(root, files)
        return check(root)


def self_test(check, clean, planted):
    """True if check() is silent on the clean files and finds every planted mistake."""
    good = True
    found = _run_on(check, clean)
    if found:
        print("self-test: found in clean files:", *found, sep="\n  ")
        good = False
    for files, expected in planted:
        found = _run_on(check, {**clean, **files})
        if not any(expected in problem for problem in found):
            print(f"self-test: not found: {expected!r} in {files}; found {found}")
            good = False
    print(f"self-test: {len(planted)} planted mistakes" + (" found" if good else ", some missed"))
    return good and bool(planted)


def main(check, clean, planted):
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(0 if self_test(check, clean, planted) else 1)
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")
    problems = check(root)
    print(*problems, sep="\n", end="\n" if problems else "")
    sys.exit(1 if problems else 0)
