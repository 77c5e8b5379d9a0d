#!/bin/sh
# narrows data: rows D06, D07, D14 of tests/CASES.md; the same output for any number of threads; all
# or nothing; bad input; the verbs that look into shards.
# shellcheck disable=SC1091,SC2034,SC2153,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
d=$dir
same_files() {
    expect "$1: tokens" cmp "$2.bin" "$3.bin"
    expect "$1: index" cmp "$2.idx" "$3.idx"
}
prepare() {
    claim=$1
    shift
    ends_well "$claim" 0 data prepare --quiet -t bytes "$@"
}
line() { sed -n "s/^ *$1  *//p" "$dir/out"; }

# Speeches of a play, parted by blank lines: thousands of documents, several batches.
prepare "speeches" "$SOURCE/examples/data/tinyshakespeare/train.txt" -s '' -j 1 -o "$d/one"
expect "many documents" test "$(line prepared | sed 's/ .*//')" -gt 5000
for threads in 2 3 8; do
    prepare "$threads threads" "$SOURCE/examples/data/tinyshakespeare/train.txt" -s '' \
        -j $threads -o "$d/many" --overwrite
    same_files "$threads threads as one" "$d/many" "$d/one"
done

# One document, which comes in parts.
prepare "a document" "$SOURCE/examples/data/tinyshakespeare/train.txt" -j 1 -o "$d/one" --overwrite
prepare "a document, 3 threads" "$SOURCE/examples/data/tinyshakespeare/train.txt" -j 3 \
    -o "$d/many" --overwrite
same_files "a document in parts: 3 threads as one" "$d/many" "$d/one"

# The same text as JSON lines, packed, through a pipe.
sed 's/\\/\\\\/g; s/"/\\"/g' "$text" |
    awk 'BEGIN { q = "\"" } $0 == "" { if (n) print "{" q "id" q ": 1, " q "body" q ": " q t q "}"; t = ""; n = 0; next }
        { t = t $0 "\\n"; n++ } END { if (n) print "{" q "body" q ": " q t q "}" }' >"$d/speeches.jsonl"
prepare "text" "$text" -s '' -o "$d/text"
prepare "JSON lines" "$d/speeches.jsonl" --key body -o "$d/json"
same_files "JSON lines as text" "$d/json" "$d/text"
gzip -c "$d/speeches.jsonl" >"$d/speeches.jsonl.gz"
prepare "gzip" "$d/speeches.jsonl.gz" --key body -o "$d/gz"
same_files "gzip as text" "$d/gz" "$d/text"
"$NARROWS" data prepare -q -t bytes - --input jsonl --key body -o "$d/pipe" \
    <"$d/speeches.jsonl.gz" >/dev/null
same_files "a pipe as text" "$d/pipe" "$d/text"

# A run on the shard is the run on the text.
plain "$d/t.yaml"
set -- train.steps=2 run.hash=on data.document_separator='END OF FILE'
{
    cat "$text"
    echo 'END OF FILE'
    head -c 3000 "$text"
} >"$d/two.txt"
ends_well "a run on text" 0 train "$d/t.yaml" data.train="$d/two.txt" data.validation='""' "$@"
want=$(hashes)
prepare "its shard" "$d/two.txt" -s 'END OF FILE' -o "$d/two"
ends_well "a run on the shard" 0 train "$d/t.yaml" data.train="$d/two" data.validation='""' "$@"
same "a shard trains as its text does, held-out documents and all" "$(hashes)" "$want"

# Looking into shards.
ends_well "inspect" 0 data inspect "$d/two"
same "inspect counts documents" "$(line documents | sed 's/:.*//')" 2
same "inspect counts tokens" "$(line tokens | sed 's/ .*//')" "$(($(wc -c <"$text") + 3000 + 2))"
ends_well "head" 0 data head "$d/two.idx" -n 1 --tokens 0 -t bytes
sed '1d' "$d/out" | head -c "$(wc -c <"$text")" >"$d/back"
expect "head gives the text back" cmp "$d/back" "$text"
ends_well "head of ids" 0 data head "$d/two" -n 1 --tokens 4
same "ids are bytes" "$(tail -n 1 "$d/out")" "$(head -c 4 "$text" | od -An -tu1 | tr -s ' ' | sed 's/^ //')"
ends_well "stats" 0 data stats "$d/two" -t bytes
same "stats sees the end of documents" "$(line largest)" 257
ends_well "verify" 0 data verify "$d/two" -t bytes
refused "verify against a smaller vocabulary" 5 "$d/two.bin & id 257 & 0 to 199" 0 data verify \
    "$d/two" --vocab 200
cp "$d/two.idx" "$d/cut.idx"
head -c 1000 "$d/two.bin" >"$d/cut.bin"
refused "verify of several" 5 "1 of 2 shards" 0 data verify "$d/two.bin" "$d/cut.bin"
expect "verify names the one" grep -q "$d/cut.bin is too short" "$d/out"

# D06: joining shards gives what their texts give together.
prepare "both texts" "$text" "$d/two.txt" -s '' -o "$d/both"
prepare "the second" "$d/two.txt" -s '' -o "$d/second"
ends_well "D06 convert" 0 data convert "$d/text" "$d/second" -o "$d/joined"
same_files "D06 joined shards are the shard of both" "$d/joined" "$d/both"
ends_well "to llm.c's format" 0 data convert "$d/joined" -f llmc -o "$d/llmc"
prepare "text to llm.c's format" "$text" "$d/two.txt" -s '' -f llmc -o "$d/direct"
expect "both ways give one file" cmp "$d/llmc.bin" "$d/direct.bin"
ends_well "D14 shards of 32-bit ids stay so" 0 data convert \
    "$SOURCE/tests/data/shards/prose_val_dolma2_u32.bin" -o "$d/wide"
