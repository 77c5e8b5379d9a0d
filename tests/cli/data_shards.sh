#!/bin/sh
# Runs on token shards: rows D11, D13, D14, D19 of tests/CASES.md, mixtures, and layouts.
# shellcheck disable=SC1091,SC2034,SC2153,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
t=$dir/t.yaml
plain "$t"

# le BYTES NUMBER...: little-endian numbers on stdout.
le() {
    bytes=$1
    shift
    for number in "$@"; do
        i=0
        while [ $i -lt "$bytes" ]; do
            # shellcheck disable=SC2059 # the format is made
            printf "\\$(printf '%03o' $((number >> 8 * i & 255)))"
            i=$((i + 1))
        done
    done
}
# megatron NAME CODE BYTES COUNT: an index over NAME.bin, one document of COUNT tokens.
megatron() {
    {
        printf 'MMIDIDX\000\000'
        le 8 1
        le 1 "$2"
        le 8 1 2
        le 4 "$4"
        le 8 0 0 1
    } >"$1.idx"
    same "$1: size of the tokens" "$(wc -c <"$1.bin")" "$(($3 * $4))"
}
# Bytes of a text without NUL as ids of 16 bits.
widen() {
    # shellcheck disable=SC2059 # the format is made
    printf "$(tr -d '\n' | od -An -v -to1 -w1 | sed 's/ /\\/; s/$/\\000/' | tr -d '\n')"
}
# llmc FILE COUNT: header of an llm.c file of 16-bit ids.
llmc() {
    {
        le 4 20240520 1 "$2"
        head -c 1012 /dev/zero
    } >"$1"
}

# The same text as a file, as Megatron's and as llm.c's: the same run, bit by bit, in every layout.
head -c 1500 "$text" >"$dir/plain.txt"
widen <"$dir/plain.txt" >"$dir/mega.bin"
n=$(($(wc -c <"$dir/mega.bin") / 2))
tr -d '\n' <"$dir/plain.txt" >"$dir/flat.txt"
same "every byte became an id" "$n" "$(wc -c <"$dir/flat.txt")"
megatron "$dir/mega" 8 2 "$n"
llmc "$dir/c.bin" "$n"
cat "$dir/mega.bin" >>"$dir/c.bin"
set -- train.steps=3 run.hash=on
ends_well "a text" 1 train "$t" data.train="$dir/flat.txt" "$@"
want=$(hashes)
for source in mega c.bin; do
    ends_well "$source" 1 train "$t" data.train="$dir/$source" "$@"
    same "$source trains as the text does" "$(hashes)" "$want"
done
ends_well "shards on four ranks" 4 train "$t" data.train="$dir/mega" parallel.tp=2 "$@"
same "shards train alike in every layout" "$(hashes)" "$want"

# Mixtures: weights, a pattern, a text and shards side by side; the same in every layout.
cp "$dir/mega.bin" "$dir/mix-a.bin"
cp "$dir/mega.idx" "$dir/mix-a.idx"
cp "$dir/c.bin" "$dir/mix-b.bin"
mix="[0.75 $dir/mix-*, 0.25 $dir/flat.txt]"
ends_well "a mixture" 1 train "$t" data.train="$mix" "$@"
want=$(hashes)
ends_well "a mixture on four ranks" 4 train "$t" data.train="$mix" parallel.tp=2 "$@"
same "a mixture trains alike in every layout" "$(hashes)" "$want"
ends_well "other weights" 1 train "$t" data.train="[0.25 $dir/mix-*, 0.75 $dir/flat.txt]" "$@"
differ "weights matter" "$(hashes)" "$want"

# Attention and positions that begin anew with each document: the same in every layout.
sed 's/^$/--/' "$dir/plain.txt" >"$dir/documents.txt"
set -- "$@" data.document_separator=-- data.train="$dir/documents.txt" \
    data.validation="$dir/documents.txt"
ends_well "documents that see each other" 1 train "$t" "$@"
differ "nothing is reset by itself" "$(hashes)" "$want"
other=$(hashes)
set -- "$@" data.reset_documents=on
ends_well "documents apart" 1 train "$t" "$@"
want=$(hashes)
differ "reset_documents matters" "$want" "$other"
ends_well "documents apart on four ranks" 4 train "$t" "$@" parallel.tp=2 train.micro_batch=2
same "documents apart train alike in every layout" "$(hashes)" "$want"
refused "documents without borders" 3 "data.reset_documents & data.document_separator" 1 train "$t" \
    data.reset_documents=on
refused "shards without borders" 3 "$dir/c.bin & data.reset_documents & Megatron" 1 train "$t" \
    data.reset_documents=on data.train="$dir/c.bin"
