#!/usr/bin/env python3
"""Includes point one way: cli, train, data and checkpoint, model, parallel, compress, backend,
tensor, base; tokenizer (on base) serves data. ref and gpu see only backend, tensor and base; only cli sees ref and gpu. Libraries
have their rooms too: CUDA in gpu, OpenBLAS in ref, MPI in ref, gpu, cli and backend/host*."""
import re

import lintlib

BELOW = {"base": set()}
for _room, _first in (("tensor", "base"), ("backend", "tensor"), ("compress", "backend"),
                      ("parallel", "compress"), ("model", "parallel"), ("data", "model"),
                      ("checkpoint", "model"), ("tokenizer", "base")):
    BELOW[_room] = BELOW[_first] | {_first}
BELOW["data"] |= {"tokenizer"}
BELOW["train"] = BELOW["data"] | {"data", "checkpoint"}
BELOW["cli"] = BELOW["train"] | {"train", "ref", "gpu", "validation"}
BELOW["ref"] = BELOW["gpu"] = {"base", "tensor", "backend"}
ANY = set(BELOW) | {"ref", "gpu", "validation", "tests"}
BELOW["tests"] = BELOW["validation"] = ANY

# library header: files that may include it (tests and validation may include all)
LIBRARIES = (
    (r"mpi\.h", r"ref/|gpu/|common/cli/|common/backend/host"),
    (r"cblas\.h|openblas.*", r"ref/|common/cli/blas_kernel"),  # the log names the kernel
    (r"cuda.*|cublas.*|nccl.*|cudnn.*", r"gpu/"),
    (r"pcre2\.h|utf8proc\.h", r"common/tokenizer/"),
    (r"check\.h", r"tests/"),
)


def room_of(name):
    parts = name.split("/")
    return parts[1] if parts[0] == "common" and len(parts) > 2 else parts[0]


def check_own(where, room, target, problems):
    other = room_of(target)
    if "/" not in target or target.startswith("."):
        problems.append(f'{where}: "{target}" is not named from the top; '
                        f'write "common/ROOM/FILE.h"')
    elif target.endswith((".c", ".cu")):
        problems.append(f'{where}: "{target}" is a source; include its header')
    elif room not in BELOW:
        problems.append(f"{where}: {room} is no room of the house (tests/lint/layers.py lists them)")
    elif other != room and other not in BELOW[room]:
        problems.append(f'{where}: {room} includes "{target}", but {other} is not below {room}; '
                        "pass what is needed as an argument, or move it down")


def check_library(name, where, target, problems):
    for pattern, files in LIBRARIES:
        if re.fullmatch(pattern, target) and not re.match(files + "|tests/|validation/", name):
            problems.append(f"{where}: <{target}> is for {files.replace('|', ', ')} only; "
                            "go through the seam")


def check(root):
    problems = []
    for name in lintlib.c_files(root, lintlib.C_FILES + (".def",)):
        code = lintlib.code_only(lintlib.read(root, name), keep_strings=True)
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]*)"|<([^>]*)>)', code, re.M):
            where = f"{name}:{lintlib.line_of(code, match.start())}"
            if match.group(1) is not None:
                check_own(where, room_of(name), match.group(1), problems)
            else:
                check_library(name, where, match.group(2), problems)
    return problems


CLEAN = {"common/train/step.c": '#include "common/train/step.h"\n#include "common/model/block.h"\n',
         "common/cli/main.c": '#include "ref/ref.h"\n#include <mpi.h>\n',
         "ref/gemm.c": '#include "common/backend/op.h"\n#include <cblas.h>\n',
         "tests/unit/test_a.c": '#include "ref/ref.h"\n#include <check.h>\n'}
PLANTED = [
    ({"common/base/a.c": '#include "common/tensor/tensor.h"\n'}, "tensor is not below base"),
    ({"common/data/a.c": '#include "common/checkpoint/hf.h"\n'}, "checkpoint is not below data"),
    ({"ref/a.c": '#include "common/model/block.h"\n'}, "model is not below ref"),
    ({"common/train/a.c": '#include "ref/ref.h"\n'}, "ref is not below train"),
    ({"common/model/a.c": "#include <mpi.h>\n"}, "<mpi.h> is for"),
    ({"common/backend/a.h": "#include <cuda_runtime.h>\n"}, "<cuda_runtime.h> is for"),
    ({"common/base/a.c": '#include "status.h"\n'}, "not named from the top"),
    ({"common/base/a.c": '#include "common/base/b.c"\n'}, "is a source"),
    ({"common/attic/a.c": '#include "common/base/status.h"\n'}, "attic is no room"),
]

if __name__ == "__main__":
    lintlib.main(check, CLEAN, PLANTED)
