#!/bin/sh
# A sitting: everything that is to be known about speed, memory and correctness on the GPUs of this
# machine, each figure beside its peer and its floor, measured on the same GPU in the same run.
#
#   OUT=folder validation/peers/sitting.sh
#
# OUT      where logs go, one a part, and the tables, sitting.md, that are printed last (10 files)
# PARTS    what is run, in this order, each with seconds it may take behind a colon, or its default:
#            warm        compiles PyTorch's models on the last GPU of several, beside what follows
#            correct     operations, a step, repetition, 300 steps against ref
#            step        one GPU, whole steps: full rank, CoLA, SVD; PyTorch compiled
#            layers      two GPUs, decoder layers at d 4096 and d 8192; PyTorch; parts of BTP
#            slow        layers at d 4096 with NCCL_P2P_DISABLE=1
#            pipeline    two GPUs: orders of a pipeline, replicas, ZeRO-1: hashes, waiting
#            memory      memory foretold and seen
#            largest     the largest micro-batch of each strategy and recomputation, and one more
#            kernels     what moves memory, beside a copy
#            sanitize    operations under compute-sanitizer
# ROUNDS   how often narrows and PyTorch take turns (2)
# SMOKE=1  tiny shapes on the CPU, to see that all of it runs: its figures mean nothing
# NARROWS, PYTHON  the programs (build/narrows, python3)
#
# What fails or has no time left is listed behind the tables, and the next run follows; the status
# is 1 then. PyTorch's compiled code stays in TORCHINDUCTOR_CACHE_DIR (a folder in /tmp), where a
# second sitting finds it.
set -eu
export LC_ALL=C
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
top=$(CDPATH='' cd -- "$here/../.." && pwd)
NARROWS=${NARROWS:-$top/build/narrows}
PYTHON=${PYTHON:-python3}
SMOKE=${SMOKE:-}
ROUNDS=${ROUNDS:-2}
if [ -z "${OUT:-}" ]; then
    echo "sitting.sh: set OUT to the folder where logs go" >&2
    exit 2
fi
mkdir -p "$OUT"
OUT=$(CDPATH='' cd -- "$OUT" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/narrows-sitting.XXXXXX")
export NCCL_NVLS_ENABLE="${NCCL_NVLS_ENABLE:-0}" # NVLink multicast off
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-/tmp/narrows-inductor}"
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-/tmp/narrows-triton}"
export PATH="$PATH:/usr/local/cuda/bin" # compute-sanitizer
export NARROWS_SITTING="$work" # by which strays are known
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
warm_pid='' sampler_pid='' failures=0
first_gpu=${CUDA_VISIBLE_DEVICES:-0}
first_gpu=${first_gpu%%,*}

