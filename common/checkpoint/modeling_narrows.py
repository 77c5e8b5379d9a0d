"""Low-rank LLaMA models of narrows for transformers: AutoModelForCausalLM.from_pretrained(folder,
trust_remote_code=True).

A linear layer is y = B act(A x): "cola" with act = SiLU, "svd" without. Folders of model_type
"cola" hold the factors as CoLA's own code does, cola_a [in, rank] and cola_b [rank, out]; those of
model_type "narrows" as down.weight [rank, in] and up.weight [out, rank].
"""
import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM


class NarrowsConfig(LlamaConfig):
    model_type = "narrows"

    def __init__(self, layer="svd", rank=None, outer_silu=True, qkv_bias=False, **more):
        super().__init__(**more)
        self.layer = layer
        self.rank = rank or self.hidden_size // 4
        self.outer_silu = outer_silu
        self.qkv_bias = qkv_bias


class ColaConfig(LlamaConfig):
    model_type = "cola"

    def __init__(self, rank=None, lr_act_type="silu", only_lr_act=True, max_sequence_length=1024,
                 **more):
        more.setdefault("max_position_embeddings", max_sequence_length)
        super().__init__(**more)
        self.rank = rank or self.hidden_size // 4
        self.lr_act_type = lr_act_type
        self.only_lr_act = only_lr_act
        self.max_sequence_length = max_sequence_length


class LowRank(nn.Module):
    """down and up, with SiLU between them or nothing."""

    def __init__(self, wide, rank, act, bias):
        super().__init__()
        self.down = nn.Linear(wide.in_features, rank, bias=False)
        self.up = nn.Linear(rank, wide.out_features, bias=False)
        self.bias = nn.Parameter(torch.zeros(wide.out_features)) if bias else None
        self.act = act

    def forward(self, x):
        z = self.down(x)
        y = self.up(functional.silu(z) if self.act else z)
        return y if self.bias is None else y + self.bias


class Cola(nn.Module):
    """CoLA's layer under CoLA's names."""

    def __init__(self, wide, rank):
        super().__init__()
        self.cola_a = nn.Parameter(torch.zeros(wide.in_features, rank))
        self.cola_b = nn.Parameter(torch.zeros(rank, wide.out_features))

    def forward(self, x):
        return functional.silu(x @ self.cola_a) @ self.cola_b


LINEARS = (("self_attn", "q_proj"), ("self_attn", "k_proj"), ("self_attn", "v_proj"),
           ("self_attn", "o_proj"), ("mlp", "gate_proj"), ("mlp", "up_proj"), ("mlp", "down_proj"))


def replace_linears(model, make, outer_silu):
    """Every linear layer of every block becomes make(name, layer)."""
    for block in model.model.layers:
        for part, name in LINEARS:
            module = getattr(block, part)
            setattr(module, name, make(name, getattr(module, name)))
        if not outer_silu:
            block.mlp.act_fn = nn.Identity()


class NarrowsForCausalLM(LlamaForCausalLM):
    config_class = NarrowsConfig

    def __init__(self, config):
        super().__init__(config)
        biased = ("q_proj", "k_proj", "v_proj") if config.qkv_bias else ()

        def make(name, wide):
            if config.layer != "full":
                return LowRank(wide, config.rank, config.layer == "cola", name in biased)
            return nn.Linear(wide.in_features, wide.out_features, bias=name in biased)

        replace_linears(self, make, config.outer_silu)
        self.post_init()


class ColaForCausalLM(LlamaForCausalLM):
    config_class = ColaConfig

    def __init__(self, config):
        super().__init__(config)
        replace_linears(self, lambda name, wide: Cola(wide, config.rank), not config.only_lr_act)
        self.post_init()
