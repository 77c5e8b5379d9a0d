#!/bin/sh
# Reported faults that show in whole runs: rows N01, N02, N28, N31, N37, P02, P04,
# P07 of tests/CASES.md.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
t=$dir/t.yaml
plain "$t"

# trained WHAT RANKS WORDS...: a run that works; its metrics are then read.
trained() {
    claim=$1 ranks=$2
    shift 2
    job "$ranks" train "$t" "$@"
    [ "$status" = 0 ] || not_ok "$claim" "status $status"
}
value() { sed -n "s/.*\"$1\":\\([^,}]*\\).*/\\1/p" "$dir/run/metrics.jsonl"; }

for layer in full cola; do
    # N01: documents of 3 bytes beside long ones, so that ranks have different numbers of targets;
    # packing off, each document a sequence.
    i=0
    : >"$dir/documents"
    while [ $i -lt 16 ]; do
        if [ $((i % 3)) -eq 0 ]; then
            head -c $((200 + i)) "$text" | tail -c 40 | tr '\n' ' ' >>"$dir/documents"
            printf '\n<end>\n' >>"$dir/documents"
        else
            printf 'ab\n<end>\n' >>"$dir/documents"
        fi
        i=$((i + 1))
    done
    set -- model.layer=$layer data.train="$dir/documents" \
        data.validation="$dir/documents" data.packing=off \
        data.document_separator='<end>' train.steps=3 run.hash=on
    trained "N01 $layer, one rank" 1 "$@"
    one=$(hashes)
    valid=$(value valid_targets | head -n 1)
    expect "N01 $layer: fewer targets than tokens" test "$valid" -lt 200
    trained "N01 $layer, dp 2" 2 "$@"
    same "N01 $layer: two replicas with other numbers of targets" "$(hashes)" "$one"
    trained "N01 $layer, dp 2, accumulation" 2 "$@" train.micro_batch=1
    same "N01 $layer: with accumulation" "$(hashes)" "$one"
    trained "N01 $layer, tp 2" 2 "$@" parallel.tp=2
    same "N01 $layer: tensor parallel" "$(hashes)" "$one"

    # N02: 9 sequences to validate on, the last one of other text: it weighs a ninth, in whichever
    # batch it stands. With rate 0 all runs validate the same model.
    {
        head -c 256 "$text"
        printf '\001\002\003\004\005\006\016\017\020\021\022\023\024\025\026\027'
        printf '\001\002\003\004\005\006\016\017\020\021\022\023\024\025\026\027.'
    } >"$dir/nine"
    set -- model.layer=$layer data.validation="$dir/nine" train.steps=1 train.lr=0
    trained "N02 $layer, batch 1" 1 "$@" train.batch=1
    one=$(value validation_loss)
    same "N02 $layer: all targets count" "$(value valid_targets | tail -n 1)" 288
    for batch in 2 4 8 16; do
        trained "N02 $layer, batch $batch" 2 "$@" train.batch=$batch
        same "N02 $layer: batch $batch on two ranks as batch 1" "$(value validation_loss)" "$one"
    done
    trained "N02 $layer, accumulation" 1 "$@" train.micro_batch=1
    same "N02 $layer: with accumulation" "$(value validation_loss)" "$one"
    # a limit cuts inside a batch: the ninth sequence is left out
    trained "N02 $layer, 8 sequences" 2 "$@" train.eval_sequences=8 train.batch=6
    same "N02 $layer: a limit inside a batch" "$(value valid_targets | tail -n 1)" 256
    differ "N02 $layer: the last sequence matters" "$(value validation_loss)" "$one"

    # N28: division by the number of batches plus one. 1, 2 and 3 batches of the same sequence.
    head -c 32 "$text" >"$dir/block"
    first=
    for batches in 1 2 3; do
        i=0
        : >"$dir/same"
        while [ $i -lt $((8 * batches)) ]; do
            cat "$dir/block" >>"$dir/same"
            i=$((i + 1))
        done
        head -c 1 "$dir/block" >>"$dir/same"
        trained "N28 $layer, $batches batches" 2 model.layer=$layer data.validation="$dir/same" \
            train.steps=1 train.lr=0 train.eval_sequences=0
        loss=$(value validation_loss)
        first=${first:-$loss}
        same "N28 $layer: $batches batches of one text" "$(printf '%.12g' "$loss")" \
            "$(printf '%.12g' "$first")"
        expect "N28 $layer: perplexity is its exponential" awk -v l="$loss" \
            -v p="$(value perplexity)" 'BEGIN { exit !(p > 0 && (exp(l) - p) ^ 2 < 1e-16 * p * p) }'
    done
done