refused "reset without packing" 3 "data.reset_documents & data.packing" 1 train "$t" "$@" \
    data.packing=off

# D11: 9 sequences on 2 ranks with a batch of 2: all ranks finish, in training and validation.
head -c 289 "$dir/flat.txt" >"$dir/nine.txt"
ends_well "D11 sequences that the ranks do not divide" 2 train "$t" train.batch=2 train.steps=20 \
    data.train="$dir/nine.txt" data.validation="$dir/nine.txt" train.eval_every=3 \
    train.eval_sequences=0

# D12: going on with fewer data than before: both numbers of sequences are named.
ends_well "a run to go on from" 1 train "$t" run.save=on train.steps=2 data.train="$dir/c.bin"
llmc "$dir/less.bin" 1000
head -c 2000 "$dir/mega.bin" >>"$dir/less.bin"
refused "D12 going on with a shorter shard" 3 \
    "$dir/less.bin & $(((n + 30) / 32)) then & 32 sequences an epoch" 1 train "$t" --resume \
    run.save=on train.steps=2 data.train="$dir/less.bin"

# D13: id 300 at position 1234 with a vocabulary of 259; -1 in 32 bits. Before the first step.
bad() {
    rm -rf "$dir/run"
    refused "$@"
    expect "$1: no run folder" test ! -e "$dir/run"
}
cp "$dir/mega.bin" "$dir/high.bin"
cp "$dir/mega.idx" "$dir/high.idx"
le 2 300 | dd of="$dir/high.bin" bs=2 seek=1234 conv=notrunc 2>/dev/null
bad "D13 an id beyond the vocabulary" 5 \
    "$dir/high.bin & position 1234 & id 300 & 0 to 258 & model.vocab" 2 train "$t" \
    data.train="$dir/high"
bad "D13 the same in validation data" 5 "$dir/high.bin & 1234" 2 train "$t" \
    data.validation="$dir/high"
ends_well "D13 a larger vocabulary has that id" 2 train "$t" data.train="$dir/high" model.vocab=301 \
    train.steps=1
head -c 4000 /dev/zero >"$dir/minus.bin"
megatron "$dir/minus" 4 4 1000
printf '\377\377\377\377' | dd of="$dir/minus.bin" bs=4 seek=77 conv=notrunc 2>/dev/null
bad "D13 an id below zero" 5 "$dir/minus.bin & position 77 & id -1" 2 train "$t" \
    data.train="$dir/minus"

# D14: 70000 ids: 16-bit data cannot use them all, which is said; 32-bit data train.
ends_well "D14 16-bit ids under a vocabulary of 70000" 1 train "$t" data.train="$dir/mega" \
    model.vocab=70000 model.width=8 model.heads=2 model.kv_heads=2 model.rank=4 model.layers=1 train.batch=1 train.steps=1
expect "D14 a warning names file and vocabulary" grep -q "^warning: $dir/mega.bin .*70000" "$dir/err"
le 4 69999 | dd of="$dir/minus.bin" bs=4 seek=77 conv=notrunc 2>/dev/null
ends_well "D14 32-bit ids train" 1 train "$t" data.train="$dir/minus" model.vocab=70000 \
    model.width=8 model.heads=2 model.kv_heads=2 model.rank=4 model.layers=1 train.batch=1 train.steps=1
expect "D14 without a warning" sh -c "! grep -q ^warning: '$dir/err'"

# D19: a truncated shard among three is named; so is what is too short for one sequence.
for i in 1 2 3; do
    cp "$dir/c.bin" "$dir/part-$i.bin"
done
ends_well "three shards" 2 train "$t" data.train="$dir/part-*.bin" train.steps=1
head -c 2000 "$dir/c.bin" >"$dir/part-2.bin"
bad "D19 a truncated shard among three" 5 "$dir/part-2.bin & 2000 bytes & $n tokens & cut" 2 \
    train "$t" data.train="$dir/part-*.bin"
llmc "$dir/small.bin" 20
head -c 40 /dev/zero >>"$dir/small.bin"
bad "D19 fewer tokens than one sequence" 5 "$dir/small.bin & 20 tokens & 33" 2 train "$t" \
    data.train="$dir/small.bin"
bad "a pattern that nothing matches" 4 "$dir/none-\* & no file matches" 2 train "$t" \
    data.train="$dir/none-*"
bad "weights for some sources only" 3 "data.train & weight" 2 train "$t" \
    data.train="[0.5 $dir/mega, $dir/flat.txt]"
cp "$dir/flat.txt" "$dir/text.bin"
bad "a text that is called .bin" 5 "$dir/text.bin & no token shard" 2 train "$t" \
    data.train="$dir/text.bin"
finish