ends_well "inspect them" 0 data inspect "$d/wide"
same "D14 type" "$(line type)" int32

# Documents that are not clean.
bad() {
    claim=$1 want=$2 patterns=$3
    shift 3
    rm -f "$d/bad".[bi]* # of an earlier one, had it succeeded
    refused "$claim" "$want" "$patterns" 0 data prepare -q -t bytes -o "$d/bad" "$@"
    expect "$claim: nothing is left" sh -c "! ls '$d'/bad.*"
}
printf '{"text": "a"}\n{"text": "b"\n' >"$d/broken.jsonl"
bad "a broken line" 5 "$d/broken.jsonl:2: not valid JSON" "$d/broken.jsonl"
bad "a missing key" 5 "$d/broken.jsonl:1: & no key 'body' & --key" "$d/broken.jsonl" --key body
printf 'a\nb\351\n' >"$d/latin1.txt"
bad "Latin-1" 5 "$d/latin1.txt:2: not UTF-8 & 0xe9 & --invalid-utf8" "$d/latin1.txt"
for policy in replace skip; do
    prepare "--invalid-utf8 $policy" "$d/latin1.txt" "$text" --invalid-utf8 $policy \
        -o "$d/policy" --overwrite
    expect "it is said ($policy)" grep -qE '1 document (with U|not in UTF-8)' "$d/out"
done
head -c 500 "$d/speeches.jsonl.gz" >"$d/cut.jsonl.gz"
bad "a cut gzip file" 5 "$d/cut.jsonl.gz & damaged & too early" "$d/cut.jsonl.gz" --key body
: >"$d/empty.txt"
bad "no text at all" 5 "$d/bad.bin & no text" "$d/empty.txt"
bad "a missing file" 4 "$d/none.txt & No such file" "$d/none.txt"
bad "a folder" 4 "$d & directory" "$d"
refused "an unknown tokenizer" 3 "bites" 0 data prepare "$text" -t bites -o "$d/bad"
refused "no tokenizer" 2 "--tokenizer" 0 data prepare "$text" -o "$d/bad"
refused "an output that is there" 3 "$d/one.bin & --overwrite" 0 data prepare -q -t bytes "$text" \
    -o "$d/one"
refused "a folder that is not there" 4 "$d/no/x.bin.part & No such file" 0 data prepare -q \
    -t bytes "$text" -o "$d/no/x"
refused "an unknown verb" 2 "prepare" 0 data prepair

# A full disk, and Ctrl-C, leave nothing behind.
mkdir "$d/full"
code=0
(
    trap '' XFSZ
    ulimit -f 100
    exec "$NARROWS" data prepare -q -t bytes "$text" -o "$d/full/x" >"$d/out" 2>"$d/err"
) || code=$?
status=$code
check_refusal "a full disk" 4 "$d/full/x.bin.part"
expect "a full disk: nothing is left" sh -c "! ls '$d/full' | grep -q ."
mkfifo "$d/fifo"
"$NARROWS" data prepare -q -t bytes "$d/fifo" -o "$d/full/x" >"$d/out" 2>"$d/err" &
pid=$!
exec 3>"$d/fifo"
cat "$text" >&3
while [ ! -e "$d/full/x.bin.part" ]; do sleep 0.05; done
kill -TERM $pid
code=0
wait $pid || code=$?
exec 3>&-
same "a request to stop: status" $code 130
expect "a request to stop: nothing is left" sh -c "! ls '$d/full' | grep -q ."

# D07: 200 MB of text with at most 64 MB in memory. Instrumented programs use more of their own.
if ! grep -q __asan_init "$NARROWS"; then
    i=0
    while [ $i -lt 200 ]; do
        cat "$SOURCE/examples/data/tinyshakespeare/train.txt"
        i=$((i + 1))
    done >"$d/large.txt"
    echo >>"$d/large.txt" # so that lines of JSON can be made of its lines
    expect "D07 200 MB" test "$(wc -c <"$d/large.txt")" -gt 200000000
    # With 8 threads, as each takes memory. What the program says of its own peak, less that of a
    # small text: libraries of a build with CUDA take more than 64 MB before anything is read, and
    # tokenizers up to 32 MB.
    peak() {
        file=$1
        shift
        direct data prepare -t bytes -j 8 "$d/$file" -o "$d/out" --overwrite "$@"
        cat "$dir/out" "$dir/err" | sed -n 's/.*memory at most \([0-9.]*\) MiB.*/\1/p'
    }
    little() {
        expect "D07 in little memory: $1 ($least MiB for 0.1 MB, $most for 200 MB)" \
            awk -v a="$least" -v b="$most" 'BEGIN { exit !(a > 1 && b > 1 && b - a < 32) }'
    }
    head -c 100000 "$d/large.txt" >"$d/small.txt"
    least=$(peak small.txt -s '')
    most=$(peak large.txt -s '')
    little "thousands of documents"
    expect "D07 all of it" test "$(wc -c <"$d/out.bin")" -gt 400000000
    # The same as one document, and as one line of JSON.
    most=$(peak large.txt)
    little "one document"
    same "D07 all of it, and its end" "$(wc -c <"$d/out.bin")" $((2 * $(wc -c <"$d/large.txt") + 2))
    mv "$d/out.bin" "$d/whole.bin"
    {
        printf '{"id": 1, "text": "'
        sed 's/$/\\n/' "$d/large.txt" | tr -d '\n'
        echo '"}'
    } >"$d/large.jsonl"
    rm "$d/large.txt"
    most=$(peak large.jsonl)
    little "one line of JSON"
    expect "D07 the same tokens" cmp "$d/out.bin" "$d/whole.bin"
fi
finish
