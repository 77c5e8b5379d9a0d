#!/bin/sh
# Layouts that do not fit are refused before anything is read or allocated: on all ranks, with one
# message that names both numbers and a way out. Rows L01, L14, L16 of tests/CASES.md.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
plain "$dir/t.yaml"
t=$dir/t.yaml

# L16: the number of ranks is not the product of the layout.
refused "L16 3 ranks, tp 2" 3 '3 ranks & parallel.tp 2 x parallel.dp 1 = 2 & mpirun -n 2' \
    3 train "$t" parallel.tp=2
refused "L16 3 ranks, tp 2, full rank" 3 '3 ranks & = 2 & mpirun -n 2' \
    3 train "$t" parallel.tp=2 model.layer=full
refused "L16 2 ranks for tp 2 x dp 2" 3 '2 ranks & = 4 & mpirun -n 4, or set parallel.tp=2 parallel.dp=1' \
    2 train "$t" parallel.tp=2 parallel.dp=2
refused "L16 one process for tp 2" 3 'has 1 ranks & parallel.tp 2 & mpirun -n 2, or set parallel.tp=1' \
    0 train "$t" parallel.tp=2
refused "L16 3 replicas under layout_exact" 3 'parallel.dp 3 & power of two & mpirun -n 2' \
    3 train "$t" train.batch=6
# What the message proposes is accepted.
ends_well "L16 the way out of the message works" 2 train "$t" parallel.tp=2 train.steps=1
ends_well "L16 the other way out works" 2 train "$t" parallel.tp=2 parallel.dp=1 train.steps=1

# L01: sizes against the layout; --ranks rehearses a layout without starting it, and without Open
# MPI's daemon.
export OMPI_MCA_ess_singleton_isolated=1
dry() {
    what=$1 patterns=$2 ranks=$3
    shift 3
    refused "$what" 3 "$patterns" 0 train "$t" --dry-run --ranks "$ranks" "$@"
}
dry "L01 2 kv heads, tp 4" 'model.kv_heads 2 & parallel.tp 4 & one of 1, 2, & multiple of 4' \
    4 parallel.tp=4
dry "L01 2 kv heads, tp 4, full rank" 'model.kv_heads 2 & parallel.tp 4 & one of 1, 2,' \
    4 parallel.tp=4 model.layer=full
dry "L01 2 kv heads, tp 4, vanilla" 'model.kv_heads 2 & parallel.tp 4 & one of 1, 2,' \
    4 parallel.tp=4 parallel.strategy=vanilla
dry "L01 4 heads, tp 8" 'model.heads 4 & parallel.tp 8 & one of 1, 2, 4,' \
    8 parallel.tp=8 model.kv_heads=4
dry "L01 MLP 175, tp 2" 'model.ffn 175 & parallel.tp 2 & to one of 1, or model.ffn to a multiple of 2' \
    2 parallel.tp=2 model.ffn=175
dry "L01 MLP 175, tp 2, full rank" 'model.ffn 175 & parallel.tp 2' \
    2 parallel.tp=2 model.ffn=175 model.layer=full
dry "L01 rank 15, tp 2, vanilla" 'model.rank 15 & parallel.tp 2' \
    2 parallel.tp=2 model.rank=15 parallel.strategy=vanilla
ends_well "L01 rank 15, tp 2, btp: the rank is not cut" \
    0 train "$t" --dry-run --ranks 2 parallel.tp=2 model.rank=15
dry "L01 width 66, 11 heads, tp 4" '(model.heads 11|model.width 66) & parallel.tp 4' \
    4 parallel.tp=4 model.width=66 model.heads=11 model.kv_heads=11
dry "L01 width and heads" 'model.width 66 & model.heads 4 & model.width=68' 1 model.width=66
dry "L01 odd head" 'model.width 60 / model.heads 4 = 15' 1 model.width=60
dry "L01 kv heads and heads" 'model.kv_heads 3 & model.heads 4 & model.kv_heads=0' \
    1 model.kv_heads=3
dry "L01 more kv heads than heads" 'model.kv_heads 8 & model.heads 4' 1 model.kv_heads=8
dry "L01 rank not below width" 'model.rank 64 & model.width 64 & model.rank=0' 1 model.rank=64
dry "L01 tp 3" 'parallel.tp 3 & power of two & parallel.layout_exact=off' 3 parallel.tp=3
dry "L01 grains and heads" 'model.kv_heads 2 & parallel.grains 4 & one of 1, 2' 1 parallel.grains=4
dry "L01 grains that no power of two" 'parallel.grains 3 & power of two' 1 parallel.grains=3
dry "L01 grains below tp" 'parallel.tp 2 & parallel.grains 1 & parallel.grains=2' \
    2 parallel.tp=2 parallel.grains=1
