"""A stack of decoder layers under tensor parallelism: plain Linear, SDPA and all-reduces.

Three strategies, T = tokens of a rank's batch, p ranks, d width, f FFN, r rank:
  full     Megatron: q, k, v and gate, up cut over their outputs, o and down over their inputs;
           2 all-reduces of T d forward, 2 backward
  vanilla  low rank, the rank cut: A over its outputs, B over its inputs, activations of width d and
           f whole on every rank, attention with all heads on every rank;
           7 all-reduces forward, T (5d + 2f); backward 4, T (3d + f), of shared inputs together
           (separate=True: one for each projection, 7, T (6d + f))
  btp      low rank, the long dimension cut: A over its inputs, B over its outputs, latents whole,
           online RMSNorm; 4 all-reduces forward, T 7r and 2 T float32 statistics, 4 backward, T 7r
No embedding, head, loss or optimizer. Every all-reduce is counted in `Comm`.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import peer_model


class Comm:
    """All-reduce over all ranks, counting calls and bytes; one rank counts and sends nothing."""

    def __init__(self, world):
        self.world, self.calls, self.bytes = world, 0, 0

    def all_reduce(self, x):
        """In place."""
        self.calls += 1
        self.bytes += x.numel() * x.element_size()
        if self.world > 1:
            dist.all_reduce(x)


class Copy(torch.autograd.Function):
    """f: forward identity, backward all-reduce."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        dy = dy.contiguous()
        ctx.comm.all_reduce(dy)
        return dy, None


class Reduce(torch.autograd.Function):
    """g: forward all-reduce, backward identity."""

    @staticmethod
    def forward(ctx, x, comm):
        x = x.contiguous()
        comm.all_reduce(x)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy, None


def statistic(x):
    """Sums of squares are float32, float64 for float64."""
    return torch.promote_types(x.dtype, torch.float32)


class OnlineDown(torch.autograd.Function):
    """z = RMSNorm(x) A^T for x cut over its columns: partial products of x * gain and sums of
    squares are all-reduced (float32 statistics in a launch of their own). The backward needs no
    communication, because z and its gradient are whole on every rank: u = dz/rms,
    dA = u^T (x gain), t = u A, dgain = sum(t x), dx = t gain - x <dz, z> / (d rms^2)."""

    @staticmethod
    def forward(ctx, x, gain, a, width, comm):
        z = (x * gain) @ a.T
        square = x.to(statistic(x)).square().sum(-1, keepdim=True)
        comm.all_reduce(z)
        comm.all_reduce(square)
        rms = torch.sqrt(square / width + 1e-6)
        z = (z / rms).to(x.dtype)
        ctx.save_for_backward(x, gain, a, z, rms)
        ctx.width = width
        return z

    @staticmethod
    def backward(ctx, dz):
        x, gain, a, z, rms = ctx.saved_tensors
        u = (dz / rms).to(x.dtype)
        t = u @ a
        da = u.flatten(0, 1).T @ (x * gain).flatten(0, 1)
        dgain = (t * x).sum((0, 1))
        dot = (dz.to(statistic(x)) * z).sum(-1, keepdim=True) / (ctx.width * rms * rms)
        return (t * gain - x * dot).to(x.dtype), dgain, da, None, None


