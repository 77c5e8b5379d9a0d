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
refused "stored values that are not there" 4 "$dir/none/.*trace.json & --data" \
    0 validate gradients --only "witness cola, fp64" --data "$dir/none"

ends_well "FLOPs by formula and by count" 0 validate ledger --only FLOPs
ends_well "gradients of one model" 0 validate gradients --only "svd btp online"
finish
