#!/bin/sh
# narrows generate: the same text each time, with and without a cache, from a run or a folder of
# weights; refusals; text that cannot be written.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
t=$dir/t.yaml
plain "$t"

# speak WHAT WORDS...: leaves what was written in $said.
speak() {
    what=$1
    shift
    direct generate "$@"
    if [ "$status" = 0 ] && grep -qE '^[0-9]+ tokens' "$dir/err"; then
        ok "$what"
    else
        not_ok "$what" "status $status, $(cat "$dir/err")"
    fi
    said=$(cat "$dir/out")
}

ends_well "a run on two ranks" 2 train "$t" parallel.tp=2 train.steps=3 run.save=on
speak "text of a run" "$dir/run" --prompt "KING: " --tokens 60
first=$said
case $first in
"KING: "*) ok "the prompt comes first" ;;
*) not_ok "the prompt comes first" "$first" ;;
esac
speak "again" "$dir/run" --prompt "KING: " --tokens 60
same "the same text" "$first" "$said"
speak "without a cache" "$dir/run" --prompt "KING: " --tokens 60 --no-cache
same "the same text without a cache" "$first" "$said"
speak "from the folder" "$dir/run/final" --prompt "KING: " --tokens 60
same "the same text from the folder" "$first" "$said"
speak "another seed" "$dir/run" --prompt "KING: " --tokens 60 --seed 7
differ "another text" "$first" "$said"
speak "greedy" "$dir/run" --prompt "KING: " --tokens 90 --temperature 0
first=$said
speak "greedy without a cache, past the window" "$dir/run" --prompt "KING: " --tokens 90 \
    --temperature 0 --no-cache
same "the same greedy text" "$first" "$said"
speak "an empty prompt" "$dir/run" --prompt "" --tokens 5

refused "no weights" 4 "no weights in $dir & final/" 0 generate "$dir"
refused "no such folder" 4 "$dir/none & No such file" 0 generate "$dir/none"
refused "two ranks" 2 "narrows generate runs on one rank & 2" 2 generate "$dir/run"
refused "two ranks by key" 3 "parallel.tp" 0 generate "$dir/run" parallel.tp=2
refused "a tokenizer that is not known" 3 "no narrows.yaml & data.tokenizer" 0 \
    generate "$SOURCE/validation/data/stories260k"
refused "no tokens" 2 "--tokens" 0 generate "$dir/run" --tokens 0
sed 's/"rank": 16/"rank": 8/' "$dir/run/final/config.json" >"$dir/other"
cp "$dir/other" "$dir/run/final/config.json"
refused "another model" 5 "$dir/run/final/config.json & model.rank 8 & 16" 0 generate "$dir/run"
cp "$dir/run/best/config.json" "$dir/run/final/config.json"
head -c 3000 "$dir/run/best/model.safetensors" >"$dir/run/final/model.safetensors"
refused "weights cut off" 5 "$dir/run/final/model.safetensors" 0 generate "$dir/run"
if [ -w /dev/full ]; then
    status=0
    "$NARROWS" generate "$dir/run/best" --tokens 5 >/dev/full 2>"$dir/err" || status=$?
    check_refusal "a full disk" 4 "could not be written & No space left"
fi
finish
