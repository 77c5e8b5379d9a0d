#!/bin/sh
# What needs a GPU; skipped where none answers. Two of them for what ranks do to each other; where
# there is one, or GPU_PARTS names one-gpu, ranks share it, and a stand-in takes the place of NCCL:
# NARROWS_ONE_GPU, else tests/gpu/nccl_one_gpu.so beside narrows (make check builds it).
#
# Row N26: accumulation repeats bit by bit (REPEATS runs, 20). Row N39, the gradient norm over
# tensors of odd sizes, is a part of `narrows validate ops`, beside the whole of it. A dead peer, or
# one that stands still, ends the job within parallel.timeout and a message. A shadow agrees. What
# the host reads late and steps that are recorded as graphs change no bit and no record. Attention
# and positions within documents learn what ref learns. Ranks that share layers agree with ref under
# every strategy; work beside messages, replicas, shards and stages change no bit. What one backend
# saved the other goes on with.
#
# GPU_PARTS names what is run, of: operations repeats documents any-order checkpoints graphs peers
# graph-peers strategies overlap replicas pipelines mesh one-gpu (all). With one-gpu, RANK_PARTS
# names which of those for several ranks share the GPU (all but graph-peers): those of most worth
# come first, with fewer rows and steps, since messages are slow.
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

# After each check: how long it and what led to it took.
since=$(date +%s)
told() {
    moment=$(date +%s)
    [ "$moment" -eq "$since" ] || echo "    $((moment - since)) s"
    since=$moment
}

rank_parts="strategies replicas pipelines overlap graphs peers graph-peers mesh"
part() {
    case " ${GPU_PARTS:-operations repeats documents any-order checkpoints one-gpu $rank_parts} " in
    *" $1 "*) ;;
    *) return 1 ;;
    esac
}

# What a job leaves is compared when it ended well alone: else it may be that of the one before.
bits() {
    [ "$status" != 0 ] || hashes
}

# ---- one GPU ----

! part operations || ends_well "all operations" 0 validate ops --backend gpu
for layer in full cola; do
    part repeats || break
    for precision in fp32 bf16; do
        set -- model.layer=$layer train.precision=$precision train.steps=5 train.micro_batch=1 \
            run.hash=on
        ends_well "N26 $layer $precision" 0 train "$t" "$@"
        first=$(bits)
        i=1 others=0
        while [ "$i" -lt "${REPEATS:-20}" ]; do
            direct train "$t" "$@"
            [ -n "$first" ] && [ "$(bits)" = "$first" ] || others=$((others + 1))
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
    want=$(bits)
    ends_well "documents apart once more, $words" 0 train "$t" "$@" data.reset_documents=on
    same "documents apart: the same weights again, $words" "$(bits)" "$want"
    ends_well "documents that see each other, $words" 0 train "$t" "$@"
    differ "documents apart matter, $words" "$(bits)" "$want"
done

# losses [FOLDER]: of the steps of a run; none of one that failed.
losses() {
    [ "$status" = 0 ] || return 0
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "${1:-$dir/run}/metrics.jsonl"
}

# near WHAT A B: two lists of losses. Runs whose sums have other orders part slowly: over some steps
# they are within 1e-6 of each other, and a wrong gradient is not within 1e-4.
near() {
    printf '%s\n' "$2" >"$dir/losses.a"
    printf '%s\n' "$3" >"$dir/losses.b"
    expect "$1" awk 'NR == FNR { a[FNR] = $1; n = FNR; next }
        { d = a[FNR] - $1; if (d < 0) d = -d; if (!($1 > 0) || d > 1e-4 * $1) bad = 1 }
        END { exit bad || n == 0 || FNR != n }' "$dir/losses.a" "$dir/losses.b"
}

