#!/bin/sh
# narrows import, export, eval, and train.init_from: what comes in goes out again, the loss of a
# model does not depend on batch, ranks or form of its files, and what cannot be done is refused.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
stories=$SOURCE/validation/data/stories260k
hf=$SOURCE/validation/data/hf
head -c 3001 "$text" >"$dir/text"

# loss WHAT RANKS MODEL WORDS...: the sum of losses, to the bit, in $loss; decimal in $mean.
loss() {
    claim=$1 ranks=$2 model=$3
    shift 3
    run_on "$ranks" eval "$model" "$dir/text" data.tokenizer=bytes train.seq=40 "$@"
    loss=$(sed -n 's/^exactly  *\([^ ]*\) .*/\1/p' "$dir/out")
    mean=$(sed -n 's/^loss  *\([^ ]*\) .*/\1/p' "$dir/out")
    if [ "$status" != 0 ] || [ -z "$loss" ]; then
        not_ok "$claim" "status $status"
    fi
}

# below WHAT A B: A < B as numbers.
below() {
    if awk -v a="$2" -v b="$3" 'BEGIN { exit !(a != "" && b != "" && a < b) }'; then
        ok "$1"
    else
        not_ok "$1" "$2 is to be below $3"
    fi
}

# near WHAT A B BOUND
near() {
    if awk -v a="$2" -v b="$3" -v e="$4" \
        'BEGIN { exit !(a != "" && b != "" && a - b < e && b - a < e) }'; then
        ok "$1"
    else
        not_ok "$1" "$2 and $3 are to be within $4"
    fi
}

read_export() {
    if ! command -v python3 >/dev/null; then
        ok "$1: no python3, not read"
        return
    fi
    said=$(python3 -B "$SOURCE/tests/cli/check_export.py" "$2" "$3" "$4" 2>&1 || true)
    same "$1" ok "$said"
}

# ---- the loss of a model ----

loss "one batch" 0 "$stories" train.batch=128
first=$loss
for batch in 1 7 16; do
    loss "batch $batch" 0 "$stories" "train.batch=$batch"
    same "E07: the loss does not depend on the batch ($batch)" "$first" "$loss"
done
loss "two copies" 2 "$stories" train.batch=16
same "nor on data parallelism" "$first" "$loss"
loss "tensor parallelism" 4 "$stories" train.batch=16 parallel.tp=2 train.micro_batch=2
same "nor on tensor parallelism and micro-batches" "$first" "$loss"
same "every byte but the first is a target" "3000 targets, 3000 bytes of text" \
    "$(sed -n 's/^sequences.*; //p' "$dir/out")"
loss "part of it" 0 "$stories" -n 10
same "ten sequences" "400 targets, 400 bytes of text" "$(sed -n 's/^sequences.*; //p' "$dir/out")"

# ---- in and out ----

ends_well "import a LLaMA" 0 import "$stories" --output "$dir/stories"
same "its file is the one that came in" "$(cksum <"$stories/model.safetensors")" \
    "$(cksum <"$dir/stories/model.safetensors")"
loss "imported" 0 "$dir/stories"
same "E07: its loss" "$first" "$loss"
ends_well "export it" 0 export "$dir/stories" --output "$dir/out.f32"
read_export "E11, E13: an independent reader finds all tensors" "$dir/out.f32" llama F32
loss "exported" 0 "$dir/out.f32"
same "E07: the export's loss" "$first" "$loss"
ends_well "export it as bf16" 0 export "$dir/stories" --output "$dir/out.bf16" --dtype bf16
read_export "in bf16" "$dir/out.bf16" llama BF16
ends_well "Qwen2 comes in" 0 import "$hf/qwen2" --output "$dir/qwen2" --tokenizer bytes
ends_well "and goes out" 0 export "$dir/qwen2" --output "$dir/qwen2.out" --dtype bf16 --tokenizer none
read_export "E14: tied, with biases" "$dir/qwen2.out" qwen2 BF16
ends_well "CoLA comes in" 0 import "$hf/cola" --output "$dir/cola" --tokenizer bytes
ends_well "and goes out in its own layout" 0 export "$dir/cola" --output "$dir/cola.out"
read_export "E18: CoLA's factors" "$dir/cola.out" cola F32
same "E18: the file is the one that came in" "$(cksum <"$hf/cola/model.safetensors")" \
    "$(cksum <"$dir/cola.out/model.safetensors")"
expect "the Python file is the tree's" cmp -s "$dir/cola.out/modeling_narrows.py" \
    "$SOURCE/common/checkpoint/modeling_narrows.py"