# Ends what a command that was stopped has left running: it would slow down all that follows.
strays() {
    for environ in /proc/[0-9]*/environ; do
        ! tr '\0' '\n' 2>/dev/null <"$environ" | grep -qxF "NARROWS_SITTING=$work" || {
            pid=${environ#/proc/}
            kill -KILL "${pid%/environ}" 2>/dev/null || true
        }
    done
}

leave() {
    [ -z "$warm_pid" ] || kill "$warm_pid" 2>/dev/null || true
    [ -z "$sampler_pid" ] || kill "$sampler_pid" 2>/dev/null || true
    strays
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 1' HUP INT TERM

if [ -n "$SMOKE" ]; then
    gpus=2 backend=ref precision=fp32 smoke=--cpu-smoke
    export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive OMPI_MCA_rmaps_base_oversubscribe=1
else
    gpus=$( (nvidia-smi -L 2>/dev/null || true) | grep -c '^GPU ' || true)
    backend=gpu precision=bf16 smoke=
fi
torch=yes
"$PYTHON" -c 'import torch' 2>/dev/null || torch=no

# ---- tables ----

: >"$work/table"
row() {
    printf '%s\n' "$*" >>"$work/table"
}

# title TEXT COLUMNS: a table begins.
title() {
    row ""
    row "$1"
    row ""
    row "| $2 |"
    row "|$(printf '%s' "$2" | tr -cd '|' | sed 's/|/ --- |/g') --- |"
}

# What did not work is listed last.
: >"$work/misses"
miss() {
    failures=$((failures + 1))
    printf -- '- %s: %s\n' "$part" "$*" >>"$work/misses"
}

# ---- one run ----

part=none log=/dev/null deadline=0

left() {
    echo $((deadline - $(date +%s)))
}

# try WHAT SECONDS COMMAND...: its output in $work/out and in the part's log. Fails when it does.
try() {
    what=$1 seconds=$2
    shift 2
    : >"$work/out"
    rest=$(left)
    if [ "$rest" -lt 5 ]; then
        miss "$what: no time left"
        return 1
    fi
    [ "$seconds" -lt "$rest" ] || seconds=$rest
    code=0 began=$(date +%s)
    printf '\n== %s: %s\n' "$what" "$*" >>"$log"
    timeout -k 10 "$seconds" "$@" >"$work/out" 2>&1 </dev/null || code=$?
    case $code in 124 | 137) strays ;; esac
    tr '\r' '\n' <"$work/out" >>"$log"
    printf '== status %s after %s s\n' "$code" "$(($(date +%s) - began))" >>"$log"
    return "$code"
}

# need WHAT SECONDS COMMAND...: the same; a failure is named.
need() {
    try "$@" && return 0
    [ "${rest:-0}" -lt 5 ] || miss "$1: status ${code:-?}, $(grep -v '^$' "$work/out" |
        tail -n 1 | cut -c 1-200)"
    return 1
}

one() {
    what=$1 seconds=$2
    shift 2
    need "$what" "$seconds" env CUDA_VISIBLE_DEVICES="$first_gpu" "$NARROWS" "$@"
}

two() {
    what=$1 seconds=$2
    shift 2
    need "$what" "$seconds" "$NARROWS" launch -n 2 -- "$@"
}

pair() {
    [ "$gpus" -ge 2 ] && return 0
    miss "left out: $gpus GPU(s)"
    return 1
}

# ---- configurations ----

# config FILE: layers FILE WIDTH HEADS FFN LAYERS SEQ BATCH, then train keys.
config() {
    cat >"$1" <<END
model:
  layer: full
  width: $2
  heads: $3
  ffn: $4
  layers: $5
data:
  train: $top/examples/data/tinyshakespeare/val.txt
  validation: $top/examples/data/tinyshakespeare/val.txt
train:
  precision: $precision
  seq: $6
  batch: $7
  seed: 1
  eval_every: 0
  eval_sequences: 2
parallel:
  layout_exact: off
  recompute: none
run:
  backend: $backend
  dir: $work/run
  overwrite: on
  save: off
END
}
if [ -n "$SMOKE" ]; then
    config "$work/one" 64 4 176 2 32 4
    config "$work/d4096" 64 4 96 2 32 2
    config "$work/d8192" 64 4 96 2 32 2
    config "$work/pipe" 64 4 96 4 32 8
    rank=16 rank4096=16 rank8192=16 vocab=320 repeats=2 micro=1 shapes=d4096
else
    config "$work/one" 2048 32 5504 24 2048 8
    config "$work/d4096" 4096 32 11008 4 2048 4
    config "$work/d8192" 8192 64 22016 2 2048 2
    config "$work/pipe" 1024 16 2752 8 1024 16
    rank=512 rank4096=1024 rank8192=2048 vocab=32000 repeats=15 micro=2 shapes='d4096 d8192'
fi

# ---- what bench prints ----

# name OF: "(as configured)" and overrides in words for people.
names() {
    sed "s/(as configured)/$1/; s/model\.layer=//; s/model\.rank=[0-9]*//; s/parallel\.//g; \
        s/strategy=//; s/  */ /g; s/ |/ |/g"
}