dry "L01 batch 6, dp 4" 'train.batch 6 & parallel.dp 4 & train.batch=8' 4 train.batch=6
dry "L01 batch 6, dp 4, full rank" 'train.batch 6 & parallel.dp 4 & train.batch=8' \
    4 train.batch=6 model.layer=full
dry "L01 micro-batch 3 of 8" 'train.micro_batch 3 & 8 sequences & divisor of 8' 1 train.micro_batch=3
dry "L01 micro-batch beyond the share" 'train.micro_batch 8 & 4 sequences' \
    2 train.micro_batch=8
# The vocabulary is padded, and what is smaller than the tokenizer's is refused (row N18 trains it).
ends_well "L01 vocabulary 259, tp 4" 0 train "$t" --dry-run --ranks 4 parallel.tp=4 \
    model.kv_heads=4
dry "L01 vocabulary below the tokenizer's" 'model.vocab 100 & 259 & model.vocab=0' 1 model.vocab=100
dry "L01 strategy for the other kind of layer" 'parallel.strategy btp & model.layer is full' \
    2 model.layer=full parallel.strategy=btp parallel.tp=2
dry "L01 the other way round" 'parallel.strategy full & model.layer is cola' \
    2 parallel.strategy=full parallel.tp=2
dry "L01 recompute of another strategy" 'bottleneck & btp & parallel.recompute=block' \
    1 model.layer=full parallel.recompute=bottleneck
# Blocks and stages: an odd number of blocks is dealt, fewer blocks than stages are not.
ends_well "L01 3 blocks in 2 stages" 0 train "$t" --dry-run --ranks 2 parallel.pp=2 model.layers=3
dry "L01 2 blocks in 4 stages" 'model.layers 2 & parallel.pp 4 & more layers' 4 parallel.pp=4
dry "L01 2 blocks in 4 stages, full rank" 'model.layers 2 & parallel.pp 4' \
    4 parallel.pp=4 model.layer=full
dry "L16 3 ranks, pp 2" '3 ranks & parallel.pp 2 = 2 & mpirun -n 2' 3 parallel.pp=2 parallel.dp=1
# What is not there yet is no key, rather than without effect.
refused "L01 no context parallelism" 3 'parallel.cp is not a key' 0 train "$t" parallel.cp=2
refused "L14 no stage of ZeRO that would be without effect" 3 'parallel.zero & 2 & 0 to 1' \
    0 train "$t" parallel.zero=2

# L14: 3 replicas work where that is allowed, and are refused where the batch does not divide.
ends_well "L14 dp 3 without layout_exact" 3 train "$t" train.batch=9 train.steps=1 \
    parallel.layout_exact=off
ends_well "L14 dp 3 with ZeRO" 3 train "$t" train.batch=9 train.steps=1 parallel.layout_exact=off \
    parallel.zero=1
# A number of grains that TP does not divide gives way, and it is said.
six="model.heads=6 model.kv_heads=6 model.width=96 model.ffn=192 parallel.tp=3 train.steps=1"
# shellcheck disable=SC2086 # words
refused "L14 tp 3 of six heads, exact" 3 'parallel.tp 3 & power of two & parallel.layout_exact=off' \
    3 train "$t" $six
# shellcheck disable=SC2086
ends_well "L14 tp 3 without layout_exact" 3 train "$t" $six parallel.layout_exact=off \
    parallel.grains=8
expect "L14 three grains" grep -qE '^layout +tp 3 x .* grains 3 +layout_exact off' "$dir/out"
refused "L14 batch 8, dp 3" 3 'train.batch 8 & parallel.dp 3 & train.batch=9' \
    3 train "$t" parallel.layout_exact=off

# The machine, not the sizes.
ends_well "backend ref" 0 train "$t" --dry-run run.backend=ref
job 2 train "$t" run.backend=gpu train.steps=1
case $status in
0) ok "backend gpu: one answers here" ;;
3) check_refusal "backend gpu in a build without CUDA" 3 'run.backend & CUDA & run.backend=ref' ;;
*) check_refusal "backend gpu without a GPU" 9 'CUDA|GPU|device' ;;
esac
finish
