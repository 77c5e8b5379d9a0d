"""The shapes that the GPU benchmarks share, and the GEMMs inside a layer of each strategy."""

import peer_model

# name: width, ffn, heads, sequences of 2048 tokens, layers of the stack
PRESETS = {
    "d4096": (4096, 11008, 32, 4, 4),
    "d2048": (2048, 5504, 32, 8, 4),
    "d8192": (8192, 22016, 64, 2, 2),
    "smoke": (64, 96, 4, 2, 2),
}


def add_options(parser):
    parser.add_argument(
        "--preset", choices=PRESETS, default="d2048", help="shape of a layer (default d2048)"
    )
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=0, help="sequences (default by preset)")
    parser.add_argument(
        "--layers", type=int, default=0, help="default: 24 for a step, 4/4/2 for a stack"
    )
    parser.add_argument(
        "--rank", type=int, default=0, help="of a low-rank projection (default width/4)"
    )
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument(
        "--outer-silu", action="store_true", help="keep SwiGLU's own SiLU in a CoLA model"
    )
    parser.add_argument(
        "--sdpa",
        choices=("default", "flash", "cudnn"),
        default="default",
        help="kernel of scaled_dot_product_attention",
    )
    parser.add_argument(
        "--repeats", type=int, default=15, help="timed repetitions; the median counts"
    )
    parser.add_argument(
        "--cpu-smoke", action="store_true", help="tiny shapes on the CPU, to see that it runs"
    )


def settle(args):
    """Tiny shapes for --cpu-smoke."""
    if args.cpu_smoke:
        args.preset, args.seq, args.vocab, args.repeats = "smoke", 32, 128, 2


def make(args, core, layers):
    """(Shape, batch) of the preset with a core; `layers` where --layers was not given."""
    width, ffn, heads, batch, _ = PRESETS[args.preset]
    low = core != "full"
    shape = peer_model.Shape(
        width,
        args.layers or layers,
        heads,
        ffn,
        args.vocab,
        args.seq,
        core,
        (args.rank or width // 4) if low else 0,
        core != "cola" or args.outer_silu,
    )
    return shape, args.batch or batch


def gemms(strategy, s, p):
    """Forward GEMMs of one layer on one of p ranks: (K, N, how many)."""
    d, f, r = s.width, s.ffn, s.rank
    if strategy == "full":
        return [(d, 3 * d // p, 1), (d // p, d, 1), (d, 2 * f // p, 1), (f // p, d, 1)]
    if strategy == "vanilla":
        return [
            (d, 3 * r // p, 1),
            (d, r // p, 1),
            (r // p, d, 5),
            (d, 2 * r // p, 1),
            (r // p, f, 2),
            (f, r // p, 1),
        ]
    return [
        (d // p, 3 * r, 1),
        (d // p, r, 1),
        (r, d // p, 5),
        (d // p, 2 * r, 1),
        (r, f // p, 2),
        (f // p, r, 1),
    ]


def reductions(strategy, s, tokens):
    """All-reduced elements of one layer, forward and backward, one entry a call."""
    d, f, r = s.width, s.ffn, s.rank
    if strategy == "full":
        calls = 4 * [d]
    elif strategy == "vanilla":
        calls = 4 * [d] + 2 * [f] + [d] + 3 * [d] + [f]
    else:
        calls = 2 * [3 * r, r, 2 * r, r]
    return [tokens * n for n in calls]