# floors LABEL BASE: rows of bench's table of floors.
floors() {
    awk -v label="$1" '
        /copy GB\/s$/ { on = 1; next }
        on && $1 ~ /^[0-9.]+$/ && $3 ~ /x$/ {
            name = ""
            for (i = 11; i <= NF; i++) name = name " " $i
            printf "| %s |%s | %s | %s | %s | %s | %s | %s | %s | %s |\n", label, name, $1, $2,
                $3, $4, $6, $7, $8, $9
        }' "$work/out" | names "$2" >>"$work/table"
}
floor_columns='run | model | ms | floor | ms / floor | floor, messages hidden | products'
floor_columns="$floor_columns | attention | moves | messages"

# rows LABEL BASE: rows of bench layer's first table.
layer_rows() {
    awk -v label="$1" '
        /wait f +wait b$/ { on = 1; next }
        on && $5 !~ /x$/ { on = 0 }
        on {
            name = ""
            for (i = 12; i <= NF; i++) name = name " " $i
            printf "| %s |%s | %s | %s | %s | %s | %s, %s | %s, %s | %s, %s |\n", label, name, $1,
                $2, $3, $5, $6, $7, $8, $9, $10, $11
        }' "$work/out" | names "$2" >>"$work/table"
}
layer_columns='run | strategy | ms | forward | backward | speed | elements a token and block'
layer_columns="$layer_columns | messages, ms a block | waited, ms a block"

# Floors are taken in the first round alone, for the time they cost.
floor_at() {
    [ "$1" -gt 1 ] || echo --floor
}

# ---- parts ----

# The attention that PyTorch takes: it has no deterministic backward of cuDNN's.
sdpa_of() {
    case $1 in
    *--deterministic) echo flash ;;
    *) echo cudnn ;;
    esac
}

# torch.compile takes a minute or three a model.
part_warm() {
    if [ "$torch" = no ] || [ "$gpus" -lt 2 ] || [ -n "$SMOKE" ]; then
        row ""
        row "warm: nothing to do (torch: $torch, GPUs: $gpus)"
        return
    fi
    for core in full cola svd "full --deterministic" "cola --deterministic"; do
        # shellcheck disable=SC2086 # words
        env -u NARROWS_SITTING CUDA_VISIBLE_DEVICES=$((gpus - 1)) timeout -k 10 200 \
            "$PYTHON" "$here/llama_gpu.py" step --core-type $core --sdpa "$(sdpa_of "$core")" \
            --repeats 1 || true
    done >"$work/warm" 2>&1 </dev/null &
    warm_pid=$!
}

# Figures are not taken while something else runs.
warmed() {
    [ -n "$warm_pid" ] || return 0
    asked=$(date +%s)
    wait "$warm_pid" || true
    warm_pid='' deadline=$((deadline + $(date +%s) - asked))
    cat "$work/warm" >>"$log"
}

part_step() {
    warmed
    title "One GPU, whole steps; by default PyTorch has run.deterministic=off train.pure_bf16=on" \
        "$floor_columns"
    cola="model.layer=cola model.rank=$rank"
    others="$cola; model.layer=svd model.rank=$rank"
    [ -n "$SMOKE" ] || for words in run.deterministic=off \
        "run.deterministic=off train.pure_bf16=on"; do
        others="$others; $words; $cola $words"
    done
    set -- bench step "$work/one" model.vocab=$vocab -r 6 --compare "$others"
    i=1
    while [ "$i" -le "$ROUNDS" ]; do
        # shellcheck disable=SC2046 # an option or nothing
        if one "narrows $i" 340 "$@" $(floor_at "$i"); then
            if [ "$i" -eq 1 ]; then floors "narrows 1" "full rank"; else step_rows "narrows $i"; fi
        fi
        for core in full cola svd "full --deterministic" "cola --deterministic"; do
            [ "$torch" = yes ] || break
            case $core in
            svd | *--deterministic) [ "$i" -eq 1 ] || continue ;;
            esac
            # shellcheck disable=SC2086 # words; smoke may be nothing
            need "PyTorch $core $i" 200 env CUDA_VISIBLE_DEVICES="$first_gpu" \
                "$PYTHON" "$here/llama_gpu.py" step --core-type $core \
                --sdpa "$(sdpa_of "$core")" --repeats $repeats $smoke || continue
            ms=$(sed -n "s/^${core%% *}: \([0-9.]*\) ms (best.*/\1/p" "$work/out")
            row "| PyTorch $i | $core | $ms | | | | | | | |"
        done
        i=$((i + 1))
    done
    [ "$torch" = yes ] || row "| peer: no torch | | | | | | | | | |"
}

