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
refused "gemm compares nothing" 2 "bench gemm measures one configuration" 0 bench gemm \
    "$dir/t.yaml" --compare parallel.recompute=none
ends_well "layer" 0 bench layer "$dir/t.yaml" -r 1
rows 1 '\(as configured\)$'
ends_well "step" 0 bench step "$dir/t.yaml" -r 1 --compare parallel.recompute=none
rows 1 '\(as configured\)$'
rows 1 'parallel.recompute=none$'
expect "both stay open" test "$(grep -c '^together' "$dir/out")" = 0

# Two need 8 MiB: with 6, each is opened alone; more turns than rounds there are none.
set -- bench step "$dir/t.yaml" --memory 6MiB --compare parallel.recompute=none
ends_well "short of memory" 0 "$@" -r 4
rows 1 '^together the 2 .* 6\.0 MiB .* alone, 3 time\(s\) in turn, for 1 to 2 of its 4 rounds$'
rows 1 '^ +[0-9.]+ .* 1\.00x .*\(as configured\)$'
rows 1 '^ +[0-9.]+ .*parallel.recompute=none$'
ends_well "one round" 0 "$@" -r 1
rows 1 'alone, 1 time\(s\) in turn, for 1 to 1 of its 1 rounds$'
ends_well "layers, short of memory" 0 bench layer "$dir/t.yaml" --memory 6MiB -r 2 \
    --compare parallel.recompute=none
rows 1 '^together'
refused "a size that is none" 2 "--memory is 'much'" 0 bench step "$dir/t.yaml" -m much

# What blocks send between two ranks: 7 r + 2 and 7 r elements a token, r 16; messages take
# time, and the work waits for them.
if [ "$MPIRUN" != no ]; then
    ends_well "layer, tp 2" 2 bench layer "$dir/t.yaml" -r 2 parallel.tp=2
    waits=$(awk '/\(as configured\)$/ { print $6, $7, ($8 > 0 && $9 > 0 && $10 > 0 && $11 > 0) }' \
        "$dir/out")
    same "elements a token and block, time of messages and of waiting" "$waits" "114.0 112.0 1"
    ends_well "step, dp 2" 2 bench step "$dir/t.yaml" -r 1 parallel.dp=2
    waits=$(awk '/\(as configured\)$/ { print ($8 == 0), ($9 > 0), ($10 == 0) }' "$dir/out")
    same "only replicas wait" "$waits" "1 1 1"
fi

# Floors: each part is there where the configuration has it; hidden messages make no floor higher.
# floors PARTS: products, attention, moves and messages of each row, 1 where it took time.
floors() {
    awk '/copy GB/ { on = 1; next } on && /^ +[0-9.]+ +[0-9.]+ +[0-9.]+x/ {
        printf "%d%d%d%d%d ", ($6 > 0), ($7 > 0), ($8 > 0), ($9 > 0), ($4 <= $2 + 0.001) }' "$dir/out"
}
ends_well "floors of steps" 0 bench step "$dir/t.yaml" -r 1 --floor --memory 6MiB \
    --compare 'train.micro_batch=2 parallel.layout_exact=off; train.precision=bf16'
same "products, attention and moves" "$(floors)" "11101 11101 11101 "
ends_well "floors of layers" 0 bench layer "$dir/t.yaml" -r 1 --floor
same "of layers" "$(floors)" "11101 "
refused "no floor of a product" 2 "bench gemm .* --floor are for layer and step" 0 bench gemm \
    "$dir/t.yaml" --floor
if [ "$MPIRUN" != no ]; then
    ends_well "floors of layers, tp 2" 2 bench layer "$dir/t.yaml" -r 1 parallel.tp=2 --floor
    same "and messages" "$(floors)" "11111 "
    ends_well "floors of steps, two ranks" 2 bench step "$dir/t.yaml" -r 1 parallel.tp=2 --floor \
        --compare "parallel.tp=1 parallel.dp=2 parallel.zero=1; parallel.tp=1 parallel.pp=2; \
parallel.overlap=all"
    same "of replicas, stages and half-batches" "$(floors)" "11111 11111 11111 11111 "
    rows 1 "^a pipeline's sends and its bubble are in no floor"
fi
refused "an unknown kind" 2 "kernels & 'speed'" 0 bench speed "$dir/t.yaml"
finish
