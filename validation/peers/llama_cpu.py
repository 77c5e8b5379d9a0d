#!/usr/bin/env python3
"""PyTorch on the CPU: tokens/s of whole training steps of a small LLaMA, full rank or low rank.

float32, AdamW (fused or foreach, whichever is faster here), random tokens. The program starts
itself again with an environment in which PyTorch is at its best:
  MALLOC_TRIM_THRESHOLD_, MALLOC_TOP_PAD_, MALLOC_MMAP_MAX_=0, MALLOC_ARENA_MAX=1
      memory that is freed stays in the process, so that no step touches fresh pages
  OMP_WAIT_POLICY=passive   idle OpenMP threads sleep; --wait active leaves them spinning
  --core: Haswell holds every library to AVX2, SkylakeX to AVX-512 (MKL, oneDNN, ATen, OpenBLAS)
--untuned runs without the malloc settings, to see what they bring.

GFLOP/s = tokens/s * (6 N + 6 L d seq), N = weights of all matrices and the head, without the input
embedding; attention counted half for the causal mask. Ratios from one machine and one hour are
comparable; times are not.

    llama_cpu.py                            d512 L8 H8 ffn 1376 seq 256 batch 8 V256, full rank
    llama_cpu.py --core-type cola --rank 128 --vocab 32000
"""

import argparse
import statistics
import time

import bench


def parse():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (
        ("width", 512),
        ("layers", 8),
        ("heads", 8),
        ("ffn", 1376),
        ("vocab", 256),
        ("seq", 256),
        ("batch", 8),
        ("rank", 128),
        ("threads", 2),
        ("warmup", 2),
        ("steps", 7),
    ):
        p.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    p.add_argument(
        "--core-type",
        choices=("full", "cola", "svd"),
        default="full",
        help="what a projection is (default full)",
    )
    p.add_argument(
        "--outer-silu",
        action="store_true",
        help="keep SwiGLU's own SiLU in a CoLA model (full and svd always have it)",
    )
    p.add_argument("--separate", action="store_true", help="do not group q, k, v and gate, up")
    p.add_argument(
        "--core",
        choices=("auto", "Haswell", "SkylakeX"),
        default="auto",
        help="processor family that the libraries may use",
    )
    p.add_argument("--wait", choices=("passive", "active"), default="passive")
    p.add_argument("--untuned", action="store_true", help="leave malloc as it is")
    p.add_argument("--compile", action="store_true", help="torch.compile the model")
    p.add_argument("--cpu-smoke", action="store_true", help="tiny sizes, to see that it runs")
    args = p.parse_args()
    if args.cpu_smoke:
        args.width, args.layers, args.heads, args.ffn = 64, 2, 4, 96
        args.seq, args.batch, args.rank, args.steps = 32, 2, 16, 2
    return args


def environment(args):
    settings = {"OMP_WAIT_POLICY": args.wait, "OMP_NUM_THREADS": str(args.threads)}
    if not args.untuned:
        settings.update(
            MALLOC_TRIM_THRESHOLD_=str(1 << 40),
            MALLOC_TOP_PAD_=str(1 << 28),
            MALLOC_MMAP_MAX_="0",
            MALLOC_ARENA_MAX="1",
        )
    if args.core != "auto":
        avx2 = args.core == "Haswell"
        settings.update(
            OPENBLAS_CORETYPE=args.core,
            MKL_ENABLE_INSTRUCTIONS="AVX2" if avx2 else "AVX512",
            ONEDNN_MAX_CPU_ISA="AVX2" if avx2 else "AVX512_CORE",
            ATEN_CPU_CAPABILITY="avx2" if avx2 else "avx512",
        )
    return settings


def optimizers(torch, model):
    """Fused and foreach AdamW over the same parameters, decay on matrices only."""
    groups = [
        dict(
            params=[q for q in model.parameters() if (q.dim() == 2) == matrix],
            weight_decay=0.1 if matrix else 0.0,
        )
        for matrix in (True, False)
    ]
    return {
        kind: torch.optim.AdamW(
            [dict(g) for g in groups], lr=1e-4, betas=(0.9, 0.95), **{kind: True}
        )
        for kind in ("fused", "foreach")
    }


def faster_optimizer(torch, model):
    """Times a few updates with gradients of zero; returns (kind, optimizer, ms)."""
    for q in model.parameters():
        q.grad = torch.zeros_like(q)
    device, found = torch.device("cpu"), []
    for kind, optimizer in optimizers(torch, model).items():
        found.append((bench.median_ms(optimizer.step, device, 2, 5), kind))
    ms, kind = min(found)
    return kind, optimizers(torch, model)[kind], ms


def make_step(torch, args, model, optimizer):
    """One training step on one batch of random tokens; returns its loss."""
    import peer_model

    cos, sin = peer_model.rope_table(model.shape, "cpu", torch.float32)
    run = torch.compile(model) if args.compile else model
    tokens = torch.randint(0, args.vocab, (args.batch, args.seq + 1))

    def step():
        optimizer.zero_grad()
        loss = run(tokens[:, :-1], tokens[:, 1:], cos, sin)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def report(args, shape, seconds, busy):
    """Median and best step; `busy`: processor time of a step, seconds over all threads."""
    count = args.batch * args.seq
    for word, s in (("median", statistics.median(seconds)), ("best", min(seconds))):
        rate = count / s
        print(
            f"{word}: {s * 1e3:.1f} ms a step, {rate:.0f} tokens/s, "
            f"{rate * shape.flop_per_token() / 1e9:.1f} GFLOP/s"
        )
    share = busy * len(seconds) / sum(seconds)
    print(
        f"processor time {busy * 1e3:.1f} ms a step, {100 * share / args.threads:.0f} % of "
        f"{args.threads} cores (far below 100: others had the cores, the times are too long)"
    )


def main():
    args = parse()
    bench.restart_with(environment(args))
    import torch
    import peer_model

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    shape = peer_model.Shape(
        args.width,
        args.layers,
        args.heads,
        args.ffn,
        args.vocab,
        args.seq,
        args.core_type,
        args.rank if args.core_type != "full" else 0,
        args.core_type != "cola" or args.outer_silu,
        not args.separate,
    )
    model = peer_model.Llama(shape)
    kind, optimizer, optimizer_ms = faster_optimizer(torch, model)
    print(
        f"{bench.describe(torch.device('cpu'))} ({torch.backends.cpu.get_cpu_capability()}), "
        f"{args.threads} threads, core {args.core}, "
        f"malloc {'untuned' if args.untuned else 'tuned'}, wait {args.wait}"
        f"{', compiled' if args.compile else ''}"
    )
    print(
        f"{shape}, batch {args.batch}: {sum(q.numel() for q in model.parameters()) / 1e6:.1f}M "
        f"parameters, {shape.flop_per_token() / 1e6:.1f} MFLOP a token; "
        f"AdamW {kind} {optimizer_ms:.1f} ms"
    )
    step = make_step(torch, args, model, optimizer)
    first = [step() for _ in range(args.warmup)][0]
    seconds, busy = [], time.process_time()
    for _ in range(args.steps):
        start = time.perf_counter()
        last = step()
        seconds.append(time.perf_counter() - start)
    report(args, shape, seconds, (time.process_time() - busy) / args.steps)
    print(f"loss {first:.4f} -> {last:.4f}")


if __name__ == "__main__":
    main()
