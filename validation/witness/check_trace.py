#!/usr/bin/env python3
"""Check the stored traces by a second path that shares no code with the first.

A forward and a backward pass written by hand in numpy float64 (RoPE by complex numbers, loops over
sequences and heads) and AdamW written out; it reads only the stored files:

 1. the hand-written backward against central differences of the hand-written forward;
 2. every variant of validation/data/witness: logits and gradients of step 0, loss and grad norm
    of all steps, weights at the end;
 3. validation/data/stories260k: its stored logits and its 50 training steps.

    check_trace.py DATADIR      DATADIR = validation/data; prints the worst difference of each
                                comparison beside its bound; exits 1 where one is out of bounds
Needs: numpy, safetensors.
"""

import json
import os
import sys

import numpy as np
from safetensors.numpy import load_file

# ----------------------------------------------------- forward and backward, one sequence at a time


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def silu(z):
    return z * sigmoid(z)


def dsilu(z):
    s = sigmoid(z)
    return s + z * s * (1 - s)


class Model:
    """Weights w (name -> array) with configuration c; gradients gather in self.grad."""

    def __init__(self, w, c):
        self.w, self.c = w, c
        self.hd = c["width"] // c["heads"]
        self.grad = {k: np.zeros_like(v) for k, v in w.items()}
        self.head = "model.embed_tokens.weight" if c["tied"] else "lm_head.weight"

    def norm(self, x, name):
        """Returns RMSNorm(x) and the closure that turns its gradient into that of x."""
        gain, n = self.w[name], x.shape[-1]
        rms = np.sqrt(np.sum(x * x, -1, keepdims=True) / n + self.c["eps"])

        def back(dy):
            self.grad[name] += np.sum(dy * x / rms, 0)
            u = dy * gain
            return u / rms - x * np.sum(u * x, -1, keepdims=True) / (n * rms**3)

        return x / rms * gain, back

    def matrix(self, x, name):
        w = self.w[name]

        def back(dy):
            self.grad[name] += dy.T @ x
            return dy @ w

        return x @ w.T, back

    def linear(self, x, name):
        if self.c["core"] == "full":
            return self.matrix(x, name + ".weight")
        z, back_down = self.matrix(x, name + ".down.weight")
        cola = self.c["core"] == "cola"
        y, back_up = self.matrix(silu(z) if cola else z, name + ".up.weight")

        def back(dy):
            da = back_up(dy)
            return back_down(da * dsilu(z) if cola else da)

        return y, back

    def turn(self, x, sign):
        """RoPE of one head, x [seq, hd], as multiplication of x[j] + i x[j + hd/2] by a phase."""
        half = self.hd // 2
        angle = np.outer(np.arange(len(x)), self.c["theta"] ** (-2 * np.arange(half) / self.hd))
        z = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * sign * angle)
        return np.concatenate((z.real, z.imag), 1)

    def one_head(self, q, k, v):
        q, k, scale = self.turn(q, 1), self.turn(k, 1), self.hd**-0.5
        s = q @ k.T * scale
        p = np.tril(np.exp(s - s.max(1, keepdims=True)))
        p /= p.sum(1, keepdims=True)

        def back(do):
            dp = do @ v.T
            ds = p * (dp - np.sum(p * dp, 1, keepdims=True)) * scale
            return self.turn(ds @ k, -1), self.turn(ds.T @ q, -1), p.T @ do

        return p @ v, back

    def attention(self, x, at):
        hd, share = self.hd, self.c["heads"] // self.c["kv_heads"]
        (q, back_q), (k, back_k), (v, back_v) = (
            self.linear(x, f"{at}self_attn.{n}_proj") for n in "qkv"
        )
        out, backs = np.empty((len(x), self.c["heads"] * hd)), []
        for h in range(self.c["heads"]):
            mine, theirs = slice(h * hd, h * hd + hd), slice(h // share * hd, h // share * hd + hd)
            out[:, mine], back_head = self.one_head(q[:, mine], k[:, theirs], v[:, theirs])
            backs.append((mine, theirs, back_head))
        y, back_o = self.linear(out, at + "self_attn.o_proj")

        def back(dy):
            do, dq, dk, dv = back_o(dy), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
            for mine, theirs, back_head in backs:
                a, b, c = back_head(do[:, mine])
                dq[:, mine] += a
                dk[:, theirs] += b
                dv[:, theirs] += c
            return back_q(dq) + back_k(dk) + back_v(dv)

        return y, back

    def ffn(self, x, at):
        gate, back_gate = self.linear(x, at + "mlp.gate_proj")
        up, back_up = self.linear(x, at + "mlp.up_proj")
        outer = self.c["outer_silu"]
        act = silu(gate) if outer else gate
        y, back_down = self.linear(act * up, at + "mlp.down_proj")

        def back(dy):
            dm = back_down(dy)
            return back_gate(dm * up * (dsilu(gate) if outer else 1)) + back_up(dm * act)

        return y, back

    def sequence(self, tokens):
        """Logits [seq, vocab] of one sequence, and the closure that takes their gradient."""
        table, backs = self.w["model.embed_tokens.weight"], []
        x = table[tokens]
        for layer in range(self.c["layers"]):
            at = f"model.layers.{layer}."
            for gain, part in (
                ("input_layernorm", self.attention),
                ("post_attention_layernorm", self.ffn),
            ):
                n, back_norm = self.norm(x, f"{at}{gain}.weight")
                y, back_part = part(n, at)
                x = x + y
                backs.append((back_norm, back_part))
        n, back_norm = self.norm(x, "model.norm.weight")
        logits, back_head = self.matrix(n, self.head)

        def back(dlogits):
            dx = back_norm(back_head(dlogits))
            for norm_, part_ in reversed(backs):
                dx = dx + norm_(part_(dx))
            np.add.at(self.grad["model.embed_tokens.weight"], tokens, dx)

        return logits, back

    def loss(self, tokens, targets, gradients=True):
        """Mean cross-entropy over the valid targets of a batch; its gradients go to self.grad."""
        for g in self.grad.values():
            g[:] = 0
        valid, total = np.sum(targets >= 0), 0.0
        for row, want in zip(tokens, targets):
            logits, back = self.sequence(row)
            at = np.nonzero(want >= 0)[0]
            top = logits.max(1, keepdims=True)
            e = np.exp(logits - top)
            z = e.sum(1, keepdims=True)
            total += np.sum(np.log(z[at, 0]) + top[at, 0] - logits[at, want[at]])
            if gradients:
                d = np.zeros_like(logits)
                d[at] = (e / z)[at]
                d[at, want[at]] -= 1
                back(d / valid)
        return total / valid


def adamw(model, state, step, a):
    """One step (counted from 0); returns the grad norm before clipping."""
    norm = np.sqrt(sum(np.sum(g * g) for g in model.grad.values()))
    scale, t = min(1.0, a["clip"] / (norm + 1e-6)), step + 1
    for name, w in model.w.items():
        g = model.grad[name] * scale
        m, v = state.setdefault(name, [np.zeros_like(w), np.zeros_like(w)])
        m += (1 - a["beta1"]) * (g - m)
        v += (1 - a["beta2"]) * (g * g - v)
        mh, vh = m / (1 - a["beta1"] ** t), v / (1 - a["beta2"] ** t)
        decay = a["weight_decay"] if w.ndim == 2 else 0.0
        w -= a["lr"] * (mh / (np.sqrt(vh) + a["eps"]) + decay * w)
    return norm


# --------------------------------------------------------------------------------- comparisons


class Report:
    """Prints worst differences beside their bounds and remembers whether one was out of bounds."""

    ok = True

    def hold(self, what, worst, bound):
        good = bool(worst <= bound)  # NaN is not good
        self.ok &= good
        print(f"{'ok  ' if good else 'FAIL'} {what:62s} {worst:.1e}  (bound {bound:.0e})")


def far(a, b):
    """Largest difference relative to the largest value of b."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return np.abs(a - b).max() / np.abs(b).max() if a.shape == b.shape else np.inf


def ends(array, count):
    """Norm, first and last values of a tensor, as the traces store them."""
    flat = array.ravel()
    return np.r_[np.linalg.norm(flat), flat[:count], flat[-count:]]


def central_differences(model, tokens, targets):
    """Worst difference between backward pass and central differences, 3 entries a tensor."""
    model.loss(tokens, targets)
    grad, worst, rng = {k: g.copy() for k, g in model.grad.items()}, 0.0, np.random.default_rng(7)
    for name, w in model.w.items():
        for _ in range(3):
            at = tuple(rng.integers(0, n) for n in w.shape)
            if "embed" in name:
                at = (tokens[0][3], at[1])  # a row that is used
            kept, h, sides = w[at], 1e-4, []
            for delta in (h, -h):
                w[at] = kept + delta
                sides.append(model.loss(tokens, targets, gradients=False))
            w[at] = kept
            scale = np.abs(grad[name]).max()
            worst = max(worst, abs((sides[0] - sides[1]) / (2 * h) - grad[name][at]) / scale)
    return worst


def check_variant(report, folder, name):
    with open(os.path.join(folder, "trace.json"), encoding="ascii") as f:
        stored = json.load(f)
    w = load_file(os.path.join(folder, "weights.safetensors"))
    grads = load_file(os.path.join(folder, "grads.safetensors"))
    tokens, targets = np.array(stored["tokens"]), np.array(stored["targets"])
    model = Model({k: v.copy() for k, v in w.items()}, stored["model"])
    report.hold(
        f"{name}: numpy backward against central differences",
        central_differences(model, tokens[0], targets[0]),
        1e-6,
    )
    report.hold(
        f"{name}: logits of step 0",
        max(
            far(model.sequence(tokens[0][x["row"]])[0][x["position"]], x["logits"])
            for x in stored["logits_step0"]
        ),
        1e-12,
    )
    model.loss(tokens[0], targets[0])
    report.hold(
        f"{name}: gradients of step 0, worst of {len(grads)} tensors",
        (
            max(far(model.grad[k], g) for k, g in grads.items())
            if grads.keys() == model.grad.keys()
            else np.inf
        ),
        1e-12,
    )
    state, worst = {}, [0.0, 0.0]
    for step, loss, norm in stored["trace"]:
        worst[0] = max(worst[0], far(model.loss(tokens[step], targets[step]), loss))
        worst[1] = max(worst[1], far(adamw(model, state, step, stored["optimizer"]), norm))
    report.hold(f"{name}: loss of {len(stored['trace'])} steps", worst[0], 1e-12)
    report.hold(f"{name}: grad norm of {len(stored['trace'])} steps", worst[1], 1e-12)
    report.hold(
        f"{name}: weights after the last step",
        max(
            far(ends(model.w[k], 4), np.r_[s["norm"], s["first"], s["last"]])
            for k, s in stored["weights_after"].items()
        ),
        1e-12,
    )


def check_stories(report, folder):
    def read(name):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            return json.load(f)

    hf, gold, stored = (
        read(n) for n in ("config.json", "stories260k_logits.json", "stories260k_train_trace.json")
    )
    c = dict(
        vocab=hf["vocab_size"],
        width=hf["hidden_size"],
        layers=hf["num_hidden_layers"],
        heads=hf["num_attention_heads"],
        kv_heads=hf["num_key_value_heads"],
        tied=True,
        ffn=hf["intermediate_size"],
        eps=hf["rms_norm_eps"],
        theta=hf["rope_theta"],
        core="full",
        outer_silu=True,
    )
    w = load_file(os.path.join(folder, "model.safetensors"))
    model = Model({k: v.astype(np.float64) for k, v in w.items()}, c)
    ids = np.array(gold["tokens"])
    logits, _ = model.sequence(ids[:-1])
    top = logits.max(1, keepdims=True)
    nll = np.log(np.exp(logits - top).sum(1)) + top[:, 0] - logits[np.arange(len(ids) - 1), ids[1:]]
    report.hold(
        "stories260k: loss at each of 200 positions", far(nll, gold["nll_per_position"]), 1e-8
    )
    report.hold(
        "stories260k: logits at the stored positions",
        max(far(model.sequence(ids)[0][int(p)], v) for p, v in gold["logits"].items()),
        1e-8,
    )
    check_stories_training(
        report,
        model,
        stored,
        np.fromfile(os.path.join(folder, "train_tokens.u16"), "<u2").astype(int),
    )


def check_stories_training(report, model, stored, raw):
    batch, seq = stored["batch"]
    optimizer = dict(stored["optimizer"], clip=stored["optimizer"]["clip_global_norm"])
    state, worst = {}, [0.0, 0.0, 0.0]
    for step, loss, norm in stored["trace"]:
        rows = np.array([raw[(step * batch + i) * seq :][: seq + 1] for i in range(batch)])
        worst[0] = max(worst[0], far(model.loss(rows[:, :-1], rows[:, 1:]), loss))
        if step == 0:
            worst[2] = max(
                far(ends(model.grad[k], 4), np.r_[s["norm"], s["first"], s["last"]])
                for k, s in stored["grads_at_step0"].items()
            )
        worst[1] = max(worst[1], far(adamw(model, state, step, optimizer), norm))
    report.hold("stories260k: loss of 50 steps", worst[0], 1e-12)
    report.hold("stories260k: grad norm of 50 steps", worst[1], 1e-12)
    report.hold("stories260k: gradients of step 0, where stored", worst[2], 1e-8)
    report.hold(
        "stories260k: weights after the last step, where stored",
        max(
            far(ends(model.w[k], 4)[:5], np.r_[s["norm"], s["first"]])
            for k, s in stored["weights_after_50"].items()
        ),
        1e-8,
    )


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    report, root = Report(), os.path.join(sys.argv[1], "witness")
    for name in sorted(os.listdir(root)):
        check_variant(report, os.path.join(root, name), name)
    check_stories(report, os.path.join(sys.argv[1], "stories260k"))
    sys.exit(0 if report.ok else 1)


if __name__ == "__main__":
    main()
