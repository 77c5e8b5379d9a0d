#!/usr/bin/env python3
"""Train tiny LLaMA-style models in PyTorch (float64, CPU) and store what happens.

A second witness of the mathematics, written from the equations and not from the C program:

    embedding, L blocks, RMSNorm, head, cross-entropy
    block:   x += o(attention(q(n), k(n), v(n))), n = RMSNorm(x)
             x += down(phi(gate(n)) * up(n)),     n = RMSNorm(x)
    RMSNorm: x / sqrt(mean(x^2) + eps) * gain
    each of q, k, v, o, gate, up, down: full rank y = W x, or low rank y = B act(A x)

    cola_trace.py OUTDIR        writes OUTDIR/<variant>/{weights,grads}.safetensors and trace.json

Every rule that another program must follow to repeat the numbers is written into trace.json.
Needs: torch (2.11 was used), numpy, safetensors.
"""

import json
import math
import os
import sys

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy, silu

LINEARS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
COMMON = dict(vocab=264, width=64, layers=2, heads=8, ffn=192, eps=1e-6, theta=10000.0)
VARIANTS = {
    "cola": dict(COMMON, kv_heads=8, core="cola", rank=16, outer_silu=False, tied=False),
    "cola_outer_gqa_tied": dict(
        COMMON, kv_heads=4, core="cola", rank=16, outer_silu=True, tied=True
    ),
    "svd": dict(COMMON, kv_heads=8, core="svd", rank=16, outer_silu=True, tied=False),
    "full": dict(COMMON, kv_heads=8, core="full", rank=0, outer_silu=True, tied=False),
}
STEPS, BATCH, SEQ = 20, 4, 32
ADAM = dict(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)
LOGIT_POSITIONS = ((0, 0), (0, 31), (1, 7), (3, 20))  # (row, position) of step 0
RULES = {
    "arithmetic": "float64 throughout, one process, CPU",
    "orientation": "every matrix is stored [out, in]; y = W x. Low rank: `X.down.weight` = A "
    "[rank, in], `X.up.weight` = B [out, rank], y = B act(A x); no bias anywhere",
    "core": "cola: act = SiLU; svd: act = identity; full: one matrix `X.weight`",
    "outer_silu": "true: m = SiLU(gate) * up; false: m = gate * up; then down(m)",
    "rmsnorm": "x / sqrt(mean(x^2) + eps) * gain, eps inside the root; before attention, before "
    "the FFN, and once before the head",
    "rope": "angle = position * theta^(-2j/hd), hd = width/heads, positions from 0; element j "
    "pairs with j + hd/2 (half-split): (a, b) -> (a cos - b sin, b cos + a sin); on q and k",
    "attention": "causal, scores scaled by 1/sqrt(hd), softmax over the past and the position "
    "itself; query head h reads key/value head h / (heads/kv_heads), rounded down",
    "padding": "ignored targets are left out of the loss only; their tokens are attended to like "
    "all others",
    "tied": "true: the head is the embedding, one tensor with one gradient (the sum of both uses), "
    "counted once in the norm",
    "loss": "cross-entropy, mean over all targets of the batch that are not -1 (one mean over the "
    "whole batch, not a mean of row means)",
    "grad_norm": "L2 norm over all gradients together, before clipping",
    "clip": "every gradient times min(1, clip / (grad_norm + 1e-6))",
    "adamw": "step t from 1: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; "
    "w -= lr * (mh / (sqrt(vh) + eps) + decay * w), w on the right being the "
    "weight before the step, mh = m/(1-b1^t), "
    "vh = v/(1-b2^t)",
    "decay_on": "every tensor of two dimensions, embedding and head included; not on gains",
    "initial_weights": "every value is exactly representable in float32, so that a float32 program "
    "starts from the same numbers",
}


# ------------------------------------------------------------------------------- the model


