#!/usr/bin/env python3
"""PyTorch on GPUs, as a careful user would run it.

    llama_gpu.py step  --core-type full|cola|svd    whole training step on one GPU
        torch.compile, SDPA, fused AdamW, bf16 parameters; d2048 ffn 5504 H32 L24 V32000,
        8 x 2048 tokens
    llama_gpu.py stack --gpus 2                     layers under tensor parallelism, fwd + bwd
        full rank (Megatron), vanilla low rank, BTP; eager, NCCL; --graph replays a CUDA graph

Prints ms (median), tokens/s, MFU against 989 TFLOP/s (6 N + 6 L d seq a token, N without the input
embedding, attention halved for the causal mask), all-reduced MiB a step on a rank, and peak memory.
`stack --check` (always on with --cpu-smoke) first compares p ranks with one rank in float64.
NVLink multicast is left off (NCCL_NVLS_ENABLE=0, TORCH_SYMM_MEM_DISABLE_MULTICAST=1);
NCCL_P2P_DISABLE=1 in the environment stands in for a slow link.
"""

import argparse
import os
import statistics

import bench
import peer_model
import shapes
import torch
import torch.distributed as dist
import tp_stack

PEAK_TFLOPS = 989.0


# ------------------------------------------------------------------------- one GPU, a whole step


def run_step(args):
    device = torch.device("cpu" if args.cpu_smoke else "cuda:0")
    dtype = torch.float32 if args.cpu_smoke else torch.bfloat16
    bench.choose_sdpa("default" if args.cpu_smoke else args.sdpa)
    if args.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(1)
    shape, batch = shapes.make(args, args.core_type, 2 if args.cpu_smoke else 24)
    shape.grouped = not args.separate
    with torch.device(device):
        model = peer_model.Llama(shape).to(dtype)
    cos, sin = peer_model.rope_table(shape, device, dtype)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    run = (
        model
        if args.cpu_smoke or args.compile == "none"
        else torch.compile(model, mode=args.compile)
    )
    tokens = torch.randint(0, args.vocab, (batch, args.seq + 1), device=device)
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = run(tokens[:, :-1], tokens[:, 1:], cos, sin)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    times = bench.times_ms(step, device, 1 if args.cpu_smoke else 5, args.repeats)
    ms, count = statistics.median(times), batch * args.seq
    tflops = count / ms * 1e3 * shape.flop_per_token() / 1e12
    print(
        f"{bench.describe(device)}; sdpa {args.sdpa}, compile {args.compile}, "
        f"{'' if args.deterministic else 'not '}deterministic"
    )
    print(
        f"{shape}, batch {batch}: "
        f"{sum(q.numel() for q in model.parameters()) / 1e6:.0f}M parameters"
    )
    print(
        f"{args.core_type}: {ms:.1f} ms (best {min(times):.1f}, worst {max(times):.1f}), "
        f"{count / ms * 1e3:.0f} tokens/s, {tflops:.1f} TFLOP/s, "
        f"MFU {100 * tflops / PEAK_TFLOPS:.1f} %, "
        f"{bench.gib(device):.1f} GiB, loss {losses[0].item():.3f} -> {losses[-1].item():.3f}"
    )


# ------------------------------------------------------------------ tensor parallelism, a stack