expect "the byte tokenizer goes with it" test -s "$dir/cola.out/tokenizer.json"
# Tokenizers under names of their own, in a folder, and of other kinds.
tokens=$SOURCE/tests/data/tokenizers
mkdir "$dir/lone"
gzip -dc "$tokens/stories260k.bin.gz" >"$dir/tok512.bin"
gzip -dc "$tokens/stories260k.model.gz" >"$dir/tok512.model"
gzip -dc "$tokens/minimind.json.gz" >"$dir/minimind.json"
cp "$dir/minimind.json" "$dir/lone/tokenizer.json"
# carried NAME WORDS...: an export with that tokenizer has a tokenizer.json of the same ids.
carried() {
    name=$1
    shift
    ends_well "export with $name" 0 export "$dir/stories" --output "$dir/with" -t "$dir/$name"
    same "$name is a tokenizer.json in it" \
        "$("$NARROWS" tokenize "$dir/$name" "$@" --text "Lily's ball")" \
        "$("$NARROWS" tokenize "$dir/with/tokenizer.json" "$@" --text "Lily's ball" 2>&1)"
    expect "with the names of special tokens" test -s "$dir/with/tokenizer_config.json"
    rm -rf "$dir/with"
}
carried tok512.bin --frame
carried tok512.model --frame
carried minimind.json
carried lone
ends_well "SVD comes in" 0 import "$hf/svd" --output "$dir/svd" --tokenizer bytes
ends_well "as factors" 0 export "$dir/svd" --output "$dir/svd.out"
read_export "factors" "$dir/svd.out" narrows F32
ends_well "or merged" 0 export "$dir/svd" --output "$dir/svd.dense" --merge
read_export "one matrix a layer" "$dir/svd.dense" llama F32
loss "factors" 0 "$dir/svd"
apart=$mean
loss "merged" 0 "$dir/svd.dense"
near "the merged model computes the same" "$apart" "$mean" 1e-6

# ---- low rank ----

ends_well "all singular values but one" 0 import "$stories" --output "$dir/r63" --to-lowrank 63
expect "a layer whose smaller side is below the rank is exact" \
    grep -q 'layers.0.self_attn.k_proj.*kept 100.0000 %.*exact' "$dir/out"
loss "the dense one" 0 "$stories"
full=$mean
ends_well "half of them" 0 import "$stories" --output "$dir/plain" --to-lowrank 24
expect "the energy of each layer is said" grep -q 'layers.4.mlp.down_proj.*energy kept' "$dir/out"
ends_well "weighed by activations" 0 import "$stories" --output "$dir/aware" --to-lowrank 24 \
    --method activation-aware --text "$dir/text" --tokenizer bytes
loss "plain" 0 "$dir/plain"
plain=$mean
loss "aware" 0 "$dir/aware"
aware=$mean
loss "dense" 0 "$stories"
near "weighing keeps the loss nearer" "$aware" "$mean" \
    "$(awk -v a="$plain" -v b="$mean" 'BEGIN { d = a - b; print 0.5 * (d < 0 ? -d : d) }')"
ends_well "CoLA begun from it" 0 import "$stories" --output "$dir/as-cola" --to-lowrank 24 \
    --family cola --method activation-aware --text "$dir/text" --tokenizer bytes
loss "CoLA" 0 "$dir/as-cola"
near "it begins near the SVD's" "$aware" "$mean" 0.5

# ---- training from it ----

cat >"$dir/more.yaml" <<END
data:
  train: $dir/text
  validation: $dir/text
train:
  steps: 2
  batch: 4
  seq: 40
  lr: 0
run:
  overwrite: on
  hash: on
END
ends_well "a run from imported weights" 0 train "$dir/more.yaml" "train.init_from=$dir/stories" \
    "run.dir=$dir/from"
one=$(hashes)
loss "unchanged by a rate of 0" 0 "$dir/from"
same "E06: it holds the imported weights" "$first" "$loss"
ends_well "on two ranks" 2 train "$dir/more.yaml" "train.init_from=$dir/stories" \
    "run.dir=$dir/from2" parallel.tp=2
same "E06: import at TP 2 equals TP 1" "$one" "$(hashes)"
ends_well "it learns" 0 train "$dir/more.yaml" "train.init_from=$dir/stories" train.steps=6 \
    train.lr=1e-3 "run.dir=$dir/learnt"
loss "learnt" 0 "$dir/learnt"
below "fine-tuning lowers the loss" "$mean" "$full"
# Qwen2's form from the beginning, on two ranks as on one, out, in again, and on.
qwen="model.width=64 model.layers=2 model.heads=4 model.kv_heads=2 model.ffn=176 model.tied=on"
qwen="$qwen model.layer=full parallel.strategy=auto model.qkv_bias=on train.lr=1e-3 train.steps=4"
# shellcheck disable=SC2086 # words
ends_well "a Qwen2 trains" 0 train "$dir/more.yaml" $qwen "run.dir=$dir/q"
one=$(hashes)
# shellcheck disable=SC2086
ends_well "on two ranks" 2 train "$dir/more.yaml" $qwen "run.dir=$dir/q2" parallel.tp=2
same "with the same bits" "$one" "$(hashes)"
loss "of the run" 0 "$dir/q"
first=$loss
ends_well "it goes out" 0 export "$dir/q" --output "$dir/q.out"
read_export "with biases" "$dir/q.out" qwen2 F32
ends_well "and in" 0 import "$dir/q.out" --output "$dir/q.in"
loss "of what came in" 0 "$dir/q.in"
same "E14: the same loss" "$first" "$loss"
before=$mean
ends_well "and trains on" 0 train "$dir/more.yaml" "train.init_from=$dir/q.in" train.lr=1e-3 \
    train.steps=4 "run.dir=$dir/q.on"