def parameter_shapes(c):
    """Name -> shape of every parameter, in the order in which they are stored and initialised."""
    d, kv = c["width"], c["width"] // c["heads"] * c["kv_heads"]
    sizes = dict(
        zip(
            LINEARS, ((d, d), (kv, d), (kv, d), (d, d), (c["ffn"], d), (c["ffn"], d), (d, c["ffn"]))
        )
    )
    shapes = {"model.embed_tokens.weight": (c["vocab"], d)}
    for layer in range(c["layers"]):
        at = f"model.layers.{layer}."
        shapes[at + "input_layernorm.weight"] = (d,)
        shapes[at + "post_attention_layernorm.weight"] = (d,)
        for name, (out, inp) in sizes.items():
            if c["core"] == "full":
                shapes[f"{at}{name}.weight"] = (out, inp)
            else:
                shapes[f"{at}{name}.down.weight"] = (c["rank"], inp)
                shapes[f"{at}{name}.up.weight"] = (out, c["rank"])
    shapes["model.norm.weight"] = (d,)
    if not c["tied"]:
        shapes["lm_head.weight"] = (c["vocab"], d)
    return shapes


def init_weights(c, seed):
    """Random weights, large enough that every nonlinearity matters and small enough that some
    steps clip and others do not; rounded to float32 values."""
    rng = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in parameter_shapes(c).items():
        w = torch.randn(shape, generator=rng, dtype=torch.float64)
        if len(shape) == 1:
            w = 0.9 + 0.1 * w
        elif "embed" in name:
            w = (0.05 if c["tied"] else 0.5) * w
        elif "lm_head" in name:
            w = 0.05 * w
        else:
            w = w * math.sqrt(1.5 / shape[1])
        weights[name] = w.float().double()
    return weights