def captured(step):
    """step() as the replay of a CUDA graph, after a warm-up on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog thread queries events meanwhile: only this thread's calls are captured.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    return graph.replay


def check_against_one_rank(strategy, args, rank, world, device):
    """Output, input gradient and weight gradients of `world` ranks against one rank, float64.
    BTP is held against vanilla, which has the same weights and an ordinary RMSNorm."""
    shape = peer_model.Shape(
        64, 2, 4, 96, 0, 16, "full" if strategy == "full" else "cola", 16, True
    )
    many = tp_stack.Stack(strategy, shape, 2, rank, tp_stack.Comm(world), device, torch.float64)
    plain = "vanilla" if strategy == "btp" else strategy
    one = tp_stack.Stack(plain, shape, 2, 0, tp_stack.Comm(1), device, torch.float64)
    (y, grads), (y1, grads1) = many.step(), one.step()
    worst = 0.0
    for a, b in ((y, y1), (grads[0], grads1[0])):
        b = many.share(b.detach())
        worst = max(worst, ((a - b).abs().max() / b.abs().max()).item())
    for a, b in zip(grads[1:], grads1[1:]):
        square = a.square().sum()
        if a.numel() != b.numel():  # cut: the ranks' squares add up to the whole
            dist.all_reduce(square)
        worst = max(worst, abs(square.item() / b.square().sum().item() - 1))
    worst = bench.slowest(worst, device)
    if not worst < 1e-10:
        raise SystemExit(f"{strategy}: {world} ranks differ from one rank by {worst:.1e}")
    if rank == 0:
        print(
            f"{strategy}: {world} ranks agree with one rank, worst relative difference {worst:.1e}"
        )


def time_stack(strategy, args, rank, world, device):
    core = "full" if strategy == "full" else args.core_type
    shape, batch = shapes.make(args, core, shapes.PRESETS[args.preset][4])
    dtype = torch.float32 if args.cpu_smoke else torch.bfloat16
    comm = tp_stack.Comm(world)
    if not args.cpu_smoke:
        torch.cuda.reset_peak_memory_stats(device)
    stack = tp_stack.Stack(strategy, shape, batch, rank, comm, device, dtype)
    stack.step()
    calls, size, tokens = comm.calls, comm.bytes, batch * args.seq
    wanted = tp_stack.expected_elements(strategy, shape, tokens) * dtype.itemsize
    wanted += 2 * 4 * tokens if strategy == "btp" else 0  # the statistics, float32
    if size != wanted * shape.layers:
        raise SystemExit(f"{strategy}: {size} bytes all-reduced, {wanted * shape.layers} expected")
    step = captured(stack.step) if args.graph else stack.step
    times = bench.times_ms(step, device, 3, args.repeats)
    ms = bench.slowest(statistics.median(times), device)
    if rank == 0:
        print(
            f"{args.preset} L{shape.layers} b{batch} r{shape.rank} {strategy:17s} {ms:8.2f} ms, "
            f"{ms / shape.layers:7.2f} a layer, {tokens / ms * 1e3:9.0f} tokens/s, "
            f"{calls} all-reduces, "
            f"{size / 2 ** 20:.0f} MiB, {bench.gib(device):.1f} GiB",
            flush=True,
        )


def run_stack_rank(rank, world, device, args):
    bench.choose_sdpa("default" if args.cpu_smoke else args.sdpa)
    if rank == 0:
        print(
            f"{bench.describe(device)}; {world} ranks, sdpa {args.sdpa}, "
            f"{'graph' if args.graph else 'eager'}"
        )
    for strategy in args.strategies if args.check or args.cpu_smoke else ():
        check_against_one_rank(strategy, args, rank, world, device)
    for _ in range(args.rounds):
        for strategy in args.strategies:
            time_stack(strategy, args, rank, world, device)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sub = p.add_subparsers(dest="what", required=True)
    step, stack = sub.add_parser("step"), sub.add_parser("stack")
    for q in (step, stack):
        shapes.add_options(q)
        q.add_argument(
            "--core-type",
            choices=("full", "cola", "svd") if q is step else ("cola", "svd"),
            default="full" if q is step else "cola",
        )
    step.add_argument(
        "--compile",
        default="default",
        choices=("default", "max-autotune", "max-autotune-no-cudagraphs", "none"),
    )
    step.add_argument(
        "--deterministic", action="store_true", help="same bits from run to run, as PyTorch can"
    )
    step.add_argument("--separate", action="store_true", help="do not group q, k, v and gate, up")
    stack.add_argument("--gpus", type=int, default=2)
    stack.add_argument(
        "--strategies", nargs="+", choices=tp_stack.STRATEGIES, default=["full", "vanilla", "btp"]
    )
    stack.add_argument("--rounds", type=int, default=1, help="times that the strategies take turns")
    stack.add_argument("--graph", action="store_true", help="CUDA graph instead of eager launches")
    stack.add_argument("--check", action="store_true", help="compare with one rank first")
    args = p.parse_args()
    shapes.settle(args)
    if args.what == "step":
        run_step(args)
    else:
        bench.run_ranks(args.gpus, args.cpu_smoke, run_stack_rank, args)


if __name__ == "__main__":
    main()
