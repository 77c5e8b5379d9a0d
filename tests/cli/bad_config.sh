#!/bin/sh
# Command lines and configurations that are not understood are refused, never half read: a number
# is a number, a misspelt key gets a suggestion. Row L13 of tests/CASES.md (the kind: "1e3" read as
# 1, "abc" as 0, an unknown key ignored), and L12: a run needs no mpirun.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
t=$dir/t.yaml
plain "$t"

expect "the checks of these tests can fail" sh "$SOURCE/tests/cli/lib.sh"

# L12: without mpirun; help and version need no MPI at all.
ends_well "L12 without mpirun" 0 train "$t" train.steps=1
ends_well "L12 help" 0 help
ends_well "L12 version" 0 --version
ends_well "L12 presets" 0 presets
ends_well "L12 help of a command" 0 train --help
direct
same "no command: usage, status 2" "$status" 2
# From here on a start without mpirun goes without Open MPI's daemon, which takes longest.
export OMPI_MCA_ess_singleton_isolated=1

# --dry-run stops a mistake that is not seen before it starts a training.
argument() {
    what="L13 $1" patterns=$2
    shift 2
    refused "$what" 3 "$patterns" 0 train "$t" --dry-run "$@"
}

# file WHAT PATTERNS LINES...: a configuration file of these lines.
file() {
    what="L13 file: $1" patterns=$2
    shift 2
    printf '%s\n' "$@" >"$dir/f.yaml"
    refused "$what" 3 "^narrows: $dir/f.yaml:?.* & $patterns" 0 train "$dir/f.yaml" --dry-run
}

# Commands and options
refused "unknown command" 2 "no command 'tarin' & did you mean 'train'" 0 tarin
refused "unknown command unlike any" 2 "no command 'xyzzy' & narrows help" 0 xyzzy
refused "unknown option" 2 "--dry-rum & --dry-run" 0 train "$t" --dry-rum
refused "option twice" 2 "--ranks & (twice|once)" 0 train "$t" --dry-run --ranks 1 --ranks 2
refused "option without its value" 2 "--ranks needs a value" 0 train "$t" --dry-run --ranks
refused "value for a switch" 2 "--dry-run takes no value" 0 train "$t" --dry-run=yes
refused "ranks 0" 2 "--ranks & '?0'? & 1" 0 train "$t" --dry-run --ranks 0
refused "ranks 1e3" 2 "--ranks & 1e3" 0 train "$t" --dry-run --ranks 1e3
refused "no configuration" 2 'needs CONFIG & --help' 0 train
refused "two configurations" 2 "CONFIG" 0 train "$t" "$t"
refused "missing configuration" 4 "$dir/none.yaml & No such file" 0 train "$dir/none.yaml"
refused "a folder as configuration" 4 "$dir & directory" 0 train "$dir"
refused "a program as configuration" 4 "larger than & right file" 0 train "$NARROWS"

# Keys and values on the command line
argument "unknown key" 'model.colour is not a key' model.colour=red
argument "misspelt key" 'train.stesp is not a key & did you mean train.steps' train.stesp=5
argument "key of another section" 'model.lr is not a key & did you mean train.lr' model.lr=1
argument "key without section" 'steps is not a key & train.steps' steps=5
argument "key in capitals" 'TRAIN.STEPS is not a key' TRAIN.STEPS=5
argument "key twice" 'train.steps is given twice' train.steps=5 train.steps=6
argument "1e3 for a whole number" "train.steps: '1e3' & whole number & 1 to" train.steps=1e3
argument "abc for a whole number" "train.steps: 'abc' & whole number" train.steps=abc
argument "1.0 for a whole number" "train.steps: '1.0' & whole number" train.steps=1.0
argument "0x10 for a whole number" "train.steps: '0x10' & whole number" train.steps=0x10
argument "a blank behind a number" "train.steps: '5 ' & whole number" 'train.steps=5 '
argument "a unit behind a number" "train.steps: '5k' & whole number" train.steps=5k
argument "a plus sign" "train.steps: '\+5'" train.steps=+5
argument "zero steps" "train.steps & 0 & 1 to" train.steps=0
argument "negative" "train.batch & -8 & 1 to" train.batch=-8
argument "2^40" "train.batch & 1099511627776 & 1 to 16777216" train.batch=1099511627776
argument "2^63" "train.seed & 9223372036854775808" train.seed=9223372036854775808
argument "2^64 + 1 that wraps to 1" "train.batch & 18446744073709551617" \
    train.batch=18446744073709551617