# What one backend saved the other loads and goes on with.
if part checkpoints; then
    set -- train.steps=4 run.save=on run.overwrite=off
    ends_well "ref alone, four steps" 0 train "$t" "$@" run.backend=ref run.dir="$dir/whole"
    known=$(losses "$dir/whole")
    for from in ref gpu; do
        to=ref
        [ "$from" = gpu ] || to=gpu
        rm -rf "$dir/run"
        refused "$from is stopped" 130 'after step 2 of 4' 0 train "$t" "$@" \
            run.backend=$from checkpoint.stop_at=2
        [ "$status" = 130 ] || continue
        ends_well "$to goes on with what $from saved" 0 train "$t" "$@" run.backend=$to --resume
        expect "it goes on from step 2, to $to" grep -q '^resume  *step 2 of ' "$dir/out"
        near "$from, then $to: the losses of ref alone" "$known" "$(losses)"
    done
fi

# The same learning from gradients that may differ from run to run.
for layer in full cola; do
    part any-order || break
    ends_well "any order of sums beside ref, $layer" 0 train "$t" model.layer=$layer train.seq=128 \
        train.precision=bf16 train.steps=6 shadow.every=2 shadow.stop=on run.deterministic=off
    expect "any order of sums: three replays, $layer" \
        test "$(grep -c '^shadow of step' "$dir/out")" = 3
    grep '^shadow of step' "$dir/out" | tail -n 1
done
if part any-order; then
    ends_well "attention in any order" 0 validate ops --backend gpu --any-order --only attention
    ends_well "any order of sums, to a checkpoint" 0 train "$t" train.steps=2 run.save=on \
        checkpoint.every=2 train.precision=bf16 run.deterministic=off run.graph=on
    ends_well "which becomes weights on ref" 0 checkpoint export "$dir/run" --output "$dir/weights"
fi

# The records without what a clock measures; none of a job that failed.
records() {
    [ "$status" = 0 ] || return 0
    clocks='ms\|tokens_per_s\|flops_per_s\|mfu\|peak_rss\|seconds\|start_seconds'
    sed "s/\"\($clocks\)\":[^,}]*,\{0,1\}//g" "$dir/run/metrics.jsonl"
}

# unchanged RANKS WORDS...: the same hashes, losses, norms and records with and without graphs, read
# after each step or seven. A validation, a step of a profile and one after a replay through ref are
# among them: $span. $ways: as against plain and read at once.
span="train.steps=16 train.eval_every=6 shadow.every=11 profile.first=9"
ways="off on"
unchanged() {
    ranks=$1
    shift
    # shellcheck disable=SC2086 # words
    set -- "$@" $span run.hash=on
    ends_well "plain, read at once: $*" "$ranks" train "$t" "$@" run.graph=off train.read_every=1
    first=$(bits) known=$(records)
    for graph in $ways; do
        ends_well "read late, graphs $graph: $*" "$ranks" train "$t" "$@" train.read_every=7 \
            run.graph="$graph"
        same "graphs $graph: the same weights, losses and norms: $*" "$(bits)" "$first"
        same "graphs $graph: the same records: $*" "$(records)" "$known"
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

# ---- several ranks ----

# On GPUs of their own, or on one with the stand-in.
stand_in=
if part one-gpu && { [ "$gpus" -eq 1 ] || [ -n "${GPU_PARTS:-}" ]; }; then
    stand_in=${NARROWS_ONE_GPU:-$(dirname "$NARROWS")/tests/gpu/nccl_one_gpu.so}
    if [ -n "${GPU_PARTS:-}" ]; then
        expect "the stand-in for NCCL, $stand_in" test -f "$stand_in"
        differ "mpirun for ranks on one GPU" "$MPIRUN" no
    fi
    [ -f "$stand_in" ] || { echo "no $stand_in: make check builds it" && stand_in=; }
fi
if [ "$MPIRUN" = no ] || { [ "$gpus" -lt 2 ] && [ -z "$stand_in" ]; }; then
    echo "left out: several ranks (one GPU and no stand-in, or no mpirun)"
    finish
    exit
fi
if [ -n "$stand_in" ]; then
    echo "ranks share one GPU: $stand_in"
    cat >"$dir/narrows" <<END
#!/bin/sh
exec env LD_PRELOAD='$stand_in' '$NARROWS' "\$@"
END
    chmod +x "$dir/narrows"
    NARROWS=$dir/narrows
    LIMIT=${GPU_LIMIT:-60}
    gpus=2
    span="train.steps=8 train.eval_every=3 shadow.every=5 profile.first=7"
    ways=on
    # A message takes as long as the other rank's turn on the GPU, some ms.
    printf 'sample:\n  tokens: 2\n' >>"$t"
fi
# pretend N: how many GPUs the stand-in speaks of.
pretend() {
    export NARROWS_ONE_GPU_RANKS="$1"
}
pretend 2
# alone COMMAND...: a row that is worth its time on GPUs of their own alone.
alone() {
    [ -n "$stand_in" ] || "$@"
}
few=5
[ -z "$stand_in" ] || few=3

# many PART: rows of it for several ranks are wanted.
many() {
    [ -n "$stand_in" ] || {
        part "$1"
        return
    }
    case " ${RANK_PARTS:-$rank_parts} " in
    *" $1 "*) ;;
    *) return 1 ;;
    esac
}

