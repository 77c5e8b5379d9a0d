#!/bin/sh
# narrows plan: charts and bubbles; micro-batches that a memory holds; what they refuse.
# shellcheck disable=SC1091,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
cd "$SOURCE" || exit 1

ends_well "a plain pipeline" 0 plan schedule --stages 4 --micro-batches 8
expect "its bubble: 9 of 33" grep -qx 'bubble  27.3 %' "$dir/out"
ends_well "virtual stages" 0 plan schedule -p 4 -m 8 --order interleaved -v 2
expect "their bubble: 4.5 of 28.5" grep -qx 'bubble  15.8 %' "$dir/out"
ends_well "zero bubble" 0 plan schedule -p 4 -m 8 --order zb-h1
expect "its bubble: 3 of 27" grep -qx 'bubble  11.1 %' "$dir/out"
expect "a row a stage" test "$(grep -c '^stage [0-3]  |' "$dir/out")" = 4
refused "an order that does not exist" 2 "2f2b & gpipe & zb-h1" 0 plan schedule --order 2f2b
refused "virtual stages of another order" 2 "virtual-stages 2 & interleaved" 0 plan schedule -v 2
refused "a number that does not go round" 2 "6 & 4 & micro-batches 8" 0 \
    plan schedule --order interleaved -v 2 -m 6
refused "a plan of something else" 2 "plan has no verb .budget." 0 plan budget

# Micro-batches: each row's sum is within the memory, and with one sequence more beyond it. What
# the sums are is seen in mpi/test_memory_fit.
plain "$dir/t.yaml"
ends_well "micro-batches of a low-rank model" 0 plan memory "$dir/t.yaml" --memory 40MiB
expect "three rows of full rank" test "$(grep -c '^full  *full ' "$dir/out")" = 3
expect "three of vanilla" test "$(grep -c '^cola  *vanilla ' "$dir/out")" = 3
expect "four of btp" test "$(grep -c '^cola  *btp ' "$dir/out")" = 4
# shellcheck disable=SC2016 # awk expands it
expect "all within, one more beyond" awk '
    /MiB .* MiB$/ { rows++; if (!($4 > 0 && $5 == 32 * $4 && $6 <= 40 && $8 >= 40)) exit 1 }
    END { exit rows != 10 }' "$dir/out"
ends_well "nothing fits" 0 plan memory "$dir/t.yaml" --memory 4KiB model.layer=full
expect "and it says 0" grep -qE '^full +full +none +0 ' "$dir/out"
ends_well "as if on a GPU" 0 plan memory "$dir/t.yaml" --memory 1GiB run.backend=gpu \
    train.precision=bf16 parallel.tp=2 parallel.layout_exact=off --ranks 4
expect "tp 2 x dp 2" grep -q 'bf16 on gpu, .* tp 2 x dp 2' "$dir/out"
ends_well "no more than a GPU's context and workspaces" 0 plan memory "$dir/t.yaml" \
    --memory 600MiB run.backend=gpu train.precision=bf16 parallel.layout_exact=off
expect "leaves room for none" grep -qE '^cola +btp +none +0 ' "$dir/out"
# cuDNN's workspace, in the scratch, is for whole sequences.
for reset in off on; do
    ends_well "documents $reset" 0 train "$dir/t.yaml" --dry-run run.backend=gpu train.seq=2048 \
        train.precision=bf16 parallel.layout_exact=off data.document_separator=-- \
        data.reset_documents=$reset
    scratch=$(sed -n 's/^ *scratch of operations *//p' "$dir/out")
    [ $reset = on ] || whole=$scratch
done
same "documents apart need the least scratch" "$scratch" "64.0 MiB"
differ "whole sequences need more" "$whole" "$scratch"
ends_well "in any order of sums" 0 train "$dir/t.yaml" --dry-run run.backend=gpu train.seq=2048 \
    train.precision=bf16 parallel.layout_exact=off run.deterministic=off
scratch=$(sed -n 's/^ *scratch of operations *//p' "$dir/out")
differ "which need less" "$scratch" "$whole"
ends_well "what does not go together" 0 plan memory "$dir/t.yaml" --memory 1GiB parallel.pp=2 \
    parallel.schedule=zb-h1 train.micro_batch=2
expect "is a row that says why" grep -qE '^cola +btp +block +- +parallel.schedule zb-h1' "$dir/out"
refused "no size" 2 "--memory & 80Gib & 80GiB" 0 plan memory "$dir/t.yaml" --memory 80Gib
refused "no configuration" 2 "CONFIG" 0 plan memory
finish