# step_rows LABEL: milliseconds alone, in the columns of floors.
step_rows() {
    awk -v label="$1" '
        /pp wait$/ { on = 1; next }
        on && $5 !~ /x$/ { on = 0 }
        on {
            name = ""
            for (i = 11; i <= NF; i++) name = name " " $i
            printf "| %s |%s | %s | | | | | | | |\n", label, name, $1
        }' "$work/out" | names "full rank" >>"$work/table"
}

# stack SHAPE RANK LABEL: our layers and PyTorch's, in turn.
stack() {
    shape=$1 r=$2 label=$3
    set -- bench layer "$work/$shape" parallel.tp=2 -r "$repeats" --compare \
        "model.layer=cola model.rank=$r parallel.strategy=vanilla; model.layer=cola \
model.rank=$r parallel.strategy=btp; model.layer=svd model.rank=$r parallel.strategy=btp"
    title "Layers, $label" "$layer_columns"
    i=1
    while [ "$i" -le "$ROUNDS" ]; do
        # shellcheck disable=SC2046 # an option or nothing
        if two "$label $i" 150 "$@" $(floor_at "$i"); then
            layer_rows "narrows $i" "full rank"
            [ "$i" -gt 1 ] || cp "$work/out" "$work/floors"
        fi
        # shellcheck disable=SC2086 # smoke may be nothing
        if [ "$torch" = yes ] && need "PyTorch, $label $i" 120 "$PYTHON" "$here/llama_gpu.py" \
            stack --preset "$shape" --repeats "$repeats" $smoke; then
            awk -v label="PyTorch $i" '/ ms, .* a layer, / {
                for (i = 3; $i != "ms,"; i++);
                printf "| %s | %s | %s | | | | | | |\n", label, $(i - 2), $(i - 1)
            }' "$work/out" >>"$work/table"
        fi
        i=$((i + 1))
    done
    [ "$torch" = yes ] || row "| peer: no torch | | | | | | | | |"
    if [ -s "$work/floors" ]; then
        cp "$work/floors" "$work/out"
        rm "$work/floors"
        title "Floors of these layers, $label" "$floor_columns"
        floors "narrows 1" "full rank"
    fi
}

rank_of() {
    if [ "$1" = d4096 ]; then echo $rank4096; else echo $rank8192; fi
}

part_layers() {
    pair || return 0
    warmed
    for s in $shapes; do
        stack "$s" "$(rank_of "$s")" "$s"
    done
    title "What each part of BTP is worth, d4096" "$layer_columns"
    set -- "$work/d4096" parallel.tp=2 model.layer=cola model.rank="$rank4096" \
        parallel.strategy=btp
    variants=''
    for change in overlap=off overlap=all norm=sync norm=online_local grouping=off \
        recompute=bottleneck recompute=block; do # some builds lack the first
        ! "$NARROWS" train "$@" --dry-run --ranks 2 parallel.$change >/dev/null 2>&1 ||
            variants="$variants${variants:+; }parallel.$change"
    done
    ! two "parts of BTP" 120 bench layer "$@" -r "$repeats" --compare "$variants" ||
        layer_rows narrows "BTP, nothing changed"
}

part_slow() {
    pair || return 0
    warmed
    export NCCL_P2P_DISABLE=1
    stack d4096 $rank4096 "d4096, NCCL_P2P_DISABLE=1"
    unset NCCL_P2P_DISABLE
}

hashes() {
    tr '\r' '\n' <"$work/out" | sed 's/^.*hash after/hash after/' | grep '^hash after' || true
}

