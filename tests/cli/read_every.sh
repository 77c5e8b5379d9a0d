#!/bin/sh
# Steps whose loss the host reads together (train.read_every): the same run, record by record,
# whatever is read when; nothing that shows, keeps or ends a run leaves a step unread.
# shellcheck disable=SC1091,SC2154 # lib.sh sets dir, status
. "$SOURCE/tests/cli/lib.sh"
t=$dir/t.yaml
plain "$t"

# The records without what a clock measures.
records() {
    clocks='ms\|tokens_per_s\|flops_per_s\|mfu\|peak_rss\|seconds\|start_seconds'
    sed "s/\"\($clocks\)\":[^,}]*,\{0,1\}//g" "$dir/run/metrics.jsonl"
}
# What checkpoints say of the run so far.
kept() {
    (cd "$dir/run" && sed 's/.*"statistics":{\([^}]*\)}.*/\1/' checkpoints/step-*/manifest.json)
}

# Validations after 5, 10, 15 steps, checkpoints after 6 and 12, replays at 4, 8, ..., a stop after
# 17: none of them where 7 steps are read, and none at its end.
run() {
    what=$1 ranks=$2
    shift 2
    if [ "$ranks" = 0 ]; then direct train "$t" "$@"; else job "$ranks" train "$t" "$@"; fi
    same "$what: stops" "$status" 130
}
for layout in "0" "2 parallel.dp=2" "2 parallel.pp=2 train.micro_batch=2"; do
    # shellcheck disable=SC2086 # words
    set -- $layout
    ranks=$1
    shift
    if [ "$ranks" -gt 0 ] && [ "$MPIRUN" = no ]; then
        continue
    fi
    set -- "$@" run.hash=on run.save=on train.eval_every=5 checkpoint.every=6 \
        checkpoint.keep_last=9 checkpoint.stop_at=17 shadow.every=4 train.log_every=3
    run "read after each step, $layout" "$ranks" "$@" train.read_every=1
    one=$(hashes) told=$(records) state=$(kept)
    same "$layout: seventeen steps" "$(printf '%s\n' "$one" | wc -l)" 17
    for every in 7 1000; do
        run "every $every, $layout" "$ranks" "$@" train.read_every=$every
        same "every $every, $layout: the same weights, losses and norms" "$(hashes)" "$one"
        same "every $every, $layout: the same records in the same order" "$(records)" "$told"
        same "every $every, $layout: the same in the checkpoints" "$(kept)" "$state"
    done
done

# Asked to stop while steps are unread.
rm -rf "$dir/run"
"$NARROWS" train "$t" train.steps=1000000 train.read_every=1000 run.save=on >"$dir/out" \
    2>"$dir/err" </dev/null &
pid=$!
tries=0
until grep -q . "$dir/run/metrics.jsonl" 2>/dev/null || [ $tries -ge 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
sleep 0.2
kill -INT "$pid"
code=0
wait "$pid" || code=$?
same "an interrupt: the status" "$code" 130
after=$(sed -n 's/.*stopped on request after step \([0-9]*\) of.*/\1/p' "$dir/err")
same "an interrupt: every step has its record" "$(grep -c '"loss"' "$dir/run/metrics.jsonl")" "$after"

refused "no such number" 3 'train.read_every & 1000' 0 train "$t" train.read_every=1001
finish
