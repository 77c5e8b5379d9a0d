"""The LLaMA of the peer benchmarks: plain PyTorch, one device, full rank or low rank.

Projections of one input are grouped (q, k, v in one matrix; gate and up in one; for a low-rank
model their A factors in one), because that is the fastest plain form; grouped=False undoes it.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Shape:
    width: int
    layers: int
    heads: int
    ffn: int
    vocab: int
    seq: int
    core: str = "full"  # full: y = W x; cola: y = B SiLU(A x); svd: y = B A x
    rank: int = 0
    outer_silu: bool = True  # SwiGLU's own SiLU
    grouped: bool = True

    def multiplies_per_token(self):
        """Weights that a token is multiplied by: all matrices and the head, not the embedding."""
        d, f, r = self.width, self.ffn, self.rank
        block = 4 * d * d + 3 * d * f if self.core == "full" else 4 * r * 2 * d + 3 * r * (d + f)
        return self.layers * block + d * self.vocab

    def flop_per_token(self):
        """Forward and backward: 6 for each weight, and attention 6 L d seq, which is the
        12 L d seq of all pairs halved for the causal mask. Recomputation is not counted."""
        return 6 * self.multiplies_per_token() + 6 * self.layers * self.width * self.seq


class Projections(nn.Module):
    """Several linear maps of one input."""

    def __init__(self, shape, inp, outs):
        super().__init__()
        self.core, self.outs = shape.core, outs
        self.groups = [outs] if shape.grouped else [(o,) for o in outs]
        if self.core == "full":
            self.w = nn.ModuleList(nn.Linear(inp, sum(g), bias=False) for g in self.groups)
        else:
            self.a = nn.ModuleList(
                nn.Linear(inp, shape.rank * len(g), bias=False) for g in self.groups
            )
            self.b = nn.ModuleList(nn.Linear(shape.rank, o, bias=False) for o in outs)

    def forward(self, x):
        if self.core == "full":
            return [y for w, g in zip(self.w, self.groups) for y in w(x).split(g, -1)]
        latents = []
        for a, g in zip(self.a, self.groups):
            z = a(x)
            latents += (F.silu(z) if self.core == "cola" else z).chunk(len(g), -1)
        return [b(z) for b, z in zip(self.b, latents)]


def rope_table(shape, device, dtype):
    """cos and sin, each [seq, head_dim/2]."""
    half = shape.width // shape.heads // 2
    freq = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(shape.seq, dtype=torch.float64)[:, None] * freq
    return angle.cos().to(device, dtype), angle.sin().to(device, dtype)


def rope(x, cos, sin):
    """x [batch, heads, seq, head_dim], half-split pairs."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape, d = shape, shape.width
        self.norm1, self.norm2 = nn.RMSNorm(d, 1e-6), nn.RMSNorm(d, 1e-6)
        self.qkv = Projections(shape, d, (d, d, d))
        self.o = Projections(shape, d, (d,))
        self.gate_up = Projections(shape, d, (shape.ffn, shape.ffn))
        self.down = Projections(shape, shape.ffn, (d,))

    def forward(self, x, cos, sin):
        batch, seq, d = x.shape
        q, k, v = (
            y.view(batch, seq, self.shape.heads, -1).transpose(1, 2)
            for y in self.qkv(self.norm1(x))
        )
        y = F.scaled_dot_product_attention(rope(q, cos, sin), rope(k, cos, sin), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, seq, d))[0]
        gate, up = self.gate_up(self.norm2(x))
        return x + self.down((F.silu(gate) if self.shape.outer_silu else gate) * up)[0]


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, 1e-6)
        self.head = nn.Linear(shape.width, shape.vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens, targets, cos, sin):
        """Mean cross-entropy of targets, in float32."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())