def rmsnorm(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def linear(w, name, x, core):
    if core == "full":
        return x @ w[name + ".weight"].T
    z = x @ w[name + ".down.weight"].T
    return (silu(z) if core == "cola" else z) @ w[name + ".up.weight"].T


def rope(x, theta):
    """x [batch, heads, seq, hd]; element j turns with element j + hd/2."""
    seq, half = x.shape[-2], x.shape[-1] // 2
    freq = theta ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(seq, dtype=x.dtype)[:, None] * freq
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def attention(w, at, x, c):
    batch, seq, _ = x.shape
    hd = c["width"] // c["heads"]
    q, k, v = (
        linear(w, f"{at}self_attn.{n}_proj", x, c["core"]).view(batch, seq, -1, hd).transpose(1, 2)
        for n in "qkv"
    )
    group = c["heads"] // c["kv_heads"]
    q, k = rope(q, c["theta"]), rope(k, c["theta"]).repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(hd)
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v.repeat_interleave(group, 1)
    mixed = mixed.transpose(1, 2).reshape(batch, seq, -1)
    return linear(w, at + "self_attn.o_proj", mixed, c["core"])


def ffn(w, at, x, c):
    gate = linear(w, at + "mlp.gate_proj", x, c["core"])
    up = linear(w, at + "mlp.up_proj", x, c["core"])
    return linear(
        w, at + "mlp.down_proj", (silu(gate) if c["outer_silu"] else gate) * up, c["core"]
    )


def logits_of(w, c, tokens):
    """Logits [batch, seq, vocab] of tokens [batch, seq]."""
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(c["layers"]):
        at = f"model.layers.{layer}."
        x = x + attention(w, at, rmsnorm(x, w[at + "input_layernorm.weight"], c["eps"]), c)
        x = x + ffn(w, at, rmsnorm(x, w[at + "post_attention_layernorm.weight"], c["eps"]), c)
    x = rmsnorm(x, w["model.norm.weight"], c["eps"])
    return x @ w["model.embed_tokens.weight" if c["tied"] else "lm_head.weight"].T


def loss_of(logits, targets):
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


# -------------------------------------------------------------------------------- training


def make_batches(c, seed):
    """STEPS batches of (tokens, targets): noisy arithmetic sequences, so that there is something
    to learn. Ignored: two targets at random in each batch, the padded tail of row 2 in every
    other batch (its tokens are 0), and the whole of row 1 in batch 5."""
    rng = torch.Generator().manual_seed(seed)

    def draw(high, *shape):
        return torch.randint(0, high, shape, generator=rng)

    batches = []
    for step in range(STEPS):
        ids = (draw(c["vocab"], BATCH, 1) + (1 + draw(7, BATCH, 1)) * torch.arange(SEQ + 1)) % c[
            "vocab"
        ]
        noise = draw(10, BATCH, SEQ + 1) == 0
        ids[noise] = draw(c["vocab"], int(noise.sum()))
        tokens, targets = ids[:, :-1].clone(), ids[:, 1:].clone()
        targets[draw(BATCH, 2), draw(SEQ, 2)] = -1
        if step % 2 == 1:
            length = 8 + int(draw(SEQ - 8, 1))
            tokens[2, length:] = 0
            targets[2, length - 1 :] = -1
        if step == 5:
            targets[1] = -1
        batches.append((tokens, targets))
    return batches


def train(w, c, batches, adam, on_first=None):
    """AdamW over the batches; w (leaf tensors) changes in place. Returns [[step, loss, norm], ...].
    on_first(logits) is called in step 0 while w still holds its gradients and first values."""
    matrices = [p for p in w.values() if p.dim() == 2]
    gains = [p for p in w.values() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [
            dict(params=matrices, weight_decay=adam["weight_decay"]),
            dict(params=gains, weight_decay=0.0),
        ],
        lr=adam["lr"],
        betas=(adam["beta1"], adam["beta2"]),
        eps=adam["eps"],
    )
    trace = []
    for step, (tokens, targets) in enumerate(batches):
        optimizer.zero_grad()
        logits = logits_of(w, c, tokens)
        loss = loss_of(logits, targets)
        loss.backward()
        norm = math.sqrt(sum(float((p.grad**2).sum()) for p in w.values()))
        trace.append([step, loss.item(), norm])
        if step == 0 and on_first:
            on_first(logits.detach())
        for p in w.values():
            p.grad *= min(1.0, adam["clip"] / (norm + 1e-6))
        optimizer.step()
    return trace


# --------------------------------------------------------------------------------- storing


def summary(tensor):
    flat = tensor.detach().flatten()
    return dict(norm=flat.norm().item(), first=flat[:4].tolist(), last=flat[-4:].tolist())


def write_json(path, value):
    """JSON with one key a line at the top, and one batch, step or tensor a line below it."""

    def block(v):
        if isinstance(v, dict):
            inner = (f"  {json.dumps(k)}: {json.dumps(x)}" for k, x in v.items())
            return "{\n" + ",\n".join(inner) + "\n }"
        if isinstance(v, list):
            return "[\n" + ",\n".join("  " + json.dumps(x) for x in v) + "\n ]"
        return json.dumps(v)

    with open(path, "w", encoding="ascii") as f:
        f.write(
            "{\n" + ",\n".join(f" {json.dumps(k)}: {block(v)}" for k, v in value.items()) + "\n}\n"
        )


def make_variant(outdir, name, c, seed):
    os.makedirs(outdir, exist_ok=True)
    weights, batches = init_weights(c, seed), make_batches(c, seed + 1)
    save_file(weights, os.path.join(outdir, "weights.safetensors"), metadata={"format": "pt"})
    w = {k: v.clone().requires_grad_() for k, v in weights.items()}
    step0 = {}

    def on_first(logits):
        save_file(
            {k: v.grad.clone() for k, v in w.items()},
            os.path.join(outdir, "grads.safetensors"),
            metadata={"format": "pt"},
        )
        step0["logits"] = [
            dict(row=r, position=p, logits=logits[r, p].tolist()) for r, p in LOGIT_POSITIONS
        ]

    trace = train(w, c, batches, ADAM, on_first)
    write_json(
        os.path.join(outdir, "trace.json"),
        {
            "variant": name,
            "made_by": f"validation/witness/cola_trace.py, torch {torch.__version__}, seed {seed}",
            "model": c,
            "rules": RULES,
            "optimizer": dict(ADAM, type="AdamW", steps=STEPS, batch=BATCH, seq=SEQ),
            "files": {
                "weights.safetensors": "before step 0, F64",
                "grads.safetensors": "of step 0, before clipping, F64",
            },
            "trace_columns": "step, loss before the update, grad norm before clipping",
            "trace": trace,
            "logits_step0": step0["logits"],
            "weights_after": {k: summary(v) for k, v in w.items()},
            "tokens": [t.tolist() for t, _ in batches],
            "targets": [t.tolist() for _, t in batches],
        },
    )
    clipped = sum(norm > ADAM["clip"] for _, _, norm in trace)
    print(
        f"{name}: {sum(v.numel() for v in weights.values())} parameters, loss {trace[0][1]:.6f} -> "
        f"{trace[-1][1]:.6f}, grad norm {trace[0][2]:.4f} -> {trace[-1][2]:.4f}, "
        f"{clipped} steps clipped"
    )


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for i, (name, c) in enumerate(VARIANTS.items()):
        make_variant(os.path.join(sys.argv[1], name), name, c, 1000 + 10 * i)


if __name__ == "__main__":
    main()