# One row fails where cuDNN cannot be made to share the GPU; the others go on without it.
share() {
    if [ -n "$stand_in" ] && [ "$status" != 0 ] && grep -q -i cudnn "$dir/err"; then
        export NARROWS_ATTENTION=own
        echo "    the rows that follow have attention by own kernels"
    fi
}

# beside_ref RANKS STEPS WORDS...: the shadow of each step agrees.
beside_ref() {
    ranks=$1 steps=$2
    shift 2
    ends_well "beside ref on $ranks ranks: $*" "$ranks" train "$t" "$@" train.steps="$steps" \
        shadow.every=1 shadow.stop=on
    expect "$steps replays on $ranks ranks: $*" \
        test "$(grep -c '^shadow of step' "$dir/out")" = "$steps"
    grep '^shadow of step' "$dir/out" | tail -n 1
    share
}

# hashed RANKS WORDS...: a few steps; their hashes, losses and norms in $now.
hashed() {
    ranks=$1
    shift
    ends_well "on $ranks ranks: $*" "$ranks" train "$t" train.steps="$few" run.hash=on "$@"
    now=$(bits)
    share
}

for precision in bf16 fp32; do
    many strategies || break
    for words in "model.layer=full" "parallel.strategy=vanilla" "parallel.strategy=btp"; do
        beside_ref 2 "$few" parallel.tp=2 train.precision=$precision "$words"
    done
    [ -z "$stand_in" ] || break
done

if many replicas; then
    set -- parallel.dp=2 train.micro_batch=2
    hashed 2 "$@"
    first=$now
    hashed 2 "$@" parallel.zero=1
    same "shards of the optimiser change no bit" "$now" "$first"
    hashed 2 "$@" parallel.zero=1 parallel.bucket=0
    same "nor do smaller buckets" "$now" "$first"
    if [ -z "$stand_in" ]; then
        hashed 2 "$@"
        same "replicas repeat" "$now" "$first"
        hashed 2 "$@" train.precision=bf16
        first=$now
        hashed 2 "$@" train.precision=bf16 parallel.zero=1
        same "shards of the optimiser change no bit, bf16" "$now" "$first"
    fi
fi

# A block is computed as it is on one rank, and a message between stages is a copy.
if many pipelines; then
    set -- model.layers=4 train.micro_batch=2
    hashed 0 "$@"
    first=$now
    for words in gpipe 1f1b zb-h1 "interleaved parallel.virtual_stages=2"; do
        # shellcheck disable=SC2086 # words
        hashed 2 "$@" parallel.pp=2 parallel.schedule=$words
        same "two stages have the bits of one rank: $words" "$now" "$first"
    done
    alone beside_ref 2 2 "$@" parallel.pp=2 parallel.schedule=zb-h1 train.precision=bf16
fi

