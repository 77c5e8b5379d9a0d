#!/bin/sh
# Ranks that disagree, die, stop or are asked to stop: the others never wait for them without end.
# Row L06 of tests/CASES.md: ranks with different configurations are told apart at the start.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # lib.sh sets dir, text; the ranks' shells expand
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
t=$dir/t.yaml
plain "$t"
plain "$dir/u.yaml"
sed -i 's/seed: 1/seed: 2/' "$dir/u.yaml"
record='rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:?}}; "$@"; echo $? >"$dir/rank.$rank"'

# apart WHAT STATUS PATTERNS WORDS... : WORDS...: one rank runs the first words, one the others.
apart() {
    what=$1 want=$2 patterns=$3
    shift 3
    rm -f "$dir"/rank.*
    first=
    while [ "$1" != : ]; do
        first="$first $1"
        shift
    done
    shift
    code=0
    # shellcheck disable=SC2086 # words
    timeout -k 5 "$LIMIT" "$MPIRUN" -n 1 --bind-to none sh -c "$record" narrows "$NARROWS" $first : \
        -n 1 --bind-to none sh -c "$record" narrows "$NARROWS" "$@" \
        >"$dir/out" 2>"$dir/err" </dev/null || code=$?
    settle "$code"
    check_refusal "$what" "$want" "$patterns"
}

apart "L06 different files" 3 'rank 1 has another configuration than rank 0 & same file' \
    train "$t" : train "$dir/u.yaml"
apart "L06 different files, full rank" 3 'rank 1 has another configuration' \
    train "$t" model.layer=full : train "$dir/u.yaml" model.layer=full
apart "L06 different arguments" 3 'rank 1 has another configuration' \
    train "$t" train.lr=1e-3 : train "$t" train.lr=1.0000001e-3
apart "L06 different layouts" 3 'rank 1 has another configuration' \
    train "$t" parallel.tp=2 : train "$t" parallel.tp=1
apart "L06 different widths" 3 'rank 1 has another configuration' \
    train "$t" parallel.tp=2 : train "$t" parallel.tp=2 model.width=128
apart "L06 one rank is refused by its own arguments" 3 'rank 1: & train.stesp' \
    train "$t" : train "$t" train.stesp=1
apart "L06 one rank rehearses, the other trains" 2 'rank 1 & --dry-run & same' \
    train "$t" : train "$t" --dry-run
apart "L06 one rank prints, the other trains" 2 'rank 1 & --print-config & same' \
    train "$t" --print-config : train "$t"
apart "L06 another command" 2 "rank 1 & generate & train & same" \
    train "$t" : generate "$dir/none"
ends_well "L06 the same on both" 2 train "$t" train.steps=1

# start RANKS WORDS...: a long job in the background; returns once it has made three steps. Ranks
# write their process ids to $dir/pid.N. WRAP=yes hides from mpirun how they end.
start() {
    ranks=$1
    shift
    rm -rf "$dir/run" "$dir"/pid.* "$dir"/rank.*
    body='rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:?}}; echo $$ >"$dir/pid.$rank"; exec "$@"'
    if [ "${WRAP:-no}" = yes ]; then
        body='rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:?}}; "$@" & pid=$!
            echo $pid >"$dir/pid.$rank"; wait $pid; echo $? >"$dir/rank.$rank"'
    fi
    timeout -k 5 "$LIMIT" "$MPIRUN" -n "$ranks" --bind-to none sh -c "$body" narrows "$NARROWS" \
        train "$t" train.steps=1000000 run.save=on "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    mpirun_pid=$!
    await "$dir/run/metrics.jsonl" 3
}

# await FILE LINES: waits until FILE has so many lines; the job's own limit ends a vain wait.
await() {
    tries=0 lines=0
    until [ "${lines:-0}" -ge "$2" ] || [ "$tries" -ge 600 ]; do
        sleep 0.1
        lines=$(grep -c '' "$1" 2>/dev/null) || true
        tries=$((tries + 1))
    done
}

# Waits for the job; its status is that of mpirun.
reap() {
    code=0
    wait "$mpirun_pid" || code=$?
    status=$code
    [ "$code" -ne 124 ] || status=hung
}

# A rank is killed in mid-step: mpirun ends the rest.
for layer in cola full; do
    start 2 parallel.tp=2 model.layer=$layer
    kill -KILL "$(cat "$dir/pid.1")"
    reap
    if [ "$status" = hung ] || [ "$status" = 0 ]; then
        not_ok "a rank is killed, $layer" "status $status"
    else
        ok "a rank is killed, $layer"
    fi
    expect "a rank is killed, $layer: no final weights" test ! -e "$dir/run/final"
