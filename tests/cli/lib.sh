#!/bin/sh
# Helpers of the command-line tests: . "$SOURCE/tests/cli/lib.sh" at their beginning.
#
#   plain FILE            writes the small configuration T as YAML
#   job N WORDS...        runs narrows on N ranks: fills $dir/out, $dir/err and $dir/rank.N (the
#                         exit status of each rank), sets $status (of all ranks; "mixed" when they
#                         differ; "hung" when the limit LIMIT, 120 s, was needed)
#   direct WORDS...       the same without mpirun, for what does not depend on ranks
#   refused WHAT STATUS PATTERNS N WORDS...
#                         a job that must end with STATUS on all ranks and say why once, in a line
#                         that matches each of PATTERNS ("egrep & egrep"); N = 0: without mpirun
#   ends_well WHAT N WORDS...   a job that must succeed
#   hashes                the lines of run.hash in $dir/out, for comparison
#   same/differ WHAT A B, expect WHAT COMMAND...    single checks
#   finish                the counting line; exit status of the test
#
# In T (as in the table of reported faults): 2 layers, width 64, 4 heads, 2 of keys and values, FFN
# 176, rank 16, bytes, sequences of 32, batch 8, seed 1.
set -eu
export LC_ALL=C
NARROWS=${NARROWS:-$SOURCE/build/narrows}
MPIRUN=${MPIRUN:-mpirun}
LIMIT=${LIMIT:-120}
passed=0 failed=0
status=
dir=$(mktemp -d "${TMPDIR:-/tmp}/narrows-case.XXXXXX")
text=$SOURCE/examples/data/tinyshakespeare/val.txt
export dir

# Open MPI 4 and 5 name their settings differently; both are told that tests may share cores and
# run as root, as in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Several ranks share few cores: one thread each, which does not spin while it waits.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive

# Tests that need something more to be undone define undo(); those that say more about each check,
# told(), which is called after it.
undo() { :; }
told() { :; }
leave() {
    undo
    rm -rf "$dir"
}
trap leave EXIT
trap 'exit 1' HUP INT TERM

need_mpirun() {
    if [ "$MPIRUN" = no ]; then
        echo "skipped: no mpirun (Debian package openmpi-bin)"
        exit 77
    fi
}

ok() {
    passed=$((passed + 1))
    echo "ok: $1"
    told
}

# not_ok WHAT WHY: counts a failure and shows the end of the last job's output.
not_ok() {
    failed=$((failed + 1))
    echo "FAILED: $1: $2"
    for file in "$dir/out" "$dir/err"; do
        [ ! -s "$file" ] || tail -n 12 "$file" | sed 's/^/    | /'
    done
    told
}

expect() {
    claim=$1
    shift
    if "$@" >/dev/null 2>&1; then
        ok "$claim"
    else
        not_ok "$claim" "$* did not succeed"
    fi
}

same() {
    if [ -n "$2" ] && [ "$2" = "$3" ]; then
        ok "$1"
    else
        not_ok "$1" "'$2' and '$3' are to be the same, and not empty"
    fi
}

differ() {
    if [ -n "$2" ] && [ -n "$3" ] && [ "$2" != "$3" ]; then
        ok "$1"
    else
        not_ok "$1" "'$2' and '$3' are to be different, and not empty"
    fi
}

plain() {
    cat >"$1" <<END
model:
  layer: cola
  width: 64
  layers: 2
  heads: 4
  kv_heads: 2
  ffn: 176
  rank: 16
data:
  train: $text
  validation: $text
train:
  steps: 20
  batch: 8
  seq: 32
  seed: 1
  eval_every: 0
  eval_sequences: 16
run:
  dir: $dir/run
  overwrite: on
  save: off
END
}

# The status that all of the ranks ended with.
settle() {
    if [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; then
        status=hung
        return
    fi
    status=$(cat "$dir"/rank.* 2>/dev/null | sort -u | tr '\n' ' ')
    case $status in
    *' '*' ') status=mixed ;;
    *) status=${status% } ;;
    esac
}

# Each rank is run by a shell that writes its status down and ends well itself: mpirun then stops
# nobody, and what every rank makes of a failure is seen.
job() {
    ranks=$1
    shift
    rm -f "$dir"/rank.*
    code=0
    # shellcheck disable=SC2016 # the ranks' shell expands it
    timeout -k 5 "$LIMIT" "$MPIRUN" -n "$ranks" --bind-to none sh -c \
        'rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:?}}; "$@"; echo $? >"$dir/rank.$rank"' \
        narrows "$NARROWS" "$@" >"$dir/out" 2>"$dir/err" </dev/null || code=$?
    settle "$code"
    [ "$status" = hung ] || [ "$(find "$dir" -name 'rank.*' | wc -l)" -eq "$ranks" ] || status=mixed
}

direct() {
    rm -f "$dir"/rank.*
    code=0
    timeout -k 5 "$LIMIT" "$NARROWS" "$@" >"$dir/out" 2>"$dir/err" </dev/null || code=$?
    echo "$code" >"$dir/rank.0"
    settle "$code"
}

messages() {
    grep -c '^narrows: ' "$dir/err" || true
}

# check_refusal WHAT STATUS PATTERNS: of the last job.
check_refusal() {
    if [ "$status" != "$2" ]; then
        not_ok "$1" "status $status on the ranks, not $2"
        return
    fi
    if [ "$(messages)" -ne 1 ]; then
        not_ok "$1" "$(messages) messages, not one"
        return
    fi
    printf '%s\n' "$3" | sed 's/ & /\n/g' >"$dir/patterns"
    while read -r pattern; do
        if ! grep '^narrows: ' "$dir/err" | grep -qE -e "$pattern"; then
            not_ok "$1" "the message lacks '$pattern'"
            return
        fi
    done <"$dir/patterns"
    ok "$1"
}

run_on() {
    if [ "$1" = 0 ]; then
        shift
        direct "$@"
    else
        job "$@"
    fi
}

refused() {
    claim=$1 want=$2 patterns=$3
    shift 3
    run_on "$@"
    check_refusal "$claim" "$want" "$patterns"
}

ends_well() {
    claim=$1
    shift
    run_on "$@"
    if [ "$status" = 0 ] && [ "$(messages)" -eq 0 ]; then
        ok "$claim"
    else
        not_ok "$claim" "status $status, $(messages) messages"
    fi
}

hashes() {
    tr '\r' '\n' <"$dir/out" | sed 's/^.*hash after/hash after/' | grep '^hash after' || true
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# Run as a test itself, it shows that its checks can fail.
selftest() {
    plain "$dir/t.yaml"
    refused "a run that succeeds is not refused" 3 '' 0 help
    refused "a wrong status is seen" 4 "tests" 0 no-such-command
    refused "a missing word is seen" 2 "no command & this word is not there" 0 no-such-command
    ends_well "a failure is seen" 0 no-such-command
    same "different texts are not the same" a b
    same "nothing is not the same as nothing" "" ""
    differ "equal texts do not differ" a a
    expect "a command that fails is seen" false
    printf 'narrows: one\nnarrows: two\n' >"$dir/err"
    : >"$dir/out"
    status=3
    check_refusal "two messages are seen" 3 one
    # all nine were to fail
    if [ "$failed" -eq 9 ] && [ "$passed" -eq 0 ]; then
        failed=0 passed=9
    else
        failed=$((failed + 1))
    fi
}
case $0 in
*lib.sh)
    selftest >"$dir/self"
    sed 's/^FAILED:/as it should:/' "$dir/self"
    finish
    ;;
esac