loss "after it" 0 "$dir/q.on"
below "it has learnt more" "$mean" "$before"

refused "another width" 5 "model.width 64 & 128" 0 train "$dir/more.yaml" \
    "train.init_from=$dir/stories" model.width=128 model.layer=full "run.dir=$dir/no"
refused "no such start" 4 "none" 0 train "$dir/more.yaml" "train.init_from=$dir/none"

# ---- questions ----

if command -v python3 >/dev/null; then
    python3 - "$dir/questions" "$dir/text" <<'END'
import struct, sys
text = open(sys.argv[2], "rb").read()
stream = []
for q in range(6):
    context = list(text[100 * q:100 * q + 30])
    answers = [list(text[100 * q + 30 + 7 * a:100 * q + 40 + 9 * a]) for a in range(4)]
    one = [65535, 0, q, q % 4, 4, len(context)] + context
    for a in answers:
        one += [len(a)] + a
    one[1] = 2 * len(one)
    stream += one
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<256i", 20240522, 1, 6, 400, *([0] * 252)))
    f.write(struct.pack("<%dH" % len(stream), *stream))
END
    ends_well "questions" 0 eval "$stories" "$dir/questions" data.tokenizer=bytes train.batch=5
    grep -v '^model\|^data' "$dir/out" >"$dir/scored"
    expect "all of them" grep -q '^questions   6 of 6, 24 answers' "$dir/scored"
    for batch in 1 32; do
        direct eval "$stories" "$dir/questions" data.tokenizer=bytes "train.batch=$batch"
        same "the score does not depend on the batch ($batch)" "$(cat "$dir/scored")" \
            "$(grep -v '^model\|^data' "$dir/out")"
    done
    job 2 eval "$stories" "$dir/questions" data.tokenizer=bytes train.batch=8
    same "nor on the ranks" "$(cat "$dir/scored")" "$(grep -v '^model\|^data' "$dir/out")"
    # one answer: its loss is that of the text with it less that of the text without
    python3 - "$dir/one" "$dir/text" <<'END'
import struct, sys
text = open(sys.argv[2], "rb").read()[:60]
one = [65535, 0, 0, 0, 1, 50] + list(text[:50]) + [10] + list(text[50:])
one[1] = 2 * len(one)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<256i", 20240522, 1, 1, one[1], *([0] * 252)))
    f.write(struct.pack("<%dH" % len(one), *one))
open(sys.argv[1] + ".50", "wb").write(text[:50])
open(sys.argv[1] + ".60", "wb").write(text)
END
    direct eval "$stories" "$dir/one" data.tokenizer=bytes
    answer=$(sed -n 's/^loss  *\([^ ]*\) .*/\1/p' "$dir/out")
    for n in 50 60; do
        direct eval "$stories" "$dir/one.$n" data.tokenizer=bytes train.seq=64 train.batch=1
        sed -n 's/^loss  *\([^ ]*\) .*/\1/p' "$dir/out" >"$dir/mean.$n"
    done
    near "the loss of an answer" "$answer" \
        "$(awk 'NR == FNR { a = $1; next } { print ($1 * 59 - a * 49) / 10 }' \
            "$dir/mean.50" "$dir/mean.60")" 1e-4
fi

# ---- refusals ----

refused "a folder that is there" 2 "stories is there and is not empty" 0 import "$stories" \
    --output "$dir/stories"
refused "no output" 2 "--output FOLDER" 0 import "$stories"
refused "low rank twice" 2 "low rank already" 0 import "$hf/svd" --output "$dir/no" --to-lowrank 4
refused "E18: CoLA has no dense form" 2 "SiLU between its factors & no dense matrix" 0 export \
    "$dir/cola" --output "$dir/no" --merge
refused "nothing to merge" 2 "full rank" 0 export "$dir/stories" --output "$dir/no" --merge
refused "another type" 2 "f32, bf16, f16 or f64, not 'int8'" 0 export "$dir/stories" \
    --output "$dir/no" --dtype int8
refused "no text" 2 "--text FILE" 0 import "$stories" --output "$dir/no" --to-lowrank 8 \
    --method activation-aware
refused "a method without a rank" 2 "belong to --to-lowrank" 0 import "$stories" \
    --output "$dir/no" --method svd
refused "an unknown tokenizer" 3 "tokenizer is not known & data.tokenizer=" 0 eval "$stories" \
    "$dir/text"
refused "no data" 4 "none" 0 eval "$stories" "$dir/none" data.tokenizer=bytes
mkdir "$dir/scaled"
sed 's/"rope_scaling": null/"rope_scaling": {"rope_type": "llama3", "factor": 8.0}/' \
    "$stories/config.json" >"$dir/scaled/config.json"
cp "$stories/model.safetensors" "$dir/scaled"
refused "scaled rotary positions" 5 "rope_type llama3" 0 import "$dir/scaled" --output "$dir/no"
expect "nothing was left behind" test ! -e "$dir/no" -a ! -e "$dir/no.partial"
finish
