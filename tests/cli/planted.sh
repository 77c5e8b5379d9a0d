#!/bin/sh
# Mistakes that public code has made, switched on one by one in narrows-planted: narrows validate
# must notice each, by the shortest of its checks that can, and must pass without any.
# shellcheck disable=SC1091,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
program=$(dirname -- "$NARROWS")/narrows-planted
cd "$SOURCE" || exit 1

# check WANT WHAT WORDS...: validate WORDS with mistake $mistake (0: none) ends with status WANT.
check() {
    want=$1 claim=$2
    shift 2
    status=0
    : >"$dir/err"
    NARROWS_PLANTED=$mistake timeout 300 "$program" validate "$@" >"$dir/out" 2>"$dir/err" ||
        status=$?
    misses=$(grep -c ' MISS$' "$dir/out" || true)
    if [ "$status" = "$want" ] && { [ "$want" = 0 ] || [ "$misses" -gt 0 ]; }; then
        ok "$claim ($misses missed)"
    else
        not_ok "$claim" "status $status with $misses misses, not status $want"
    fi
}

# caught NUMBER WHAT WORDS...: the check passes without a mistake and fails with this one.
last=
caught() {
    this=$1 what=$2
    shift 2
    mistake=0
    [ "$last" = "$*" ] || check 0 "no mistake: $*" "$@"
    last=$*
    mistake=$this
    check 1 "$what" "$@"
}

caught 1 "RMSNorm of a rank's own shard" strategies --quick --only "cola fp64, btp on 2 ranks"
caught 2 "statistic without its gradient" gradients --quick --only "cola btp online, outer SiLU"
caught 3 "rescaled by the rank's own factor after the sum" \
    strategies --quick --only "cola fp64, btp online_local on 2 ranks"
caught 4 "grad norm counts whole parameters once a rank" \
    layouts --steps 1 --ranks 2 --quick --only "cola vanilla strong"
caught 5 "mean of the replicas' means" \
    layouts --steps 1 --ranks 2 --quick --only "cola vanilla strong"
caught 6 "validation loss divided by n + 1" layouts --quick --only "validation loss"
caught 7 "last residual dropped" gradients --quick --only "witness svd, fp64"
caught 8 "FLOPs without the up-projections" ledger --quick --only FLOPs
caught 9 "tied gradients joined before their sum over replicas" \
    layouts --steps 1 --ranks 2 --quick --only "svd btp tied"
caught 10 "grad norm of the own pipeline stage" \
    layouts --steps 1 --ranks 4 --quick --only "cola vanilla strong"

# A shadow: the backend alone is wrong, the reference beside it is right.
plain "$dir/t.yaml"
for mistake in 0 11; do
    status=0
    : >"$dir/err"
    NARROWS_PLANTED=$mistake timeout 300 "$program" train "$dir/t.yaml" train.steps=4 \
        shadow.every=2 shadow.stop=on >"$dir/out" 2>"$dir/err" || status=$?
    if [ "$mistake" = 0 ]; then
        same "a shadow sees nothing without a mistake" "$status" 0
        expect "two replays" test "$(grep -c '^shadow of step' "$dir/out")" = 2
        expect "each to the last bit" test "$(grep -c 'loss 0 apart .* up to 0 apart' "$dir/out")" = 2
        expect "their cost" grep -q '^shadow  *2 replays through ref, 0 beyond' "$dir/out"
        expect "a record of each" test "$(grep -c shadow_gradient "$dir/run/metrics.jsonl")" = 2
    else
        same "a shadow sees a gradient that is 1 % too large" "$status" 1
        expect "its tensor, its size, the bound" grep -qE \
            'gradient of model\.layers\.[0-9].* 0\.01 apart, at most 0 allowed; 1 of' "$dir/err"
        NARROWS_PLANTED=$mistake "$program" train "$dir/t.yaml" train.steps=4 shadow.every=2 \
            >"$dir/out" 2>"$dir/err" || not_ok "a warning ends nothing" "status $?"
        same "by default it is a warning" "$(grep -c '^warning: step' "$dir/err")" 2
    fi
done
finish
