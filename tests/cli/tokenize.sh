#!/bin/sh
# narrows tokenize: ids of a text and the text of ids; what a tokenizer is; refusals. And narrows
# generate with a tokenizer that a folder brings.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
stored=$SOURCE/tests/data/tokenizers
mkdir "$dir/model"
gzip -dc "$stored/minimind.json.gz" >"$dir/tokenizer.json"
gzip -dc "$stored/stories260k.model.gz" >"$dir/model/tokenizer.model"
cp "$SOURCE/validation/data/stories260k/config.json" \
    "$SOURCE/validation/data/stories260k/model.safetensors" "$dir/model"

# said WHAT WORDS...: leaves what was written in $said.
said() {
    what=$1
    shift
    direct "$@"
    expect "$what" test "$status" = 0
    said=$(cat "$dir/out")
}

said "ids" tokenize "$dir/tokenizer.json" --text "<|im_start|>user"
same "special tokens are text" "$said" \
    "$("$NARROWS" tokenize "$dir" --text "<|im_start|>user")"
said "special ids" tokenize "$dir/tokenizer.json" --special --text "<|im_start|>user"
same "special tokens are found" "$said" "1 832 311"
said "bytes" tokenize bytes -t "Hi!"
same "the bytes" "$said" "72 105 33"
said "pieces" tokenize bytes -p -t "H
"
same "a line for each" "$said" "$(printf '72\tH\n10\t\\x0a')"
"$NARROWS" tokenize "$dir/tokenizer.json" "$text" >"$dir/ids"
"$NARROWS" tokenize "$dir/tokenizer.json" --decode "$dir/ids" >"$dir/back"
expect "there and back" cmp "$text" "$dir/back"
printf '72, 105\n33' | "$NARROWS" tokenize bytes -d >"$dir/piped"
same "ids with commas" "$(cat "$dir/piped")" "Hi!"
said "the time" tokenize "$dir/tokenizer.json" --time "$text"
expect "bytes and tokens" grep -qE '^111540 bytes, 48701 tokens, [0-9.]+ s, [0-9.]+ MB/s$' "$dir/out"
said "info" tokenize "$dir/model" --info
expect "kind" grep -q '^kind  *SentencePiece BPE$' "$dir/out"
expect "size" grep -q '^tokens  *512$' "$dir/out"
expect "begin" grep -q '^begin  *<s> (1)$' "$dir/out"
said "a frame" tokenize "$dir/model" --frame -t "Once"
same "begin comes first" "$said" "1 403"

refused "a text for ids" 5 "token 0 is '# Rep" 0 tokenize bytes --decode "$SOURCE/tests/CASES.md"
refused "no such tokenizer" 3 "neither bytes nor the path" 0 tokenize nothing -t a
refused "no tokenizer" 5 "CASES.md & no kind that is known" 0 tokenize "$SOURCE/tests/CASES.md" -t a
refused "two texts" 2 "leave one out" 0 tokenize bytes "$text" -t a

# The greedy text of this model is what llama2.c's own test expects.
said "a folder with its tokenizer" generate "$dir/model" --prompt "" --tokens 200 --temperature 0
sed -n 's/.*"tokens": \[\([^]]*\)\].*/\1/p' \
    "$SOURCE/validation/data/stories260k/stories260k_logits.json" |
    "$NARROWS" tokenize "$dir/model" --decode >"$dir/expected"
same "llama2.c's text" "$said" "$(cat "$dir/expected")"
# So it is when the model was imported, factored and exported: its prompts have a begin token.
said "import" import "$SOURCE/validation/data/stories260k" --output "$dir/in" \
    --tokenizer "$dir/model/tokenizer.model"
said "an imported model" generate "$dir/in" --prompt "" --tokens 200 --temperature 0
same "llama2.c's text from the import" "$said" "$(cat "$dir/expected")"
said "factors" import "$dir/in" --output "$dir/low" --to-lowrank 63
said "of the factors" generate "$dir/low" --prompt "" --tokens 20 --temperature 0
same "begin and tokenizer are carried over" "$said" "$(head -c ${#said} "$dir/expected")"
said "export" export "$dir/low" --output "$dir/out.hf" --merge
said "of the export" generate "$dir/out.hf" --prompt "" --tokens 20 --temperature 0
same "and go out" "$said" "$(head -c ${#said} "$dir/expected")"
said "without it" generate "$dir/in" --prompt "" --tokens 20 --temperature 0 sample.frame=off
differ "sample.frame off begins otherwise" "$said" "$(head -c ${#said} "$dir/expected")"
said "a stop" generate "$dir/model" --prompt "" --tokens 200 --temperature 0 --stop "<s>,13"
same "the first line" "$said" "$(head -n 1 "$dir/expected")"
refused "a stop that is no token" 2 "--stop: 'girl girl' & 0 to 511" 0 \
    generate "$dir/model" --stop "girl girl"
refused "a model of fewer tokens" 3 "512 & 6400" 0 generate "$dir/model" \
    "data.tokenizer=$dir/tokenizer.json"

# A run on plain text with a tokenizer of its own, and text from it.
plain "$dir/t.yaml"
said "a run" train "$dir/t.yaml" "data.tokenizer=$dir/model" train.steps=2 run.save=on parallel.tp=1
said "text of the run" generate "$dir/run" --prompt "Once upon" --tokens 20 --temperature 0
case $said in
"Once upon"*) ok "the prompt comes first" ;;
*) not_ok "the prompt comes first" "$said" ;;
esac
cp "$dir/model/tokenizer.model" "$dir/lone.model"
said "export of the run" export "$dir/run" --output "$dir/run.hf" --tokenizer "$dir/lone.model"
same "a model that has seen no begin token gets none" \
    "$("$NARROWS" tokenize "$dir/run.hf" --frame -t "Once")" "$("$NARROWS" tokenize "$dir/model" -t "Once")"
refused "a tokenizer larger than the model" 3 "model.vocab 512 & 6400" 0 train "$dir/t.yaml" \
    "data.tokenizer=$dir/tokenizer.json" model.vocab=512 parallel.tp=1
said "a tokenizer smaller than the model" train "$dir/t.yaml" "data.tokenizer=$dir/model" \
    model.vocab=600 train.steps=2 parallel.tp=1 run.overwrite=on
finish
