#!/bin/sh
# `narrows bench`: each kind prints its table; how fast is nobody's promise here.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
plain "$dir/t.yaml"

# rows N REGEX: at least N lines of the output look like it.
rows() {
    expect "$1 rows of $2" test "$(grep -cE "$2" "$dir/out")" -ge "$1"
}

ends_well "kernels" 0 bench kernels "$dir/t.yaml" -r 1
rows 1 '^  copy  .* 100\.0%$'
rows 19 '^  [a-z_, ]+  +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+%$'
ends_well "gemm" 0 bench gemm "$dir/t.yaml" -r 1
rows 27 'GFLOP/s +[0-9.]+%$'
ends_well "attention" 0 bench attention "$dir/t.yaml" -r 1
rows 2 '^  attention (for|back)ward'
ends_well "layer" 0 bench layer "$dir/t.yaml" -r 1
rows 1 '\(as configured\)$'
ends_well "step" 0 bench step "$dir/t.yaml" -r 1 --compare parallel.recompute=none
rows 1 '\(as configured\)$'
rows 1 'parallel.recompute=none$'
refused "an unknown kind" 2 "kernels & 'speed'" 0 bench speed "$dir/t.yaml"
finish
