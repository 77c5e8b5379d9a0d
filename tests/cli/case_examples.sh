#!/bin/sh
# Row L09 of tests/CASES.md: examples that do not run as they say. Each file of examples/ is run,
# shortened, by each command line in its comments (narrows stands for the program that was built).
# And P06, P08: the arithmetic of a rehearsal.
# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2154 # lib.sh sets dir, reads status; lists of words
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
cd "$SOURCE" || exit 1

short="run.overwrite=on train.warmup=0 train.steps=2 train.decay=1 train.seq=16"
short="$short train.eval_sequences=4"

# run_line LINE: a command of an example, with few steps, in a folder of the test.
run_line() {
    line=$1
    ranks=0
    case $line in
    mpirun*) ranks=$(echo "$line" | sed 's/.*-n \([0-9]*\) .*/\1/') ;;
    esac
    words=$(echo "$line" | sed 's/.*narrows //; s/ run\.dir=[^ ]*//')
    case $words in
    train*--dry-run*) ends_well "L09 $line" "$ranks" $words run.backend=ref ;;
    train*) ends_well "L09 $line" "$ranks" $words run.dir="$dir/run" $short ;;
    *) return ;;
    esac
    lines=$((lines + 1))
}

for example in examples/*.yaml; do
    lines=0
    grep -E '^# +(mpirun -n [0-9]+ )?narrows train ' "$example" | sed 's/^# *//' >"$dir/lines"
    while read -r line <&3; do
        run_line "$line"
    done 3<"$dir/lines"
    expect "L09 $example says how it is run" test "$lines" -gt 0
    # On the ranks that it names by its layout, too.
    direct train "$example" --print-config
    tp=$(sed -n 's/^parallel.tp = \([0-9]*\).*/\1/p' "$dir/out")
    ends_well "L09 $example fits its layout" 0 train "$example" --dry-run --ranks "$tp" \
        parallel.dp=1 run.backend=ref
done

# preset.yaml is for a machine and data of its own: here a step of one of its blocks, on bytes (the
# 33M parameters of its vocabulary take half a minute without optimisation).
ends_well "L09 examples/preset.yaml takes a step" 0 train examples/preset.yaml run.backend=ref \
    run.dir="$dir/run" run.overwrite=on run.save=off parallel.tp=1 data.train="$text" \
    data.validation="$text" data.packing=on data.document_separator='""' model.layers=1 model.vocab=0 \
    train.batch=2 train.micro_batch=2 train.seq=16 train.warmup=0 train.steps=1 train.eval_every=0 \
    train.eval_sequences=2

# And the README's commands, in their order; a text of the tree is the user's own.
head -c 20000 "$text" >"$dir/my.txt"
sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' README.md |
    sed -n 's/^    narrows \(\(train\|launch\|generate\) .*\)/\1/p' >"$dir/lines"
lines=0
while read -r line <&3; do
    words=$(echo "$line" | sed "s#my\.txt#$dir/my.txt#; s#runs/mine#$dir/mine#")
    case $words in
    *--dry-run* | generate*) ;;
    *run.dir=*) words="$words $short" ;;
    *) words="$words run.dir=$dir/run $short" ;;
    esac
    eval "set -- $words"
    ends_well "L09 README: $line" 0 "$@"
    lines=$((lines + 1))
done 3<"$dir/lines"
expect "L09 the README has commands" test "$lines" -ge 4

# plan WORDS...: numbers of a rehearsal.
plan() {
    direct train examples/quickstart.yaml --dry-run "$@"
    [ "$status" = 0 ] || not_ok "dry run $*" "status $status"
}
# bytes of a line such as "  gradients    1.5 GiB"
bytes() {
    awk -v name="$1" 'index($0, name) == 3 { v = $(NF - 1); u = $NF
        f["B"] = 1; f["KiB"] = 1024; f["MiB"] = 1048576; f["GiB"] = 1073741824
        f["TiB"] = 1099511627776; printf "%.0f", v * f[u] }' "$dir/out"
}
flops() {
    sed -n 's/^FLOPs a token *\([0-9.]*\)\([kMGT]*\) .*/\1 \2/p' "$dir/out" |
        awk '{ f[""] = 1; f["k"] = 1e3; f["M"] = 1e6; f["G"] = 1e9; f["T"] = 1e12
            printf "%.0f", $1 * f[$2] }'
}

# P06: a low-rank model that saves neither memory nor work. CoLA's 350M against its full-rank form,
# by kind of memory; activations by the recipe that it comes with.
shape="model.preset=350m-cola train.seq=256 train.batch=8 train.micro_batch=8 model.layers=24"
for tp in 1 4; do
    # shellcheck disable=SC2086 # words
    plan $shape parallel.tp=$tp --ranks $tp
    low_state=$(bytes "weights and optimiser") low_grads=$(bytes gradients) low_all=$(bytes "in all")
    low_flops=$(flops)
    # shellcheck disable=SC2086
    plan $shape parallel.tp=$tp --ranks $tp model.layer=full parallel.strategy=auto
    expect "P06 tp $tp: weights and optimiser" test "$low_state" -lt "$(bytes "weights and optimiser")"
    expect "P06 tp $tp: gradients" test "$low_grads" -lt "$(bytes gradients)"
    expect "P06 tp $tp: memory in all, $low_all below $(bytes "in all")" \
        test "$low_all" -lt "$(bytes "in all")"
    expect "P06 tp $tp: FLOPs" test "$low_flops" -lt "$(flops)"
done

# P08: rates that fall as ranks are added because they are divided by the wrong number. With twice
# the ranks and twice the batch, a rank's share of the work and the FLOPs a token are the same.
for layer in cola full; do
    first=
    for dp in 1 2 4; do
        plan model.layer=$layer parallel.strategy=auto parallel.tp=1 --ranks $dp \
            train.batch=$((8 * dp))
        same "P08 $layer dp $dp: tokens a step" \
            "$(sed -n 's/^tokens a step *//p' "$dir/out")" $((8 * dp * 128))
        now="$(flops) $(sed -n 's/^FLOPs a step.*formula, \([^ ]*\) counted.*/\1/p' "$dir/out")"
        first=${first:-$now}
        same "P08 $layer dp $dp: FLOPs a token, and of a rank" "$now" "$first"
    done
done
# and the metrics of a run divide by the rate of all of its ranks
plain "$dir/t.yaml"
for dp in 1 2; do
    job $dp train "$dir/t.yaml" train.steps=3
    peak=$(sed -n 's/^device .* products at \([0-9.]*\)GFLOP.*/\1/p' "$dir/out")
    expect "P08 dp $dp: utilisation is the rate over that of all ranks" awk -F'[:,]' -v peak="$peak" \
        '/"mfu"/ { for (i = 1; i < NF; i++) { if ($i == "\"mfu\"") m = $(i + 1)
            if ($i == "\"flops_per_s\"") f = $(i + 1) }
            n++; x = m * peak * 1e9 / f; if (x < 0.95 || x > 1.05) bad = 1 }
        END { exit bad || n != 3 }' "$dir/run/metrics.jsonl"
done
finish
