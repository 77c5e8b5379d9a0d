#!/bin/sh
# What needs a GPU; skipped where none answers. Two of them for what ranks do to each other.
#
# Row N26: accumulation repeats bit by bit (REPEATS runs, 20). Row N39, the gradient norm over
# tensors of odd sizes, is a part of `narrows validate ops`, beside the whole of it. A dead peer, or
# one that stands still, ends the job within parallel.timeout and a message. A shadow agrees. What
# the host reads late and steps that are recorded as graphs change no bit and no record. Attention
# and positions within documents learn what ref learns.
#
# GPU_PARTS names what is run, of: operations repeats documents any-order graphs peers
# graph-peers (all).
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # lib.sh sets dir, text; the ranks' shells expand
. "$SOURCE/tests/cli/lib.sh"
LIMIT=${GPU_LIMIT:-120}
export NCCL_NVLS_ENABLE="${NCCL_NVLS_ENABLE:-0}"
gpus=$( (nvidia-smi -L 2>/dev/null || true) | grep -c '^GPU ' || true)
t=$dir/t.yaml
plain "$t"
cat >>"$t" <<END
  backend: gpu
parallel:
  layout_exact: off
END
if [ "$gpus" -eq 0 ]; then
    echo "skipped: no GPU"
    exit 77
fi
direct train "$t" train.steps=1
if [ "$status" = 3 ]; then
    echo "skipped: $(cat "$dir/err")"
    exit 77
fi
same "a GPU answers" "$status" 0

part() {
    case " ${GPU_PARTS:-operations repeats documents any-order graphs peers graph-peers} " in
    *" $1 "*) ;;
    *) return 1 ;;
    esac
}

# ---- one GPU ----

! part operations || ends_well "all operations" 0 validate ops --backend gpu
for layer in full cola; do
    part repeats || break
    for precision in fp32 bf16; do
        set -- model.layer=$layer train.precision=$precision train.steps=5 train.micro_batch=1 \
            run.hash=on
        ends_well "N26 $layer $precision" 0 train "$t" "$@"
        first=$(hashes)
        i=1 others=0
        while [ "$i" -lt "${REPEATS:-20}" ]; do
            direct train "$t" "$@"
            [ -n "$first" ] && [ "$(hashes)" = "$first" ] || others=$((others + 1))
            i=$((i + 1))
        done
        same "N26 $layer $precision: ${REPEATS:-20} times 5 steps of 8 micro-batches" \
            "$others" 0
        ends_well "a shadow of $layer $precision" 0 train "$t" model.layer=$layer \
            train.precision=$precision train.steps=6 shadow.every=2 shadow.stop=on
        expect "three replays of $layer $precision" \
            test "$(grep -c '^shadow of step' "$dir/out")" = 3
        grep '^shadow of step' "$dir/out" | tail -n 1
    done
done

# Rows of 96 tokens, that tiles of 32 do not fit, over documents of some ten to some hundred; the
# gradients of a micro-batch are those of ref, whose documents are sequences of their own. The same
# from run to run, and not the same as without.
sed 's/^$/--/' "$text" >"$dir/documents.txt"
documents="data.train=$dir/documents.txt data.validation=$dir/documents.txt"
documents="$documents data.document_separator=-- train.seq=96"
for words in "model.layer=full" "model.layer=full train.precision=bf16 train.micro_batch=2" \
    "model.layer=cola parallel.recompute=block" "model.layer=cola train.precision=bf16"; do
    part documents || break
    # shellcheck disable=SC2086 # words
    set -- $words $documents train.steps=6 run.hash=on train.eval_every=3
    ends_well "documents apart beside ref, $words" 0 train "$t" "$@" data.reset_documents=on \
        shadow.every=2 shadow.stop=on
    expect "documents apart: three replays, $words" \
        test "$(grep -c '^shadow of step' "$dir/out")" = 3
    grep '^shadow of step' "$dir/out" | tail -n 1
    want=$(hashes)
    ends_well "documents apart once more, $words" 0 train "$t" "$@" data.reset_documents=on
    same "documents apart: the same weights again, $words" "$(hashes)" "$want"
    ends_well "documents that see each other, $words" 0 train "$t" "$@"
    differ "documents apart matter, $words" "$(hashes)" "$want"
done

# The same learning from gradients that may differ from run to run, and that do not within a run that
# is to repeat.
for layer in full cola; do
    part any-order || break
    ends_well "any order of sums beside ref, $layer" 0 train "$t" model.layer=$layer train.seq=128 \
        train.precision=bf16 train.steps=6 shadow.every=2 shadow.stop=on run.deterministic=off
    expect "any order of sums: three replays, $layer" \
        test "$(grep -c '^shadow of step' "$dir/out")" = 3
    grep '^shadow of step' "$dir/out" | tail -n 1
done
! part any-order || ends_well "attention in any order" 0 validate ops --backend gpu --any-order \
    --only attention

# The records without what a clock measures.
records() {
    clocks='ms\|tokens_per_s\|flops_per_s\|mfu\|peak_rss\|seconds\|start_seconds'
    sed "s/\"\($clocks\)\":[^,}]*,\{0,1\}//g" "$dir/run/metrics.jsonl"
}