# trained WHAT WORDS...: three steps, twice; sets $first, prints whether both had the same weights.
trained() {
    what=$1 first='' told='did not run'
    shift
    if two "$what" 60 train "$work/pipe" model.layer=cola train.steps=3 run.hash=on "$@"; then
        first=$(hashes)
        if two "$what again" 60 train "$work/pipe" model.layer=cola train.steps=3 run.hash=on "$@"
        then
            told='not the same'
            [ -z "$first" ] || [ "$(hashes)" != "$first" ] || told=same
        fi
    fi
}

part_pipeline() {
    pair || return 0
    warmed
    micro=train.micro_batch=$micro
    title "Two runs of three steps" "layout | weights of both"
    for order in gpipe 1f1b "interleaved parallel.virtual_stages=2" zb-h1; do
        # shellcheck disable=SC2086 # words
        trained "PP 2, ${order%% *}" parallel.pp=2 "$micro" parallel.schedule=$order
        row "| PP 2, ${order%% *} | $told |"
    done
    trained "DP 2" parallel.dp=2 "$micro"
    row "| DP 2 | $told |"
    plain=$first
    trained "DP 2, ZeRO-1" parallel.dp=2 "$micro" parallel.zero=1
    row "| DP 2, ZeRO-1 | $told |"
    if [ -n "$plain" ] && [ "$plain" = "$first" ]; then told=same; else told='not the same'; fi
    row "| DP 2 and ZeRO-1 beside it | $told |"
    title "Steps of two GPUs" \
        "layout | ms | speed | waited for replicas, ms | for stages, ms | of the step"
    ! two "steps" 180 bench step "$work/pipe" model.layer=cola parallel.pp=2 "$micro" \
        parallel.schedule=gpipe -r 6 --compare "parallel.schedule=1f1b; \
parallel.schedule=interleaved parallel.virtual_stages=2; parallel.schedule=zb-h1; \
parallel.pp=1 parallel.schedule=1f1b parallel.dp=2; \
parallel.pp=1 parallel.schedule=1f1b parallel.dp=2 parallel.zero=1" || awk '
        /pp wait$/ { on = 1; next }
        on && $5 !~ /x$/ { on = 0 }
        on {
            name = ""
            for (i = 11; i <= NF; i++) name = name " " $i
            printf "|%s | %s | %s | %s | %s | %.0f %% |\n", name, $1, $5, $9, $10,
                100 * ($9 + $10) / $1
        }' "$work/out" | names "pp=2 schedule=gpipe" >>"$work/table"
    for order in gpipe 1f1b "interleaved -v 2" zb-h1; do
        # shellcheck disable=SC2086 # words
        "$NARROWS" plan schedule -p 2 -m 8 --order $order >"$work/out" 2>&1 || continue
        row ""
        row "${order%% *}: $(grep '^bubble' "$work/out" | tr -s ' ') of a step by the plan"
    done
}

# ---- memory ----

mib() {
    awk '{ n = $1; if ($2 == "GiB") n *= 1024; if ($2 == "KiB") n /= 1024; printf "%.1f", n }'
}

# Samples the first GPU's memory in use, MiB, until sampled.
sample() {
    [ -z "$SMOKE" ] || return 0
    (while :; do
        nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits
        sleep 0.3
    done) >"$work/used" 2>/dev/null &
    sampler_pid=$!
}

# The most that was seen; on the CPU what bench says itself.
sampled() {
    if [ -n "$SMOKE" ]; then
        sed -n 's/^peak memory of this process \([0-9.]*\) MiB.*/\1/p' "$work/out"
        return
    fi
    kill "$sampler_pid" 2>/dev/null || true
    sort -n "$work/used" | tail -n 1
}

# seen LABEL WORDS...: foretold and seen.
seen() {
    label=$1
    shift
    one "dry run, $label" 60 train "$work/one" model.vocab=$vocab --dry-run "$@" || return 0
    foretold=$(sed -n 's/^  in all  *//p' "$work/out" | mib)
    sample
    ran=yes
    one "$label" 120 bench step "$work/one" model.vocab=$vocab -r 2 "$@" || ran=no
    used=$(sampled)
    [ "$ran" = yes ] || return 0
    ms=$(awk '/\(as configured\)$/ { print $1; exit }' "$work/out")
    sampler_pid=''
    row "| $label | $foretold | $used | $(awk -v a="$used" -v b="$foretold" \
        'BEGIN { printf "%.3f", (b > 0 ? a / b : 0) }') | $ms |"
}