argument "empty value" 'train.steps has no value' train.steps=
argument "empty text" "data.train has no value & data.train='\"\"'" data.train=
argument "nan" "train.lr: 'nan' & number" train.lr=nan
argument "inf" "train.lr: 'inf' & number" train.lr=inf
argument "infinite by its exponent" "train.lr & 1e999" train.lr=1e999
argument "negative rate" "train.lr & -1e-3 & 0 to" train.lr=-1e-3
argument "comma for a point" "train.lr: '0,001'" train.lr=0,001
argument "beta 1" "train.beta2 & 1 & 0.999999" train.beta2=1
argument "maybe for a switch" "run.hash & 'maybe' & on & off" run.hash=maybe
argument "misspelt choice" "parallel.strategy: 'btb' & did you mean btp" parallel.strategy=btb
argument "unknown choice" "train.precision: 'fp16' & fp32, bf16, fp64" train.precision=fp16
argument "unknown preset" "model.preset & 13g & presets" model.preset=13g
argument "warm-up beyond the end" 'train.warmup 50 & train.steps 20 & train.warmup=-1' \
    train.warmup=50
long=$(printf '%0600d' 0)
argument "text of 600 bytes" 'run.dir & 600 bytes & 511' "run.dir=$long"
argument "text that is not UTF-8" 'sample.prompt & UTF-8' "sample.prompt=$(printf '\351')"

# Files
file "misspelt key with its line" "f.yaml:3: & train.stesp & train.steps" "train:" "  batch: 8" \
    "  stesp: 5"
file "key outside its section" "f.yaml:1: & train.steps & section" "train.steps: 5"
file "misspelt section" "f.yaml:1: & modle is not a section & model" "modle:" "  width: 8"
file "key twice" "f.yaml:3: & train.steps is given twice & line 2" "train:" "  steps: 5" "  steps: 6"
file "section twice" "f.yaml:3: & section train is given twice" "train:" "  steps: 5" "train:" \
    "  batch: 6"
file "1e3 for a whole number" "f.yaml:2: & train.steps: '1e3'" "train:" "  steps: 1e3"
file "empty value" "f.yaml:2: & train.steps has no value" "train:" "  steps:"
file "null" "f.yaml:2: & train.steps has no value" "train:" "  steps: ~"
file "nan" "f.yaml:2: & train.lr: '.nan'" "train:" "  lr: .nan"
file "a list" "f.yaml:2: & train.steps & a list" "train:" "  steps: [1, 2]"
file "a mapping" "f.yaml:[23]: & train.steps & a mapping" "train:" "  steps:" "    a: 1"
file "a tab" "f.yaml:2: & YAML" "train:" "$(printf '\tsteps: 5')"
file "two documents" "f.yaml:[34]: & second document" "train:" "  steps: 5" "---" "train:" "  steps: 6"
file "an alias" "f.yaml:[23]: & (anchor|alias)" "train:" "  steps: &a 5" "  batch: *a"
file "only a comment" "no content" "# nothing"
file "plain text" "f.yaml:1: & section" "hello world"
: >"$dir/f.yaml"
refused "L13 file: empty" 3 "$dir/f.yaml & no content" 0 train "$dir/f.yaml" --dry-run
printf 'train:\n  steps: 5\0\n' >"$dir/f.yaml"
refused "L13 file: a zero byte" 3 "$dir/f.yaml & (text|YAML)" 0 train "$dir/f.yaml" --dry-run

# Written the strict way the same things are taken.
ends_well "L13 what is right is taken" 0 train "$t" --dry-run train.steps=1000 train.lr=1e-3 \
    train.lr_min=0 train.seed=9223372036854775807 data.validation='""' 'sample.prompt=a = b'

# Output that cannot be written is a failure.
if [ -c /dev/full ]; then
    for words in "presets" "train --help" "config"; do
        code=0
        # shellcheck disable=SC2086 # words
        timeout "$LIMIT" "$NARROWS" $words >/dev/full 2>"$dir/err" </dev/null || code=$?
        : >"$dir/out"
        status=$code
        check_refusal "full disk under the output of $words" 4 ''
    done
fi
# A mistake that every rank makes is told once.
if [ "$MPIRUN" != no ]; then
    refused "one message for 3 ranks" 3 'train.stesp & train.steps' 3 train "$t" train.stesp=5
    refused "one usage message for 3 ranks" 2 'CONFIG' 3 train
fi
finish