# Half-batches are products of half as many rows, whose sums may have another order.
if many overlap; then
    hashed 2 parallel.tp=2 parallel.overlap=off
    first=$now known=$(losses)
    hashed 2 parallel.tp=2 parallel.overlap=backward
    same "weight gradients beside messages change no bit" "$now" "$first"
    hashed 2 parallel.tp=2 parallel.overlap=all
    halves=$now
    if [ "$halves" = "$first" ]; then
        echo "    half-batches have the bits of whole ones"
    else
        echo "    half-batches have other bits than whole ones"
    fi
    near "half-batches learn what whole ones do" "$(losses)" "$known"
    if [ -z "$stand_in" ]; then
        hashed 2 parallel.tp=2 parallel.overlap=all
        same "half-batches repeat" "$now" "$halves"
    fi
    alone beside_ref 2 2 parallel.tp=2 parallel.overlap=all train.precision=bf16
fi

recorded() {
    for words; do
        # shellcheck disable=SC2086 # words
        unchanged 2 $words
    done
}
if many graphs; then
    recorded "parallel.tp=2 train.precision=bf16" \
        "parallel.dp=2 parallel.zero=1 train.precision=bf16" "parallel.pp=2 train.micro_batch=2"
    alone recorded "parallel.tp=2 parallel.overlap=all train.micro_batch=4" \
        "parallel.dp=2 train.micro_batch=2 train.head_chunk=1"
fi
job $((gpus + 1)) train "$t" train.batch=$((gpus + 1))
check_refusal "more ranks than GPUs" 9 'ranks on this node & one rank a GPU'

# begin WORDS...: a long job on two ranks in the background that mpirun does not end by itself. Fails
# where it does not get to steps.
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
        kill -0 "$mpirun_pid" 2>/dev/null || tries=300
    done
    [ $tries -ge 300 ] || return 0
    not_ok "two ranks train, $*" "no third record"
    kill "$mpirun_pid" 2>/dev/null || true
    wait "$mpirun_pid" || true
    return 1
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
# more than the driver's queue takes. (Where ranks share a GPU, whose steps are slow, 20 have to do.)
layouts="tp dp" manners=
! many peers || manners="model.layer=full model.layer=cola train.read_every=50"
! many graph-peers || manners="$manners run.graph=on"
[ -z "$stand_in" ] || { layouts=tp && manners=; }
[ -z "$stand_in" ] || ! many peers || manners=train.read_every=20
for layout in $layouts; do
    for manner in $manners; do
        begin "parallel.$layout=2" "$manner" || continue
        kill -KILL "$(cat "$dir/pid.1")"
        killed "a rank is killed, $layout 2, $manner"
        begin "parallel.$layout=2" "$manner" || continue
        kill -STOP "$(cat "$dir/pid.1")"
        survivor "a rank stands still, $layout 2, $manner"
    done
done

# All at once on eight ranks, or four of one GPU; their checkpoint goes on with one rank on ref.
mesh="parallel.tp=2 parallel.pp=2 parallel.dp=2 parallel.zero=1" all=8
[ -z "$stand_in" ] || { mesh="parallel.tp=2 parallel.pp=2" all=4 && pretend 4; }
if many mesh && [ -z "$stand_in" ] && [ "$gpus" -lt 8 ]; then
    echo "left out: eight ranks ($gpus GPUs)"
elif many mesh; then
    alone beside_ref 8 3 parallel.tp=2 parallel.pp=2 parallel.dp=2 train.micro_batch=2
    rm -rf "$dir/run"
    set -- train.steps=4 train.micro_batch=2 run.save=on run.overwrite=off
    # shellcheck disable=SC2086 # words
    refused "$all ranks are stopped" 130 'after step 2 of 4' "$all" train "$t" "$@" $mesh \
        checkpoint.stop_at=2
    if [ "$status" = 130 ]; then # else there is nothing to go on from
        ends_well "one rank of ref goes on" 0 train "$t" "$@" --resume run.backend=ref
        known=$(losses)
        ends_well "ref alone" 0 train "$t" "$@" run.backend=ref run.dir="$dir/ref"
        near "the losses are those of ref alone" "$known" "$(losses "$dir/ref")"
    fi
fi
finish