part_memory() {
    warmed
    title "Memory of one GPU, MiB" \
        "model | foretold | seen | seen / foretold | ms a step"
    seen "full rank, none"
    for mode in none elementwise bottleneck block; do
        seen "CoLA BTP, $mode" model.layer=cola model.rank=$rank parallel.recompute=$mode
    done
}

part_largest() {
    warmed
    limit=''
    [ -z "$SMOKE" ] || limit='--memory 6MiB'
    title "The largest micro-batch" "layers, strategy, recompute | foretold | it | one more"
    # shellcheck disable=SC2086 # limit: words or nothing
    one "plan" 120 plan memory "$work/one" model.vocab=$vocab model.layer=cola model.rank=$rank \
        $limit || return 0
    cp "$work/out" "$work/plan"
    while read -r layer strategy recompute _; do
        case $layer in
        full) largest full "$strategy" "$recompute" model.layer=full ;;
        cola) largest cola "$strategy" "$recompute" model.layer=cola model.rank=$rank \
            parallel.strategy="$strategy" ;;
        esac
    done <"$work/plan"
}

# largest LAYERS STRATEGY RECOMPUTE WORDS...
largest() {
    n=$(awk -v a="$1" -v b="$2" -v c="$3" '$1 == a && $2 == b && $3 == c { print $4 }' \
        "$work/plan")
    label="$1 $2 $3" mode=$3
    shift 3
    if [ "${n:-0}" -lt 1 ] 2>/dev/null || [ -z "$n" ]; then
        miss "$label: no micro-batch in the plan"
        return 0
    fi
    told=
    for k in "$n" $((n + 1)); do
        if try "$label, micro-batch $k" 120 env \
            CUDA_VISIBLE_DEVICES="$first_gpu" "$NARROWS" bench step "$work/one" \
            model.vocab=$vocab -r 1 train.batch="$k" parallel.recompute="$mode" "$@"; then
            told="$told | runs, $(awk '/\(as configured\)$/ { print $2; exit }' "$work/out") tok/s"
        else
            told="$told | $(grep '^narrows: ' "$work/out" | head -n 1 | cut -c 1-120)"
        fi
    done
    row "| $label | $n$told |"
}

# ---- kernels, correctness ----

part_kernels() {
    warmed
    title "Operations that move memory" "operation | MB | ms | GB/s | of a copy"
    ! one kernels 120 bench kernels "$work/one" model.vocab=$vocab -r 5 model.layer=cola \
        model.rank=$rank || awk '/^  [a-z].*[0-9]%$/ {
            name = $1
            for (i = 2; i <= NF - 4; i++) name = name " " $i
            sub("%", " %", $NF)
            printf "| %s | %s | %s | %s | %s |\n", name, $(NF - 3), $(NF - 2), $(NF - 1), $NF
        }' "$work/out" >>"$work/table"
}

last_line() {
    grep -v '^$' "$work/out" | tail -n 1 | cut -c 1-120 | tr -d '|'
}

# held WHAT SECONDS COMMAND...: a row with its last line.
held() {
    if try "$@"; then
        row "| $1 | $(last_line) |"
    else
        told='no time left'
        [ "$rest" -lt 5 ] || told="status $code, $(last_line)"
        [ "$rest" -lt 5 ] || miss "$1: status $code"
        row "| **$1** | $told |"
    fi
}

part_correct() {
    title "Correctness on $backend" "check | its last line"
    steps=300 quick='' some=''
    [ -z "$SMOKE" ] || steps=3 quick=--quick some='--only rms_'
    # shellcheck disable=SC2086 # words or nothing
    {
        held "validate ops" 150 "$NARROWS" validate ops --backend $backend $quick $some
        held "validate step" 150 "$NARROWS" validate step --backend $backend $quick
        held "validate repeat" 150 "$NARROWS" validate repeat --backend $backend $quick
        held "validate train" 200 "$NARROWS" validate train --backend $backend --steps $steps $quick
    }
}