# unchanged RANKS WORDS...: the same hashes, losses, norms and records with and without graphs, read
# after each step or seven. The first step, one of a profile and one after a replay through ref are
# among them.
unchanged() {
    ranks=$1
    shift
    set -- "$@" train.steps=16 run.hash=on train.eval_every=6 shadow.every=11 profile.first=9
    ends_well "plain, read at once: $*" "$ranks" train "$t" "$@" run.graph=off train.read_every=1
    first=$(hashes) told=$(records)
    for how in "run.graph=off train.read_every=7" "run.graph=on train.read_every=7"; do
        # shellcheck disable=SC2086 # words
        ends_well "$how: $*" "$ranks" train "$t" "$@" $how
        same "$how: the same weights, losses and norms: $*" "$(hashes)" "$first"
        same "$how: the same records: $*" "$(records)" "$told"
    done
    expect "it was recorded: $*" grep -q '^graph  ' "$dir/out"
}
for words in "model.layer=full" "model.layer=cola train.precision=bf16" \
    "model.layer=svd parallel.recompute=bottleneck train.micro_batch=2 train.head_chunk=1" \
    "model.layer=cola $documents data.reset_documents=on"; do
    part graphs || break
    # shellcheck disable=SC2086 # words
    unchanged 0 $words
done

# ---- two GPUs ----

if [ "$gpus" -lt 2 ] || [ "$MPIRUN" = no ]; then
    echo "left out: dead peers (one GPU, or no mpirun)"
    finish
    exit
fi
! part repeats || ends_well "a shadow of two ranks" 2 train "$t" parallel.tp=2 train.steps=4 \
    shadow.every=2 shadow.stop=on
for words in "parallel.tp=2 train.precision=bf16" \
    "parallel.tp=2 parallel.overlap=all train.micro_batch=4" \
    "parallel.dp=2 train.micro_batch=2 train.head_chunk=1" \
    "parallel.dp=2 parallel.zero=1 train.precision=bf16" "parallel.pp=2 train.micro_batch=2"; do
    part graphs || break
    # shellcheck disable=SC2086 # words
    unchanged 2 $words
done
job $((gpus + 1)) train "$t" train.batch=$((gpus + 1))
check_refusal "more ranks than GPUs" 9 'ranks on this node & one rank a GPU'

# begin WORDS...: a long job on two ranks in the background that mpirun does not end by itself.
begin() {
    rm -rf "$dir/run" "$dir"/pid.* "$dir"/rank.*
    timeout -k 5 "$LIMIT" "$MPIRUN" -n 2 --bind-to none sh -c \
        'rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:?}}; "$@" & pid=$!
         echo $pid >"$dir/pid.$rank"; wait $pid; echo $? >"$dir/rank.$rank"' \
        narrows "$NARROWS" train "$t" train.steps=1000000 parallel.timeout=5 "$@" \
        >"$dir/out" 2>"$dir/err" </dev/null &
    mpirun_pid=$!
    tries=0 lines=0
    until [ "${lines:-0}" -ge 3 ] || [ $tries -ge 300 ]; do
        sleep 0.1
        lines=$(grep -c '' "$dir/run/metrics.jsonl" 2>/dev/null) || true
        tries=$((tries + 1))
    done
}

# A rank that is killed is seen by mpirun, which ends the rest: nothing hangs on the GPUs.
killed() {
    what=$1
    tries=0
    while kill -0 "$mpirun_pid" 2>/dev/null && [ $tries -lt 300 ]; do # 30 s for a timeout of 5 s
        sleep 0.1
        tries=$((tries + 1))
    done
    expect "$what: the job ends" test $tries -lt 300
    code=0
    wait "$mpirun_pid" || code=$?
    differ "$what: with a status" "$code" 0
    while kill -0 "$(cat "$dir/pid.0")" 2>/dev/null && [ $tries -lt 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    expect "$what: no process is left" test $tries -lt 300
    kill -KILL "$(cat "$dir/pid.0")" 2>/dev/null || true
}

# A rank that stands still is not seen by mpirun. What the other did: it ended by itself, not too
# late, with a status and one message.
survivor() {
    what=$1
    tries=0
    until [ -s "$dir/rank.0" ] || [ $tries -ge 300 ]; do # 30 s for a timeout of 5 s
        sleep 0.1
        tries=$((tries + 1))
    done
    expect "$what: the other rank ends" test -s "$dir/rank.0"
    echo "    after $((tries / 10)) s: $(grep '^narrows: ' "$dir/err" | head -n 1)"
    differ "$what: with a status" "$(cat "$dir/rank.0" 2>/dev/null)" 0
    expect "$what: and a message" grep -q '^narrows: ' "$dir/err"
    kill -KILL "$(cat "$dir/pid.1")" 2>/dev/null || true
    kill -KILL "$(cat "$dir/pid.0")" 2>/dev/null || true
    wait "$mpirun_pid" || true
}

# Read after 50 steps, the host has some thousand launches to give behind the collective that hangs:
# more than the driver's queue takes.
manners=
! part peers || manners='model.layer=full model.layer=cola train.read_every=50'
! part graph-peers || manners="$manners run.graph=on"
for layout in tp dp; do
    for manner in $manners; do
        begin parallel.$layout=2 "$manner"
        kill -KILL "$(cat "$dir/pid.1")"
        killed "a rank is killed, $layout 2, $manner"
        begin parallel.$layout=2 "$manner"
        kill -STOP "$(cat "$dir/pid.1")"
        survivor "a rank stands still, $layout 2, $manner"
    done
done
finish