# N37: an environment of its own for each rank changes no weight.
for words in "model.layer=cola" "model.layer=full"; do
    set -- train "$t" "$words" train.steps=2 run.hash=on parallel.dp=2
    job 2 "$@"
    one=$(hashes)
    code=0
    timeout -k 5 "$LIMIT" "$MPIRUN" \
        -n 1 --bind-to none env OMP_NUM_THREADS=1 TZ=UTC SEED=1 RANDOM=1 "$NARROWS" "$@" : \
        -n 1 --bind-to none env OMP_NUM_THREADS=2 TZ=Asia/Tokyo LC_ALL=de_DE.UTF-8 SEED=2 RANDOM=2 \
        "$NARROWS" "$@" >"$dir/out" 2>"$dir/err" </dev/null || code=$?
    same "N37 $words: other environments on the ranks" "$(hashes)" "$one"
done

# P07: the summary's tokens and rate against the lines of the metrics; its time is that of all
# steps and what lies between them.
trained "P07" 2 train.steps=12 train.eval_every=5
done_line=$(grep '^done ' "$dir/out")
tokens=$(value tokens | awk '{ n += $1 } END { print n }')
same "P07 tokens of the metrics" "$tokens" 3072
same "P07 tokens of the summary" "$(echo "$done_line" | sed -n 's/.* \([0-9.]*k\) tokens .*/\1/p')" 3.1k
expect "P07 each line's rate is its tokens over its time" awk -F'[:,]' '/"grad_norm"/ {
    for (i = 1; i < NF; i++) { if ($i == "\"tokens\"") t = $(i + 1); if ($i == "\"ms\"") m = $(i + 1)
        if ($i == "\"tokens_per_s\"") r = $(i + 1) }
    n++; if ((t / m * 1000 / r - 1) ^ 2 > 1e-12) bad = 1 } END { exit bad || n != 12 }' \
    "$dir/run/metrics.jsonl"
rate=$(echo "$done_line" | sed -n 's/.* tokens  *\([0-9.]*[kM]*\) tok\/s.*/\1/p')
expect "P07 the summary's rate is not above that of its steps" awk -v rate="$rate" -v n="$tokens" \
    -v ms="$(value ms | awk '{ s += $1 } END { print s }')" 'BEGIN {
        x = rate + 0; if (rate ~ /k/) x *= 1e3; if (rate ~ /M/) x *= 1e6
        exit !(x > 0 && x <= n / ms * 1000 * 1.06 && x >= n / ms * 1000 / 1000) }'

# P04: the log tells how long it took to the first step, and where the time went: all of it since
# the process began, no more than passed here, the step's part not less than its time in the metrics.
# first_step WHAT BEFORE TOLD WORDS...: a run after so many steps, the TOLDth process of its folder.
first_step() {
    run=$1 before=$2 told=$3
    shift 3
    since=$(date +%s.%N)
    trained "$run" 2 "$@"
    until=$(date +%s.%N)
    line=$(sed -n 's/^start .* first step done \([0-9.]*\) s after the process began: /\1, /p' "$dir/out")
    same "$run: once" "$(echo "$line" | grep -c .)" 1
    expect "$run: the time to it, in six parts" awk -v line="$line" -v passed="$since $until" \
        -v ms="$(value ms | sed -n "$((before + 1))p")" 'BEGIN {
            n = split(line, part, ","); split(passed, at, " ")
            for (i = 2; i <= n; i++) { sub(/.* /, "", part[i]); sum += part[i] }
            exit !(n == 7 && part[1] > 0 && (sum - part[1]) ^ 2 < 0.04 ^ 2 &&
                   part[1] < at[2] - at[1] + 0.05 && part[7] > ms / 1000 - 0.01) }'
    same "$run: a record of its step alone" "$(value start_seconds | wc -l)" "$told"
    expect "$run: the same time" awk -v line="$line" \
        -v x="$(value start_seconds | tail -n 1)" 'BEGIN { exit !((x - line) ^ 2 < 0.01 ^ 2) }'
}
set -- run.save=on run.overwrite=on checkpoint.every=0
rm -rf "$dir/run"
first_step "P04" 0 1 "$@" train.steps=2
first_step "P04 going on" 2 2 "$@" train.steps=4 --resume

# P02: a default number of accumulation steps that makes a small example slow: it is 1.
direct train "$SOURCE/examples/quickstart.yaml" --print-config
expect "P02 the quickstart takes its share of a batch at once" \
    grep -qE '^train.micro_batch = 16( |$)' "$dir/out"

# N31: flags that let the compiler change results are refused by configure.
if [ -x "$SOURCE/configure" ]; then
    for flag in -ffast-math -Ofast -ffinite-math-only; do
        mkdir -p "$dir/build"
        code=0
        (cd "$dir/build" && "$SOURCE/configure" CFLAGS="-O2 $flag") >"$dir/out" 2>"$dir/err" ||
            code=$?
        expect "N31 configure refuses $flag" test "$code" -ne 0
        expect "N31 and says why" grep -q -e "$flag lets the compiler change results" "$dir/err"
    done
else
    echo "left out: N31 configure (this tree has none yet)"
fi
finish