# Eight at once, as most of it is the host's work, and each may take ten GiB of the GPU. Kernels of
# libraries are left alone: under racecheck those of cuBLASLt take minutes.
part_sanitize() {
    warmed
    title "compute-sanitizer: own kernels in both types" \
        "tool, operations | errors | operations in bounds"
    command -v compute-sanitizer >/dev/null 2>&1 || {
        row "| not here | | |"
        return
    }
    cat >"$work/check" <<END
code=0 left=\$(($deadline - \$(date +%s)))
if [ "\$left" -lt 5 ]; then
    echo "== no time left" >"$work/\$1.\$2"
    exit 0
fi
timeout -k 5 "\$left" compute-sanitizer --tool "\$1" --error-exitcode 9 \\
    $(printf -- '--kernel-name-exclude kns=%s ' nvjet cutlass xmma gemm gemv splitK cudnn cublas) \\
    "$NARROWS" validate ops --backend $backend --only "\$2" >"$work/\$1.\$2" 2>&1 || code=\$?
echo "== status \$code" >>"$work/\$1.\$2"
END
    for only in gemm attention weight_grad rms_ bias latent rope swiglu fused add embed ce_ cols_ \
        sum_tree convert sumsq adamw; do
        case $only in
        fused) echo "synccheck $only" ;; # racecheck of CUDA 13.0 fails within itself
        *) echo "racecheck $only" ;;
        esac
        echo "memcheck $only"
    done >"$work/checks"
    xargs -P 8 -L 1 sh "$work/check" <"$work/checks"
    strays
    while read -r tool only; do
        cat "$work/$tool.$only" >>"$log"
        errors=$(sed -n 's/^=* .*SUMMARY: //p' "$work/$tool.$only" | tr '\n' ' ')
        row "| $tool, $only | ${errors:-no summary} | $(grep -c '  ok  ' "$work/$tool.$only" ||
            true) |"
        grep -q '^== status 0$' "$work/$tool.$only" ||
            miss "$tool, $only: $(tail -n 1 "$work/$tool.$only")"
    done <"$work/checks"
}

# ---- all of them ----

budget() {
    case $1 in
    warm) echo 10 ;;
    correct) echo 300 ;;
    sanitize) echo 240 ;;
    step) echo 760 ;;
    layers) echo 480 ;;
    slow) echo 240 ;;
    pipeline) echo 300 ;;
    memory) echo 150 ;;
    largest) echo 300 ;;
    kernels) echo 90 ;;
    *)
        echo "sitting.sh: no part '$1'" >&2
        return 2
        ;;
    esac
}

if [ "$gpus" -eq 0 ]; then
    echo "sitting.sh: no GPU answers (SMOKE=1 tries it on the CPU)" >&2
    exit 77
fi
PARTS=${PARTS:-warm correct step layers slow pipeline memory largest kernels sanitize}
for word in $PARTS; do
    budget "${word%%:*}" >/dev/null || exit 2
done
row "# A sitting on $gpus $backend, $(date -u '+%Y-%m-%d %H:%M') UTC"
row ""
if [ -n "$SMOKE" ]; then
    row "Tiny shapes on the CPU: figures mean nothing."
else
    row "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)," \
        "$precision, NVLink multicast off; torch: $torch."
fi
for word in $PARTS; do
    part=${word%%:*} log=$OUT/$part.log
    [ "$part" != warm ] || log=/dev/null
    [ "$part" = warm ] || : >"$log"
    seconds=$(budget "$part")
    [ "$part" = "$word" ] || seconds=${word#*:}
    began_part=$(date +%s) deadline=$(($(date +%s) + seconds))
    "part_$part" || miss "stopped with status $?"
    echo "$part: $(($(date +%s) - began_part)) s" >&2
done
warmed
row ""
row "$failures runs failed, had no time or were left out; all output is in the logs."
row ""
cat "$work/misses" >>"$work/table"
cp "$work/table" "$OUT/sitting.md"
cat "$OUT/sitting.md"
[ "$failures" -eq 0 ]
