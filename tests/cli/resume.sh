#!/bin/sh
# Runs that stop and go on: the same bits in other layouts, the same texts in the same order; what
# may change and what may not; damaged checkpoints, with one message on all ranks.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
t=$dir/t.yaml
plain "$t"
sed -i '/overwrite: on/d; s/save: off/save: on/' "$t"
# Some 3400 sequences are an epoch; 96 make one that ends within the run, packing and all.
head -c 3072 "$text" >"$dir/short"
sed -i "s|train: $text|train: $dir/short|" "$t"

last() { hashes | tail -n 1; }
# of STEP: what the uninterrupted run printed of it
of() { grep "^hash after step $1 " "$dir/whole"; }

ends_well "20 steps at once" 0 train "$t" run.dir="$dir/a" run.hash=on checkpoint.every=4 \
    checkpoint.keep_last=9 train.eval_every=5
hashes >"$dir/whole"
same "every fourth step, and the last, left a checkpoint" \
    "$(cd "$dir/a/checkpoints" && echo step-*)" \
    "step-000000004 step-000000008 step-000000012 step-000000016 step-000000020"
same "the hint" "$(cat "$dir/a/checkpoints/latest")" step-000000020

# C01, C02, C09, C14, C19: 7 and 13, the stop inside an epoch; then at its end (step 12), in the
# second epoch (K14), in other layouts, with accumulation.
refused "stopped at step 7" 130 'stopped by checkpoint.stop_at after step 7 of 20 & --resume' 2 \
    train "$t" run.dir="$dir/b" run.hash=on parallel.tp=2 checkpoint.stop_at=7 train.eval_every=5
same "the bits of step 7" "$(last)" "$(of 7)"
refused "on to step 12 with tp 2 x dp 2" 130 'after step 12 of 20' 4 train "$t" --resume \
    run.dir="$dir/b" run.hash=on parallel.tp=2 checkpoint.stop_at=12 train.micro_batch=1
expect "says where it goes on, and what it read" grep -qE \
    '^resume +step 7 of .*/step-000000007  .* read by a rank at most, of ' "$dir/out"
same "the first step is the eighth" "$(hashes | head -n 1)" "$(of 8)"
ends_well "on to the end with dp 2" 2 train "$t" --resume run.dir="$dir/b" run.hash=on \
    parallel.recompute=block train.eval_every=5
same "the bits of step 20" "$(last)" "$(of 20)"
same "and of every step between" "$(hashes)" "$(sed -n '13,$p' "$dir/whole")"
# C07, and what else the records hold: rate, loss, norm, validations, none twice.
records() {
    sed -E 's/,"(ms|tokens_per_s|flops_per_s|mfu|peak_rss|tp_bytes|dp_bytes|seconds|start_seconds)":[-+.e0-9]+//g' \
        "$1/metrics.jsonl"
}
same "the records are those of one run" "$(records "$dir/b" | grep -v validation)" \
    "$(records "$dir/a" | grep -v validation)"
same "the final weights, too" "$(sha256sum <"$dir/b/final/model.safetensors")" \
    "$(sha256sum <"$dir/a/final/model.safetensors")"

# Stages and shards of masters: out of them, into others, and with one rank alone at the end.
ends_well "20 steps in bf16" 0 train "$t" run.dir="$dir/m" run.hash=on train.precision=bf16
hashes >"$dir/whole16"
of16() { grep "^hash after step $1 " "$dir/whole16"; }
refused "stopped in two stages of two shards" 130 'after step 7 of 20' 4 train "$t" \
    run.dir="$dir/n" run.hash=on train.precision=bf16 parallel.pp=2 parallel.dp=2 parallel.zero=1 \
    train.micro_batch=1 checkpoint.stop_at=7
same "the bits of step 7" "$(last)" "$(of16 7)"
refused "on with shards and tensor parallelism" 130 'after step 12 of 20' 4 train "$t" --resume \
    run.dir="$dir/n" run.hash=on train.precision=bf16 parallel.tp=2 parallel.dp=2 parallel.zero=1 \
    checkpoint.stop_at=12
same "the bits of step 12" "$(last)" "$(of16 12)"
refused "on with stages alone" 130 'after step 15 of 20' 2 train "$t" --resume run.dir="$dir/n" \
    run.hash=on train.precision=bf16 parallel.pp=2 parallel.schedule=zb-h1 checkpoint.stop_at=15