class Layer(nn.Module):
    """What the strategies share: the cut weights, attention, SwiGLU."""

    def __init__(self, shape, rank, comm, device, dtype, seed):
        super().__init__()
        self.shape, self.rank, self.comm, self.p = shape, rank, comm, comm.world
        self.device, self.dtype = device, dtype
        self.rng = torch.Generator(device).manual_seed(seed)
        self.build(shape.width, shape.ffn, shape.rank)

    def cut(self, out, inp, parts, over=None):
        """This rank's share of `parts` random matrices [out, inp], cut over 'out', 'inp' or not."""
        pieces = []
        for _ in range(parts):
            w = (
                torch.randn(out, inp, generator=self.rng, device=self.device, dtype=self.dtype)
                / inp**0.5
            )
            if over:
                w = w.chunk(self.p, 0 if over == "out" else 1)[self.rank]
            pieces.append(w)
        return nn.Parameter(torch.cat(pieces))

    def gain(self, size):
        return nn.Parameter(torch.ones(size, device=self.device, dtype=self.dtype))

    def attend(self, q, k, v, cos, sin):
        batch, seq, width = q.shape
        heads = width * self.shape.heads // self.shape.width
        q, k, v = (y.view(batch, seq, heads, -1).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(
            peer_model.rope(q, cos, sin), peer_model.rope(k, cos, sin), v, is_causal=True
        )
        return y.transpose(1, 2).reshape(batch, seq, width)

    def mix(self, gate, up):
        return (F.silu(gate) if self.shape.outer_silu else gate) * up

    def act(self, z):
        return F.silu(z) if self.shape.core == "cola" else z

    def norm(self, x, gain):
        return F.rms_norm(x, gain.shape, gain, 1e-6)


class Full(Layer):
    def build(self, d, f, r):
        self.g1, self.g2 = self.gain(d), self.gain(d)
        self.qkv, self.o = self.cut(d, d, 3, "out"), self.cut(d, d, 1, "inp")
        self.gate_up, self.down = self.cut(f, d, 2, "out"), self.cut(d, f, 1, "inp")

    def forward(self, x, cos, sin):
        n = Copy.apply(self.norm(x, self.g1), self.comm)
        y = self.attend(*F.linear(n, self.qkv).chunk(3, -1), cos, sin)
        x = x + Reduce.apply(F.linear(y, self.o), self.comm)
        n = Copy.apply(self.norm(x, self.g2), self.comm)
        y = self.mix(*F.linear(n, self.gate_up).chunk(2, -1))
        return x + Reduce.apply(F.linear(y, self.down), self.comm)


class Vanilla(Layer):
    separate = False

    def build(self, d, f, r):
        self.g1, self.g2 = self.gain(d), self.gain(d)
        self.a_qkv, self.a_o = self.cut(r, d, 3, "out"), self.cut(r, d, 1, "out")
        self.a_gu, self.a_down = self.cut(r, d, 2, "out"), self.cut(r, f, 1, "out")
        self.b_qkv = nn.ParameterList(self.cut(d, r, 1, "inp") for _ in range(3))
        self.b_gu = nn.ParameterList(self.cut(f, r, 1, "inp") for _ in range(2))
        self.b_o, self.b_down = self.cut(d, r, 1, "inp"), self.cut(d, r, 1, "inp")

    def project(self, x, a, bs):
        """One or more projections of x, each all-reduced."""
        if self.separate:
            latents = [F.linear(Copy.apply(x, self.comm), w) for w in a.chunk(len(bs))]
        else:
            latents = F.linear(Copy.apply(x, self.comm), a).chunk(len(bs), -1)
        return [Reduce.apply(F.linear(self.act(z), b), self.comm) for z, b in zip(latents, bs)]

    def forward(self, x, cos, sin):
        y = self.attend(*self.project(self.norm(x, self.g1), self.a_qkv, self.b_qkv), cos, sin)
        x = x + self.project(y, self.a_o, [self.b_o])[0]
        y = self.mix(*self.project(self.norm(x, self.g2), self.a_gu, self.b_gu))
        return x + self.project(y, self.a_down, [self.b_down])[0]


class VanillaSeparate(Vanilla):
    separate = True


class Btp(Layer):
    def build(self, d, f, r):
        self.g1, self.g2 = self.gain(d // self.p), self.gain(d // self.p)
        self.a_qkv, self.a_o = self.cut(r, d, 3, "inp"), self.cut(r, d, 1, "inp")
        self.a_gu, self.a_down = self.cut(r, d, 2, "inp"), self.cut(r, f, 1, "inp")
        self.b_qkv = nn.ParameterList(self.cut(d, r, 1, "out") for _ in range(3))
        self.b_gu = nn.ParameterList(self.cut(f, r, 1, "out") for _ in range(2))
        self.b_o, self.b_down = self.cut(d, r, 1, "out"), self.cut(d, r, 1, "out")

    def up(self, z, bs):
        """Latents [.., n r], whole on every rank, to this rank's share of n outputs."""
        latents = Copy.apply(self.act(z), self.comm).chunk(len(bs), -1)
        return [F.linear(a, b) for a, b in zip(latents, bs)]

    def forward(self, x, cos, sin):
        d = self.shape.width
        z = OnlineDown.apply(x, self.g1, self.a_qkv, d, self.comm)
        y = self.attend(*self.up(z, self.b_qkv), cos, sin)
        x = x + self.up(Reduce.apply(F.linear(y, self.a_o), self.comm), [self.b_o])[0]
        z = OnlineDown.apply(x, self.g2, self.a_gu, d, self.comm)
        y = self.mix(*self.up(z, self.b_gu))
        return x + self.up(Reduce.apply(F.linear(y, self.a_down), self.comm), [self.b_down])[0]


STRATEGIES = {"full": Full, "vanilla": Vanilla, "vanilla-separate": VanillaSeparate, "btp": Btp}


def expected_elements(strategy, shape, tokens):
    """All-reduced elements of one layer, forward and backward, statistics left out."""
    d, f, r = shape.width, shape.ffn, shape.rank
    return (
        tokens
        * {
            "full": 4 * d,
            "vanilla": 8 * d + 3 * f,
            "vanilla-separate": 11 * d + 3 * f,
            "btp": 14 * r,
        }[strategy]
    )


class Stack:
    """`shape.layers` layers of one strategy, an input and an output gradient, and step(): one
    forward and backward. Values do not depend on the number of ranks (rounding aside)."""

    def __init__(self, strategy, shape, batch, rank, comm, device, dtype):
        self.comm, self.strategy, self.rank = comm, strategy, rank
        kind = STRATEGIES[strategy]
        self.layers = [kind(shape, rank, comm, device, dtype, 100 + i) for i in range(shape.layers)]
        self.cos, self.sin = peer_model.rope_table(shape, device, dtype)
        rng = torch.Generator(device).manual_seed(1)
        self.x, self.dy = (
            self.share(
                torch.randn(
                    batch, shape.seq, shape.width, generator=rng, device=device, dtype=dtype
                )
            )
            for _ in range(2)
        )
        self.x.requires_grad_()
        self.weights = [w for layer in self.layers for w in layer.parameters()]

    def share(self, x):
        """The residual stream is cut under BTP and whole otherwise."""
        return x.chunk(self.comm.world, -1)[self.rank].contiguous() if self.strategy == "btp" else x

    def step(self):
        """Returns (output, gradients of the input and of all weights)."""
        y = self.x
        for layer in self.layers:
            y = layer(y, self.cos, self.sin)
        return y, torch.autograd.grad(y, [self.x] + self.weights, self.dy)
