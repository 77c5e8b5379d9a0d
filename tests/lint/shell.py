#!/usr/bin/env python3
"""shellcheck over every shell script, found by its first line."""
import re
import subprocess

import lintlib


def scripts(root):
    for name in lintlib.tree_files(root):
        if lintlib.is_text(root, name) and re.match(r"#!.*\b(sh|bash|dash)\b",
                                                    lintlib.read(root, name)):
            yield name


def check(root):
    files = list(scripts(root))
    problems = [f"{f}: a shell script without a first line #!/bin/sh" for f in
                 lintlib.tree_files(root) if f.endswith(".sh") and f not in files]
    if files:
        run = subprocess.run(["shellcheck", "-f", "gcc"] + files, cwd=root, stdout=subprocess.PIPE)
        problems += [line for line in run.stdout.decode().split("\n") if line]
    return problems


CLEAN = {"quickstart": "#!/bin/sh\necho \"$1\"\n"}
PLANTED = [({"tests/cli/a.sh": "#!/bin/sh\necho $1\n"}, "tests/cli/a.sh:2:"),
           ({"tests/cli/b.sh": "#!/bin/sh\n[[ a == b ]]\n"}, "tests/cli/b.sh:2:"),
           ({"tests/cli/c.sh": "echo\n"}, "without a first line")]

if __name__ == "__main__":
    lintlib.main(check, CLEAN, PLANTED)