ends_well "and on one rank" 0 train "$t" --resume run.dir="$dir/n" run.hash=on train.precision=bf16
same "the bits of step 20" "$(last)" "$(of16 20)"
same "the final weights" "$(sha256sum <"$dir/n/final/model.safetensors")" \
    "$(sha256sum <"$dir/m/final/model.safetensors")"

ends_well "without grouping, a step more" 0 train "$t" --resume run.dir="$dir/n" \
    train.precision=bf16 train.steps=21 parallel.grouping=off
expect "that bf16 has other bits then is said" \
    grep -qE '^resume .*parallel.grouping on \(now off\)' "$dir/out"

# Out of a layout of three into exact ones, and back: without layout_exact other bits, the same run.
three_words="model.heads=6 model.kv_heads=6 model.width=96 model.ffn=192 train.batch=6"
# near A B: two lines of run.hash with losses that differ in the fifth digit at most
near() { [ -n "$1" ] && python3 - "$1" "$2" <<'END'
import sys
a, b = (float.fromhex(line.split("loss ")[1].split()[0]) for line in sys.argv[1:])
sys.exit(abs(a - b) > 1e-5 * a)
END
}
# shellcheck disable=SC2086 # words
ends_well "20 steps of six heads at once" 0 train "$t" run.dir="$dir/u" run.hash=on $three_words
hashes >"$dir/whole3"
# shellcheck disable=SC2086
refused "stopped in tp 3" 130 'after step 7 of 20' 3 train "$t" run.dir="$dir/v" run.hash=on \
    $three_words parallel.tp=3 parallel.layout_exact=off checkpoint.stop_at=7
expect "step 7 within rounding" near "$(last)" "$(grep '^hash after step 7 ' "$dir/whole3")"
cp -r "$dir/v" "$dir/w"
# shellcheck disable=SC2086
refused "on in two exact stages" 130 'after step 12 of 20' 2 train "$t" --resume run.dir="$dir/v" \
    run.hash=on $three_words parallel.pp=2 train.micro_batch=1 checkpoint.stop_at=12
expect "other bits are said" grep -qE '^resume .*parallel.layout_exact off \(now on\)' "$dir/out"
hashes >"$dir/exact"
# shellcheck disable=SC2086
refused "on in tp 2 exactly" 130 'after step 12 of 20' 2 train "$t" --resume run.dir="$dir/w" \
    run.hash=on $three_words parallel.tp=2 checkpoint.stop_at=12
same "one checkpoint, two exact layouts: the same bits" "$(hashes)" "$(cat "$dir/exact")"
# shellcheck disable=SC2086
ends_well "to the end with three replicas" 3 train "$t" --resume run.dir="$dir/v" run.hash=on \
    $three_words parallel.zero=1 parallel.layout_exact=off
expect "step 20 within rounding" near "$(last)" "$(tail -n 1 "$dir/whole3")"

# C24: all steps are made.
before=$(cd "$dir/b" && find . -type f ! -name train.log ! -name config.yaml -exec sha256sum {} +)
ends_well "resumed at its end" 2 train "$t" --resume run.dir="$dir/b" parallel.tp=2
expect "it says that there is nothing to do" grep -q '^nothing to do: ' "$dir/out"
same "and leaves all as it was" "$before" \
    "$(cd "$dir/b" && find . -type f ! -name train.log ! -name config.yaml -exec sha256sum {} +)"

# What may not change is refused key by key.
refused "another seed, width and rate" 3 \
    'train.seed 1 \(now 2\) & model.width 64 \(now 128\) & train.lr 0.001 \(now 0.1\) & begin a new' \
    2 train "$t" --resume run.dir="$dir/b" parallel.tp=2 train.seed=2 model.width=128 train.lr=0.1
head -c 3040 "$text" >"$dir/shorter"
refused "another text" 3 "$dir/shorter holds another text" 0 train "$t" --resume run.dir="$dir/b" \
    data.train="$dir/shorter"
cp "$dir/short" "$dir/moved"
refused "fewer steps than are made" 3 'step 20 & train.steps is 10' 0 train "$t" --resume \
    run.dir="$dir/b" train.steps=10
