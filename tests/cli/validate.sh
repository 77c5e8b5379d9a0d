#!/bin/sh
# narrows validate: its table of bounds, what it refuses, and that comparing nothing is no success.
# The checks themselves are run by .ci/run, and with planted mistakes by planted.sh.
# shellcheck disable=SC1091,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
cd "$SOURCE" || exit 1

ends_well "bounds are printed" 0 validate --bounds
rows=$(grep -c '^| .* | .* | .* |$' "$dir/out" || true)
bounds=$(grep -c '^BOUND(' validation/bounds.def)
same "every bound has its row, under the head of the table" "$rows" $((bounds + 2))

refused "a subject that does not exist" 2 "layouts & gradients & strategies & ledger & ops & 'all'" \
    0 validate all
refused "no subject" 2 "validate what" 0 validate
refused "comparing nothing" 1 "nothing was compared" 0 validate ledger --only no-such-row
refused "operations that are none" 1 "nothing was compared" 0 validate ops --only no-such-row
refused "another order where there is one" 2 "--any-order & --backend gpu" \
    0 validate ops --any-order
ends_well "some operations" 0 validate ops --quick --only adamw
same "the rows of one" "$(grep -c '  ok  ' "$dir/out") $(grep -c '^  adamw ' "$dir/out")" "1 1"
ends_well "an operation in one type" 0 validate ops --only "add bf16"
same "its row" "$(grep -c '  ok  ' "$dir/out") $(grep -c '^  add  *bf16 ' "$dir/out")" "1 1"
refused "stored values that are not there" 4 "$dir/none/.*trace.json & --data" \
    0 validate gradients --only "witness cola, fp64" --data "$dir/none"

ends_well "FLOPs by formula and by count" 0 validate ledger --only FLOPs
ends_well "gradients of one model" 0 validate gradients --only "svd btp online"

# A backend against the reference; here the reference stands for it.
refused "a backend that does not exist" 3 "run.backend & ref & gpu & 'tpu'" 0 \
    validate step --quick --backend tpu
ends_well "gradients of a step" 0 validate step --only "full, block fp32" --backend ref
expect "a step's rows are its loss and its worst gradient" \
    grep -q '^2 comparisons, 0 missed$' "$dir/out"
ends_well "the same steps twice" 0 validate repeat --quick --steps 2 --backend ref
ends_well "two curves of training" 0 validate train --quick --steps 3 --backend ref
expect "losses stand side by side" grep -q 'step *3 of 3   ref fp32 5\..*   ref bf16 5\.' "$dir/out"
refused "a text that is not there" 4 "$dir/none" 0 validate train --quick --data "$dir/none"
finish
