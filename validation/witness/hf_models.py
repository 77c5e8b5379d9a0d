#!/usr/bin/env python3
"""Models by transformers, and narrows' exports read by it: weights and logits for the C tests.

    hf_models.py NARROWS OUTDIR

llama, qwen2: made and saved by transformers. cola, svd, merged: trained a few steps by NARROWS,
exported, and loaded with trust_remote_code (merged: without). OUTDIR/<name> gets config.json,
model.safetensors and logits.json: 32 tokens and the logits after each, computed by transformers in
float32. Says whether what narrows makes of llama and qwen2 and exports again gives transformers the
same logits, bit for bit.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM

POSITIONS = 32
SHAPE = dict(vocab_size=67, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=64, initializer_range=0.3,
             bos_token_id=1, eos_token_id=2)
TRAIN = """model:
  layer: %s
  width: 32
  layers: 2
  heads: 4
  kv_heads: %d
  ffn: 48
  rank: 12
  tied: %s
  rope_theta: %s
  outer_silu: %s
data:
  train: text
train:
  steps: 12
  batch: 8
  seq: 48
  lr: 1e-2
"""


def tokens(vocab):
    """32 ids, no two neighbours alike."""
    return [(7 * i * i + 3 * i + 5) % vocab for i in range(POSITIONS)]


def logits_of(folder, ids, code=False):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager",
                                                 trust_remote_code=code)
    model.eval()
    with torch.no_grad():
        return model, model(torch.tensor([ids])).logits[0]


def store(out, name, folder, ids, values, note):
    target = os.path.join(out, name)
    os.makedirs(target, exist_ok=True)
    for file in ("config.json", "model.safetensors"):
        shutil.copyfile(os.path.join(folder, file), os.path.join(target, file))
    with open(os.path.join(target, "logits.json"), "w", encoding="ascii") as f:
        json.dump({"by": "transformers %s, torch %s, float32" % (transformers.__version__,
                                                                  torch.__version__),
                   "note": note, "tokens": ids,
                   "logits": [[float("%.7g" % x) for x in row] for row in values.tolist()]}, f)
        f.write("\n")


def run(narrows, cwd, *words):
    subprocess.run([narrows, *words], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def by_transformers(narrows, out, work):
    torch.manual_seed(7)
    for name, model in (
            ("llama", LlamaForCausalLM(LlamaConfig(num_key_value_heads=1, rope_theta=500000.0,
                                                   tie_word_embeddings=False, **SHAPE))),
            ("qwen2", Qwen2ForCausalLM(Qwen2Config(num_key_value_heads=2, rope_theta=10000.0,
                                                   tie_word_embeddings=True, **SHAPE)))):
        with torch.no_grad():
            for key, value in model.named_parameters():
                if "norm" in key or key.endswith(".bias"):
                    value.copy_(torch.rand_like(value) + (0.5 if "norm" in key else -0.5))
        folder = os.path.join(work, name)
        model.to(torch.bfloat16).save_pretrained(folder)
        ids = tokens(SHAPE["vocab_size"])
        _, values = logits_of(folder, ids)
        store(out, name, folder, ids, values, "made and saved by transformers")
        run(narrows, work, "import", name, "--output", name + ".in")
        run(narrows, work, "export", name + ".in", "--output", name + ".out", "--dtype", "bf16")
        _, again = logits_of(folder + ".out", ids)
        print("%s: transformers loads the export as %s, logits %s" %
              (name, type(_).__name__, "equal" if torch.equal(values, again) else "DIFFER"))


def by_narrows(narrows, out, work):
    with open(os.path.join(work, "text"), "w", encoding="ascii") as f:
        f.write("".join("%d squared is %d\n" % (i, i * i) for i in range(400)))
    for name, form, extra in (("cola", ("cola", 4, "off", "10000", "off"), ()),
                              ("cola_outer", ("cola", 2, "on", "500000", "on"), ()),
                              ("svd", ("svd", 2, "off", "10000", "on"), ()),
                              ("merged", ("svd", 2, "off", "10000", "on"), ("--merge",))):
        with open(os.path.join(work, name + ".yaml"), "w", encoding="ascii") as f:
            f.write(TRAIN % form)
        run(narrows, work, "train", name + ".yaml", "run.dir=" + name + ".run")
        run(narrows, work, "export", name + ".run", "--output", name, *extra)
        folder = os.path.join(work, name)
        ids = tokens(259)
        model, values = logits_of(folder, ids, code=not extra)
        store(out, name, folder, ids, values, "made by narrows, logits by transformers")
        print("%s: transformers loads the export as %s" % (name, type(model).__name__))


def main():
    narrows, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as work:
        by_transformers(narrows, out, work)
        by_narrows(narrows, out, work)


if __name__ == "__main__":
    main()