refused "a run is not resumed unasked" 3 'already holds a run & --resume' 0 train "$t" \
    run.dir="$dir/b"
# What may: the text has moved, the run is longer.
ends_well "the same text elsewhere, two steps more" 0 train "$t" --resume run.dir="$dir/b" \
    data.train="$dir/moved" train.steps=22 parallel.grouping=off
expect "another length is said, and nothing else" \
    grep -qE '^resume .* was made with train.steps 20 \(now 22\): ' "$dir/out"

# A named one, into a folder of its own; in its own folder later ones are not left behind.
ends_well "from a named checkpoint" 2 train "$t" run.dir="$dir/c" run.hash=on parallel.tp=2 \
    checkpoint.resume="$dir/a/checkpoints/step-000000012"
same "its bits" "$(last)" "$(of 20)"
refused "later checkpoints are there" 3 'step 20, later than step 12 & run.overwrite=on' 0 train \
    "$t" run.dir="$dir/a" checkpoint.resume="$dir/a/checkpoints/step-000000012"

# C11: from weights alone a run begins anew, and says what that means: its rates are those of a run
# from drawn weights, its first loss is that of weights that have learnt.
rates() { sed -n 's/.*"lr":\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
first_loss() { sed -n '1s/.*"loss":\([0-9]*\).*/\1/p' "$1/metrics.jsonl"; }
ends_well "from weights alone" 2 train "$t" run.dir="$dir/y" train.init_from="$dir/a"
expect "what begins anew is said" grep -qE "^weights +of $dir/a/final, .*moments begin at zero, \
the learning rate at step 1 of 20 .*, the data at the first sample" "$dir/out"
same "the rates of a run from the beginning" "$(rates "$dir/y")" "$(rates "$dir/a")"
same "the first loss of drawn weights" "$(first_loss "$dir/a")" 5
same "that of weights that have learnt" "$(first_loss "$dir/y")" 4

# K12: a run without checkpoints begins, and does not when it has left something else.
refused "--resume begins a run" 130 'after step 2 of 20' 0 train "$t" --resume run.dir="$dir/d" \
    checkpoint.stop_at=2
expect "and says so" grep -q 'no checkpoint in .* yet: the run begins at step 0' "$dir/out"
rm -rf "$dir/d/checkpoints"
refused "weights without a checkpoint" 3 'already holds a run' 0 train "$t" --resume run.dir="$dir/d"

# C23, K2: each kind of damage to the newest: the one before is taken, on two ranks, and it is said.
damaged() {
    what=$1 pattern=$2
    ends_well "$what: goes on" 2 train "$t" --resume run.dir="$dir/e" run.hash=on parallel.tp=2
    expect "$what: said" grep -qE "^warning: the checkpoint of step 20 is skipped: .*$pattern" \
        "$dir/err"
    expect "$what: from the one before" grep -q '^resume  *step 16 of ' "$dir/out"
    same "$what: the bits" "$(last)" "$(of 20)"
}
fresh() {
    rm -rf "$dir/e"
    cp -r "$dir/a" "$dir/e"
    newest=$dir/e/checkpoints/step-000000020
}
fresh
rm "$newest/rank-00000.safetensors"
damaged "a missing file" 'rank-00000.safetensors cannot be opened'
fresh
truncate -s -1 "$newest/rank-00000.safetensors"
damaged "a file cut off" 'rank-00000.safetensors has [0-9]* bytes'
fresh
printf x | dd of="$newest/manifest.json" bs=1 seek=700 conv=notrunc 2>/dev/null
damaged "a changed manifest" 'manifest.json is damaged'
# All damaged, or of the future: no run begins, and nothing is overwritten.
fresh
for m in "$dir/e/checkpoints"/*/manifest.json; do
    sed -i 's/"version":1/"version":2/' "$m"
done
refused "of the future, all of them" 5 'none of the 5 checkpoints & verify' 4 train "$t" --resume \
    run.dir="$dir/e" parallel.tp=2
expect "the version is said" grep -q 'format version 2; this narrows reads version 1' "$dir/err"
refused "a named one that is damaged" 5 'format version 2' 2 train "$t" parallel.tp=2 \
    run.dir="$dir/f" checkpoint.resume="$newest"

# narrows checkpoint
ends_well "inspect a run" 0 checkpoint inspect "$dir/a"
expect "its newest, and the older ones" grep -qx 'older        16, 12, 8, 4' "$dir/out"
ends_well "inspect one, with its tensors" 0 checkpoint inspect \
    "$dir/a/checkpoints/step-000000008" --tensors
expect "a moment of a factor" grep -qE \
    '^model.layers.1.mlp.up_proj.up.weight +v +F32 +\[176, 16\] ' "$dir/out"
ends_well "verify a run" 0 checkpoint verify "$dir/a"
same "five of them are whole" "$(grep -c '  whole  ' "$dir/out")" 5
fresh
# the first piece of a weight that the manifest names
at=$(grep -oE '"kind":"weight"[^}]*' "$newest/manifest.json" | sed -n '1s/.*"offset":\([0-9]*\).*/\1/p')
printf xy | dd of="$newest/rank-00000.safetensors" bs=1 seek="$at" conv=notrunc 2>/dev/null
refused "verify a damaged one" 5 '1 of 5 checkpoint' 0 checkpoint verify "$dir/e"
expect "file and tensor are named" grep -qE \
    'step-000000020  DAMAGED  .*/rank-00000.safetensors is damaged: tensor .*, grain' "$dir/out"
ends_well "prune" 0 checkpoint prune "$dir/e" --keep-last 1 --keep-every 8
same "what is left" "$(cd "$dir/e/checkpoints" && echo step-*)" \
    "step-000000008 step-000000016 step-000000020"
ends_well "export" 0 checkpoint export "$dir/a" --output "$dir/weights"
same "the weights are those of final/" "$(sha256sum <"$dir/weights/model.safetensors")" \
    "$(sha256sum <"$dir/a/final/model.safetensors")"
refused "export of a damaged one" 5 'rank-00000.safetensors is damaged' 0 checkpoint export \
    "$newest" --output "$dir/never"
expect "leaves nothing" test ! -e "$dir/never"
refused "no checkpoint" 4 'no checkpoint in' 0 checkpoint verify "$dir"
refused "export without a place" 2 '--output FOLDER' 0 checkpoint export "$dir/a"
refused "a verb that is not there" 2 "no verb 'expor' & 'export'" 0 checkpoint expor "$dir/a"
ends_well "the help of a verb" 0 checkpoint prune --help
expect "has its options" grep -q -e '--keep-every N' "$dir/out"
refused "an option of another verb" 2 '--keep-last' 0 checkpoint verify "$dir/a" --keep-last 1

# P09: memory that loading leaves behind. Weights and moments of 3.7M parameters are 56 MiB; what a
# run that was resumed held at most is what one from the beginning did.
big="model.layer=full parallel.strategy=auto model.width=256 model.ffn=1024 model.layers=4"
big="$big train.steps=3 train.batch=2 train.eval_sequences=2 checkpoint.every=1 data.train=$text"
peak() { sed -n 's/^{"step":3,.*"peak_rss":\([0-9]*\).*/\1/p' "$1/metrics.jsonl"; }
# shellcheck disable=SC2086 # words
ends_well "P09: three steps" 0 train "$t" $big run.dir="$dir/p"
# shellcheck disable=SC2086
refused "P09: one step" 130 'after step 1' 0 train "$t" $big run.dir="$dir/q" checkpoint.stop_at=1
# shellcheck disable=SC2086
ends_well "P09: the other two" 0 train "$t" --resume $big run.dir="$dir/q"
expect "P09: $(peak "$dir/q") bytes at most, from the beginning $(peak "$dir/p")" \
    awk -v a="$(peak "$dir/q")" -v b="$(peak "$dir/p")" \
    'BEGIN { exit !(a > 0 && b > 0 && a < b + 16 * 1048576) }'

# A time limit, and one that is none.
refused "no time" 3 "stop_after is '3x' & 3h50m" 0 train "$t" run.dir="$dir/g" \
    checkpoint.stop_after=3x
refused "stopped by the clock" 130 'stopped by checkpoint.stop_after after step & --resume' 2 \
    train "$t" run.dir="$dir/g" parallel.tp=2 checkpoint.stop_after=1s train.steps=100000
expect "with a checkpoint" test -s "$dir/g/checkpoints/latest"
finish
