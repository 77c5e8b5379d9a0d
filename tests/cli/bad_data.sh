#!/bin/sh
# Texts that cannot be trained on: named with their path, what is wrong and a way out, once, on all
# ranks; before the first step and before a run folder is made.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
t=$dir/t.yaml
plain "$t"

bad() {
    what=$1 want=$2 patterns=$3
    shift 3
    refused "$what" "$want" "$patterns" 2 train "$t" parallel.tp=2 "$@"
    expect "$what: no run folder" test ! -e "$dir/run"
}

bad "missing text" 4 "$dir/none.txt & No such file" data.train="$dir/none.txt"
bad "missing validation text" 4 "$dir/none.txt & No such file" data.validation="$dir/none.txt"
: >"$dir/empty.txt"
bad "empty text" 5 "$dir/empty.txt & empty" data.train="$dir/empty.txt"
bad "empty validation text" 5 "$dir/empty.txt & empty" data.validation="$dir/empty.txt"
printf '%032d' 7 >"$dir/short.txt"
bad "text of 32 bytes for sequences of 32" 5 "$dir/short.txt & 32 tokens & 33 & train.seq" \
    data.train="$dir/short.txt"
printf '%033d' 7 >"$dir/enough.txt"
ends_well "text of 33 bytes" 2 train "$t" parallel.tp=2 train.steps=1 data.train="$dir/enough.txt"
rm -rf "$dir/run"
printf x >"$dir/one.txt"
bad "validation text of one byte" 5 "$dir/one.txt & 1 tokens" data.validation="$dir/one.txt"
bad "a folder as text" 4 "$dir & directory" data.train="$dir"
mkfifo "$dir/fifo"
bad "L04 a pipe that nobody writes to does not hang" 4 "$dir/fifo & regular file" \
    data.train="$dir/fifo"
bad "a device as text" 4 "/dev/zero & regular file" data.train=/dev/zero
{
    head -c 5000 "$text"
    printf 'caf\351 au lait'
    head -c 500 "$text"
} >"$dir/latin1.txt"
bad "text in Latin-1" 5 "$dir/latin1.txt & UTF-8 & 0xe9 & 5003 & data.require_utf8" \
    data.train="$dir/latin1.txt"
bad "validation text in Latin-1" 5 "$dir/latin1.txt & UTF-8 & 5003" \
    data.validation="$dir/latin1.txt"
ends_well "the way out for other bytes works" 2 train "$t" parallel.tp=2 train.steps=1 \
    data.train="$dir/latin1.txt" data.require_utf8=off
rm -rf "$dir/run"
head -c 5001 "$text" >"$dir/cut.txt"
printf '\303' >>"$dir/cut.txt"
bad "text that ends inside a character" 5 "$dir/cut.txt & UTF-8 & 5001" data.train="$dir/cut.txt"
bad "no text" 3 'data.train is not set & data.train=FILE' data.train='""'
bad "a separator that does not occur" 5 "<doc> & does not occur & data.document_separator" \
    data.document_separator='<doc>'
bad "packing off without a separator" 3 'packing & document_separator' data.packing=off
bad "unknown tokenizer" 3 "'bites' & not known & bytes" data.tokenizer=bites

# Unreadable: root reads everything, unless it runs without its capabilities.
cp "$text" "$dir/secret.txt"
chmod 000 "$dir/secret.txt"
if [ "$(id -u)" -ne 0 ]; then
    bad "unreadable text" 4 "$dir/secret.txt & Permission denied" data.train="$dir/secret.txt"
elif command -v setpriv >/dev/null 2>&1; then
    chmod 755 "$dir"
    code=0
    setpriv --reuid 65534 --regid 65534 --clear-groups "$NARROWS" train "$t" \
        data.train="$dir/secret.txt" run.dir="$dir/other" >"$dir/out" 2>"$dir/err" || code=$?
    status=$code
    check_refusal "unreadable text" 4 "$dir/secret.txt & Permission denied"
else
    echo "left out: unreadable text (this is root, without setpriv)"
fi

# A text that only one rank cannot read: the others do not wait for it.
mkdir "$dir/a" "$dir/b"
cp "$text" "$dir/a/t.txt"
timeout -k 5 "$LIMIT" "$MPIRUN" -n 1 --wdir "$dir/a" "$NARROWS" train "$t" data.train=t.txt \
    parallel.tp=2 : -n 1 --wdir "$dir/b" "$NARROWS" train "$t" data.train=t.txt parallel.tp=2 \
    >"$dir/out" 2>"$dir/err" </dev/null && status=0 || status=$?
check_refusal "a text that one rank lacks" 4 'rank 1: & t.txt & No such file'
finish