done

# A rank stands still, which mpirun does not see: the other gives it up and says so once. From here
# on mpirun is not told how ranks end. The rank wakes when it has been given up, as mpirun's SIGCONT
# before its SIGTERM wakes it, and has nothing to add.
WRAP=yes
stand_still() {
    what=$1
    wake=$2
    start 2 parallel.tp=1 parallel.dp=2 parallel.timeout=2
    kill -STOP "$(cat "$dir/pid.1")"
    tries=0
    until grep -q '^narrows: ' "$dir/err" || [ "$tries" -ge 300 ] ||
        ! kill -0 "$mpirun_pid" 2>/dev/null; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill "-$wake" "$(cat "$dir/pid.1")" 2>/dev/null || true
    reap
    expect "$what: the job ends" test "$status" != hung
    same "$what: one message" "$(messages)" 1
    expect "$what: the message says who and how long" \
        grep -qE '^narrows: .*(rank 1|came|answer).*2 s' "$dir/err"
}
stand_still "a rank stands still" KILL
OMPI_MCA_odls_base_sigkill_timeout=6 stand_still "a rank wakes too late" CONT

# Requests to stop: the step is finished, metrics and weights are written, the status is 130.
stopped() {
    what=$1
    reap
    settle 0
    check_refusal "$what" 130 'stopped on request after step & of 1000000 & run/final'
    steps=$(sed -n 's/^narrows: stopped on request after step \([0-9]*\) .*/\1/p' "$dir/err")
    same "$what: all of its steps are in the metrics" \
        "$(grep -c '"grad_norm"' "$dir/run/metrics.jsonl")" "$steps"
    same "$what: the last line is whole" "$(tail -c 2 "$dir/run/metrics.jsonl" | tr -d '\n')" '}'
    expect "$what: the weights are there" test -s "$dir/run/final/model.safetensors"
    expect "$what: no folder half written" \
        test "$(find "$dir/run" -name '*.partial*' | wc -l)" -eq 0
}
start 2 parallel.tp=2
kill -USR1 "$(cat "$dir/pid.0")" "$(cat "$dir/pid.1")"
stopped "USR1 to all ranks"
start 2 parallel.tp=2 model.layer=full
kill -USR1 "$(cat "$dir/pid.1")"
stopped "USR1 to one rank, full rank"
start 2
kill -TERM "$(cat "$dir/pid.0")" "$(cat "$dir/pid.1")"
stopped "TERM to all ranks, dp 2"

# One process, as Ctrl-C has it. A shell's background jobs ignore INT unless that is undone.
alone() {
    rm -rf "$dir/run" "$dir"/rank.*
    timeout --foreground -k 5 "$LIMIT" python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
open(sys.argv[1], "w").write(str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])' "$dir/pid.0" "$NARROWS" train "$t" train.steps=1000000 \
        run.save=on "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    mpirun_pid=$!
    await "$dir/run/metrics.jsonl" "${AWAIT:-3}"
}
if command -v python3 >/dev/null 2>&1; then
    alone
    kill -INT "$(cat "$dir/pid.0")"
    reap
    echo "$status" >"$dir/rank.0"
    sed -i '/once more ends at once$/d' "$dir/err"
    mpirun_pid=
    check_refusal "Ctrl-C" 130 'stopped on request after step & run/final'
    expect "Ctrl-C: the weights are there" test -s "$dir/run/final/model.safetensors"
    # A step takes long: the second Ctrl-C does not wait for its end.
    AWAIT=1
    alone model.width=512 model.heads=8 model.kv_heads=8 model.ffn=1408 model.rank=128 \
        train.batch=16 train.seq=128
    kill -INT "$(cat "$dir/pid.0")"
    sleep 0.2
    lines=$(wc -l <"$dir/run/metrics.jsonl")
    kill -INT "$(cat "$dir/pid.0")"
    reap
    same "Ctrl-C twice: status" "$status" 130
    same "Ctrl-C twice: the step was not finished" "$(wc -l <"$dir/run/metrics.jsonl")" "$lines"
    expect "Ctrl-C twice: no weights" test ! -e "$dir/run/final"
else
    echo "left out: Ctrl-C (no python3)"
fi
finish
