#!/bin/sh
# profile.first and profile.last: one file for the ranks of a run. What is in it: mpi/test_trace.
# shellcheck disable=SC1091,SC2154 # lib.sh sets dir, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
t=$dir/t.yaml
plain "$t"
trace=$dir/run/trace.json

# steps: the numbers of the steps in the file, those of rank 0.
steps() {
    grep '"cat":"step"' "$trace" | grep '"pid":0' | sed 's/.*"number":\([0-9]*\).*/\1/' | tr '\n' ' '
}

ends_well "no profile" 2 train "$t" train.steps=3
expect "no file" test ! -e "$trace"
ends_well "steps 2 and 3" 2 train "$t" train.steps=5 profile.first=2 profile.last=3
expect "where it is" grep -q '^profile  *steps 2 to 3 in .*/run/trace.json' "$dir/out"
same "these steps" "$(steps)" "2 3 "
expect "what its messages cost" grep -q "^dp gradients  *[0-9.]* .*%" "$dir/out"
expect "and all of them" grep -q "^all  .* ms; means over ranks" "$dir/out"
expect "a process for each rank" grep -q '"pid":1' "$trace"
expect "no third" test "$(grep -c '"pid":2' "$trace")" = 0
ends_well "one step" 1 train "$t" train.steps=3 profile.first=3
same "that step" "$(steps)" "3 "
ends_well "a run that ends before" 1 train "$t" train.steps=3 profile.first=2 profile.last=9
same "what there was" "$(steps)" "2 3 "
set -- train.steps=4 run.hash=on
ends_well "without" 1 train "$t" "$@"
without=$(hashes)
ends_well "with" 1 train "$t" "$@" profile.first=2 profile.last=3
same "no bit of the run is another" "$(hashes)" "$without"
if command -v python3 >/dev/null 2>&1; then
    expect "another reader takes it" python3 -c 'import json, sys; json.load(open(sys.argv[1]))' \
        "$trace"
fi
finish
