#!/usr/bin/env python3
"""What the parts of a step cost on this GPU, measured now, and their sum: the floor.

    floor_gpu.py chip  [--gpus 2]       copy bandwidth, square GEMMs, all-reduce by size
    floor_gpu.py step  --core-type X    whole training step on one GPU: GEMMs, attention, head,
                                        AdamW, elementwise
    floor_gpu.py stack [--gpus 2]       one decoder layer under tensor parallelism, a rank's share:
                                        GEMMs, attention, all-reduces; no elementwise work

GEMM: torch.matmul for each shape: forward x W^T, dgrad dy W, wgrad dy^T x. Attention: SDPA with
cuDNN's kernel (--sdpa flash for the other), causal, forward and backward. Memory-bound parts are
counted in bytes and divided by the copy bandwidth (bytes read + written) of the same run:
  AdamW with float32 master weights   30 bytes a parameter
  elementwise, each operation once and unfused with GEMMs, elements a token and layer, bf16:
    norms with residual additions 8 d forward, 8 d backward; RoPE 4 d and 4 d;
    SwiGLU 3 f and 5 f; SiLU on the latents of CoLA 2 and 3 for each of 7 r
  cross-entropy                       logits read and their gradient written once
Everything runs in one process and one go, so that the sum and its parts belong together.
"""

import argparse

import bench
import shapes
import torch
import torch.distributed as dist
from torch.nn import functional as F

MIB = 2**20


class Meter:
    """Measures parts on one device; equal shapes are measured once. With several ranks every rank
    measures and the slowest counts."""

    def __init__(self, device, dtype, repeats):
        self.device, self.dtype, self.repeats, self.known = device, dtype, repeats, {}

    def ms(self, key, fn, batch=10):
        if key not in self.known:
            median = bench.median_ms(
                fn, self.device, 3, self.repeats, 1 if self.device.type == "cpu" else batch
            )
            self.known[key] = bench.slowest(median, self.device)
        return self.known[key]

    def rand(self, *size):
        return torch.randn(*size, device=self.device, dtype=self.dtype)

    def gemm(self, m, k, n):
        """(forward, dgrad, wgrad) in ms of y[m,n] = x[m,k] W[n,k]^T."""
        if ("gemm", m, k, n, 0) not in self.known:
            x, w, dy = self.rand(m, k), self.rand(n, k), self.rand(m, n)
            y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)
            for i, fn in enumerate(
                (
                    lambda: torch.matmul(x, w.T, out=y),
                    lambda: torch.matmul(dy, w, out=dx),
                    lambda: torch.matmul(dy.T, x, out=dw),
                )
            ):
                self.ms(("gemm", m, k, n, i), fn)
        return [self.known["gemm", m, k, n, i] for i in range(3)]

    def gemms(self, m, shapes_):
        """(ms, FLOP) of forward, dgrad and wgrad of a list of (K, N, count)."""
        ms = sum(count * sum(self.gemm(m, k, n)) for k, n, count in shapes_)
        return ms, sum(6.0 * m * k * n * count for k, n, count in shapes_)

    def attention(self, batch, heads, seq, hd):
        """(forward, backward) in ms, from tensors laid out [batch, seq, heads, hd]."""
        q, k, v, dy = (self.rand(batch, seq, heads, hd).transpose(1, 2) for _ in range(4))
        for t in (q, k, v):
            t.requires_grad_()

        def forward():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        def both():
            torch.autograd.grad(forward(), (q, k, v), dy)

        one = self.ms(("attention", batch, heads, seq, hd), forward)
        return one, self.ms(("attention both", batch, heads, seq, hd), both) - one

    def copy_rate(self):
        """Bytes read plus written in a millisecond, copying 1 GiB."""
        x = torch.empty(
            MIB if self.device.type == "cpu" else 512 * MIB,
            device=self.device,
            dtype=torch.bfloat16,
        )
        y = torch.zeros_like(x)
        return 2 * x.numel() * 2 / self.ms("copy", lambda: x.copy_(y))

    def all_reduce(self, elements):
        if dist.get_world_size() == 1:
            return 0.0
        x = torch.zeros(elements, device=self.device, dtype=self.dtype)
        return self.ms(("all-reduce", elements), lambda: dist.all_reduce(x), 5)


def show(rank, text):
    if rank == 0:
        print(text, flush=True)


