#!/bin/sh
# The five commands of docs/data.md, as they stand there: raw JSONL, token shards, training,
# evaluation, a folder for transformers. A text and a tokenizer of the tree are the user's.
# shellcheck disable=SC1091,SC2086,SC2154 # lib.sh sets dir, text, status; words
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
mkdir "$dir/work"
cd "$dir/work" || exit 1
ln -s "$SOURCE/examples" examples

# Paragraphs become documents; quotes and backslashes do not occur in this text.
head -c 30000 "$text" | awk 'BEGIN { RS = ""; FS = "\n" }
    { line = $1; for (i = 2; i <= NF; i++) line = line "\\n" $i; printf "{\"text\": \"%s\"}\n", line }' \
    >stories.jsonl
gzip -dc "$SOURCE/tests/data/tokenizers/minimind.json.gz" >tokenizer.json

sed -n '/^## 6. From raw JSONL/,$p' "$SOURCE/docs/data.md" | sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' |
    sed -n 's/^    narrows //p' >commands
same "five commands" "$(grep -c . commands)" 5
short="train.steps=2 train.warmup=0 train.decay=1 train.seq=16 train.eval_sequences=4"
while read -r line <&3; do
    words=$line
    case $line in
    launch*) words="$line $short" ;;
    eval*) words="$line --sequences 8" ;;
    esac
    eval "set -- $words"
    ends_well "$line" 0 "$@"
done 3<commands

for file in config.json generation_config.json model.safetensors tokenizer.json modeling_narrows.py; do
    expect "the export has $file" test -s "stories-hf/$file"
done
expect "the tokenizer is the user's" cmp -s tokenizer.json stories-hf/tokenizer.json
ends_well "the export is a model again" 0 eval stories-hf stories --sequences 8
same "with the same loss" "$(sed -n 's/^exactly *//p' "$dir/out")" \
    "$("$NARROWS" eval runs/stories stories --sequences 8 2>/dev/null | sed -n 's/^exactly *//p')"
finish
