#!/bin/sh
# Run folders that cannot be written, and disks that fill up: the path and the cause are named, the
# run ends with a failure, what was good before stays, and nothing half written looks valid.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
t=$dir/t.yaml
plain "$t"

mounted=
undo() {
    for mount in $mounted; do
        umount "$mount"
    done
}

# small_disk NAME OPTIONS: a file system of its own at $dir/NAME; fails where that is not allowed.
small_disk() {
    mkdir -p "$dir/$1"
    mount -t tmpfs -o "$2" narrows-test "$dir/$1" 2>/dev/null || return 1
    mounted="$mounted $dir/$1"
}

bad() {
    what=$1 patterns=$2
    shift 2
    refused "$what" 4 "$patterns" 2 train "$t" parallel.tp=2 train.steps=4 "$@"
}

sums() { (cd "$1" && find . -type f -exec sha256sum {} + | sort); }

# The folder
: >"$dir/file"
bad "a file in the way" "$dir/file & Not a directory" run.dir="$dir/file"
bad "a file in the way of a folder above" "$dir/file & Not a directory & run.dir" \
    run.dir="$dir/file/sub"
mkdir -p "$dir/odd/metrics.jsonl"
bad "a folder in place of the metrics" "metrics.jsonl & Is a directory" run.dir="$dir/odd"
mkdir -p "$dir/odd2/config.yaml"
bad "a folder in place of the configuration" "config.yaml & Is a directory" run.dir="$dir/odd2"
bad "a folder that cannot be made" "/proc/none & run.dir" run.dir=/proc/none
if small_disk fixed size=1m,ro; then
    bad "a disk that is read only" "$dir/fixed/run & Read-only & run.dir" run.dir="$dir/fixed/run"
else
    echo "left out: a disk that is read only (mount is not allowed here)"
fi
mkdir -p "$dir/closed"
chmod 555 "$dir/closed"
if [ "$(id -u)" -ne 0 ]; then
    bad "a folder without rights" "$dir/closed/run & Permission denied & run.dir" \
        run.dir="$dir/closed/run"
elif command -v setpriv >/dev/null 2>&1; then
    chmod 755 "$dir"
    code=0
    setpriv --reuid 65534 --regid 65534 --clear-groups "$NARROWS" train "$t" \
        run.dir="$dir/closed/run" >"$dir/out" 2>"$dir/err" || code=$?
    status=$code
    check_refusal "a folder without rights" 4 "$dir/closed/run & Permission denied & run.dir"
else
    echo "left out: a folder without rights (this is root, without setpriv)"
fi

# A run that is there already
ends_well "a first run" 2 train "$t" parallel.tp=2 train.steps=4 run.save=on run.dir="$dir/old"
expect "it left its weights" test -s "$dir/old/final/model.safetensors"
before=$(sums "$dir/old")
again() {
    refused "$1" 3 "$dir/old already holds a run & run.dir & run.overwrite=on" \
        2 train "$t" parallel.tp=2 run.dir="$dir/old" run.overwrite=off train.steps=2
}
again "an existing run is refused"
same "and is as it was" "$before" "$(sums "$dir/old")"
mv "$dir/old/metrics.jsonl" "$dir/metrics"
again "weights without metrics are a run, too"
mv "$dir/metrics" "$dir/old/metrics.jsonl"
same "and are as they were" "$before" "$(sums "$dir/old")"
ends_well "run.overwrite=on replaces it" 2 train "$t" parallel.tp=2 run.dir="$dir/old" \
    train.steps=2 train.seed=2
same "only the new run's steps are there" "$(grep -c '"grad_norm"' "$dir/old/metrics.jsonl")" 2
expect "no weights of the old run beside them" test ! -e "$dir/old/final" -a ! -e "$dir/old/best"

# Full disks. Three bests: validations after steps 2, 4, 6 of a model that learns.
full_run() {
    patterns=$1
    shift
    refused "$what" 4 "$patterns" 2 train "$t" parallel.tp=2 train.steps=6 \
        run.save=on "$@"
}
mkdir "$dir/full"
ln -s /dev/full "$dir/full/metrics.jsonl"
what="metrics on a full disk"
full_run "$dir/full/metrics.jsonl & No space left" run.dir="$dir/full" train.eval_every=2
what="metrics on a full disk, full rank"
full_run "$dir/full/metrics.jsonl & No space left" run.dir="$dir/full" train.eval_every=2 \
    model.layer=full

ends_well "the same with room" 2 train "$t" parallel.tp=2 train.steps=6 train.eval_every=2 \
    run.save=on run.dir="$dir/room"
same "which makes three bests" "$(grep -c ' best$' "$dir/out")" 3
ends_well "with one validation" 2 train "$t" parallel.tp=2 train.steps=6 run.save=on \
    run.dir="$dir/once"
weights=$(du -sk "$dir/room/best" | cut -f 1)

# disk WHAT NAME KIB PATTERN WORDS...: the run on a disk of that size.
disk() {
    what=$1 name=$2 size=$3 pattern=$4
    shift 4
    if ! small_disk "$name" "size=${size}k"; then
        echo "left out: $what (mount is not allowed here)"
        return 1
    fi
    full_run "$dir/$name/run/$pattern & No space left" run.dir="$dir/$name/run" "$@"
    run=$dir/$name/run
    expect "$what: no folder that is not complete" \
        test "$(find "$run" -name '*.partial*' | wc -l)" -eq 0
}
if disk "no room for the first best" disk1 $((weights / 2 + 40)) best train.eval_every=2; then
    expect "no best" test ! -e "$run/best"
    expect "no final" test ! -e "$run/final"
fi
if disk "room for one best" disk2 $((weights * 3 / 2 + 40)) best train.eval_every=2; then
    expect "the first best is kept" test -s "$run/best/model.safetensors"
    same "and is complete" "$(stat -c %s "$run/best/model.safetensors")" \
        "$(stat -c %s "$dir/room/best/model.safetensors")"
    same "with all its files" "$(ls "$run/best")" "$(ls "$dir/room/best")"
fi
if disk "no room for final" disk3 $((weights * 3 / 2 + 40)) final train.eval_every=0; then
    same "the best is kept, bit by bit" "$(sums "$run/best" | grep safetensors)" \
        "$(sums "$dir/once/best" | grep safetensors)"
    expect "no final" test ! -e "$run/final"
fi
if small_disk none size=64k; then
    dd if=/dev/zero of="$dir/none/rest" bs=1k 2>/dev/null || true
    mkdir "$dir/none/run" 2>/dev/null || true
    what="no room for the configuration"
    full_run "$dir/none/run.* & disk may be full|No space left" run.dir="$dir/none/run"
fi
finish