def run_chip(meter, rank, args):
    show(rank, f"copy: {meter.copy_rate() / 1e9:.2f} TB/s (read + written)")
    for n in (64,) if args.cpu_smoke else (4096, 8192):
        ms, flop = meter.gemms(n, [(n, n, 1)])
        show(
            rank,
            f"GEMM {n}^3: forward, dgrad, wgrad "
            f"{' '.join(f'{t:.3f}' for t in meter.gemm(n, n, n))} ms, "
            f"{flop / ms / 1e9:.0f} TFLOP/s",
        )
    world = dist.get_world_size()
    for mib in (1, 2) if args.cpu_smoke else (1, 4, 16, 32, 64, 128, 256):
        if world > 1:
            ms = meter.all_reduce(mib * MIB // meter.dtype.itemsize)
            bus = mib * MIB * 2 * (world - 1) / world / ms / 1e6
            show(rank, f"all-reduce {mib:4d} MiB: {ms * 1e3:8.1f} us, {bus:.0f} GB/s bus")


def elementwise_elements(s):
    """Elements read and written a token and layer, as the text above counts them."""
    latents = (2 + 3) * 7 * s.rank if s.core == "cola" else 0
    return 24 * s.width + 8 * s.ffn + latents


def run_step(meter, rank, args):
    s, batch = shapes.make(args, args.core_type, 2 if args.cpu_smoke else 24)
    tokens, rate, size = batch * args.seq, meter.copy_rate(), 2
    gemm, flop = meter.gemms(tokens, shapes.gemms("full" if s.core == "full" else "btp", s, 1))
    attention = meter.attention(batch, s.heads, args.seq, s.width // s.heads)
    head, head_flop = meter.gemms(tokens, [(s.width, args.vocab, 1)])
    params = s.multiplies_per_token() + args.vocab * s.width + (2 * s.layers + 1) * s.width
    parts = {
        "GEMM": gemm * s.layers,
        "attention": sum(attention) * s.layers,
        "head": head + 2 * tokens * args.vocab * size / rate,
        "AdamW": 30 * params / rate,
        "elementwise": elementwise_elements(s) * s.layers * tokens * size / rate,
    }
    total = sum(parts.values())
    show(rank, f"{s}, batch {batch}: {params / 1e6:.0f}M parameters, copy {rate / 1e9:.2f} TB/s")
    show(
        rank,
        f"GEMM {flop / gemm / 1e9:.0f} TFLOP/s, head {head_flop / head / 1e9:.0f} TFLOP/s, "
        f"attention {attention[0]:.3f} + {attention[1]:.3f} ms a layer",
    )
    show(
        rank,
        f"{s.core}: {' + '.join(f'{k} {v:.1f}' for k, v in parts.items())} = {total:.1f} ms, "
        f"{tokens / total * 1e3:.0f} tokens/s",
    )


def run_stack(meter, rank, args):
    world = dist.get_world_size()
    for strategy in ("full", "vanilla", "btp"):
        s, batch = shapes.make(args, "full" if strategy == "full" else "cola", 1)
        tokens = batch * args.seq
        gemm, flop = meter.gemms(tokens, shapes.gemms(strategy, s, world))
        heads = s.heads if strategy == "vanilla" else s.heads // world
        attention = sum(meter.attention(batch, heads, args.seq, s.width // s.heads))
        calls = shapes.reductions(strategy, s, tokens)
        comm = sum(meter.all_reduce(n) for n in calls)
        show(
            rank,
            f"{args.preset} b{batch} r{s.rank} {strategy:8s} GEMM {gemm:.2f} ms "
            f"({flop / gemm / 1e9:.0f} TFLOP/s), attention {attention:.2f}, all-reduce {comm:.2f} "
            f"({sum(calls) * meter.dtype.itemsize / MIB:.0f} MiB in {len(calls)}), serial floor "
            f"{gemm + attention + comm:.2f}, "
            f"communication hidden {max(gemm + attention, comm):.2f}",
        )


def run_rank(rank, world, device, args):
    dtype = torch.float32 if args.cpu_smoke else torch.bfloat16
    bench.choose_sdpa("default" if args.cpu_smoke else args.sdpa)
    show(rank, f"{bench.describe(device)}; {world} ranks, sdpa {args.sdpa}")
    meter = Meter(device, dtype, args.repeats)
    {"chip": run_chip, "step": run_step, "stack": run_stack}[args.what](meter, rank, args)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("what", choices=("chip", "step", "stack"))
    p.add_argument("--gpus", type=int, help="ranks (default 2, for a step 1)")
    p.add_argument("--core-type", choices=("full", "cola", "svd"), default="full", help="of a step")
    shapes.add_options(p)
    p.set_defaults(sdpa="cudnn")
    args = p.parse_args()
    shapes.settle(args)
    if args.what == "step" and args.gpus not in (None, 1):
        p.error(f"--gpus {args.gpus}: a step is measured on one GPU")
    bench.run_ranks(args.gpus or (1 if args.what == "step" else 2), args.cpu_smoke, run_rank, args)


if __name__ == "__main__":
    main()
