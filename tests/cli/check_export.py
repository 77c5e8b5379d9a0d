#!/usr/bin/env python3
"""Reads an exported folder without any of narrows' code, and says what is wrong with it.

check_export.py FOLDER TYPE DTYPE: config.json must be of that model_type, model.safetensors strict
(header, offsets, padding, size), its tensors those that the configuration asks for, no more, no
fewer, all of DTYPE (F32, BF16, F16).
"""
import json
import os
import struct
import sys

SIZES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}


def need(condition, what):
    if not condition:
        sys.exit("check_export: " + what)


def no_twins(pairs):
    need(len(pairs) == len(dict(pairs)), "a key is there twice")
    return dict(pairs)


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f, object_pairs_hook=no_twins)


def read_tensors(path, dtype):
    """{name: shape}, after the layout of the file has been checked to the last byte."""
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        text = f.read(n)
    need(n % 8 == 0 and text.startswith(b"{"), "header of %d bytes" % n)
    header = json.loads(text.decode("utf-8"), object_pairs_hook=no_twins)
    need(header.pop("__metadata__", None) == {"format": "pt"}, "no metadata {format: pt}")
    at = 0
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        count = 1
        for d in t["shape"]:
            count *= d
        need(t["dtype"] == dtype, "%s is %s" % (name, t["dtype"]))
        need(t["data_offsets"] == [at, at + count * SIZES[dtype]],
             "%s lies at %s, not at %d" % (name, t["data_offsets"], at))
        at += count * SIZES[dtype]
    need(8 + n + at == size, "%d bytes behind the last tensor" % (size - 8 - n - at))
    return {name: tuple(t["shape"]) for name, t in header.items()}


def linear(name, rows, cols, c):
    """The tensors of one linear layer."""
    kind, rank = c["model_type"], c.get("rank")
    bias = kind == "qwen2" or c.get("qkv_bias")
    out = {}
    if kind == "cola":
        out = {name + ".cola_a": (cols, rank), name + ".cola_b": (rank, rows)}
    elif kind == "narrows" and c["layer"] != "full":
        out = {name + ".down.weight": (rank, cols), name + ".up.weight": (rows, rank)}
    else:
        out = {name + ".weight": (rows, cols)}
    if bias and name.endswith(("q_proj", "k_proj", "v_proj")):
        out[name + ".bias"] = (rows,)
    return out


def expected(c):
    d, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    kv = c["num_key_value_heads"] * c["head_dim"]
    out = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,)}
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (v, d)
    for i in range(c["num_hidden_layers"]):
        p = "model.layers.%d." % i
        for name, rows, cols in (("self_attn.q_proj", d, d), ("self_attn.k_proj", kv, d),
                                 ("self_attn.v_proj", kv, d), ("self_attn.o_proj", d, d),
                                 ("mlp.gate_proj", f, d), ("mlp.up_proj", f, d),
                                 ("mlp.down_proj", d, f)):
            out.update(linear(p + name, rows, cols, c))
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[p + name + ".weight"] = (d,)
    return out


def main():
    folder, kind, dtype = sys.argv[1:]
    c = read_json(os.path.join(folder, "config.json"))
    g = read_json(os.path.join(folder, "generation_config.json"))
    need(c["model_type"] == kind, "model_type %s" % c["model_type"])
    need(c["rope_parameters"]["rope_theta"] == c["rope_theta"], "two rotary bases")
    need(c["rope_parameters"]["rope_type"] == "default", "a rope_type")
    need(c["head_dim"] * c["num_attention_heads"] == c["hidden_size"], "head_dim")
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        need(c[key] == g[key], "%s differs in generation_config.json" % key)
    got, want = read_tensors(os.path.join(folder, "model.safetensors"), dtype), expected(c)
    need(got == want, "tensors: %s" % sorted(set(got.items()) ^ set(want.items())))
    code = os.path.exists(os.path.join(folder, "modeling_narrows.py"))
    need(code == (kind in ("cola", "narrows")), "modeling_narrows.py")
    need(code == ("auto_map" in c), "auto_map")
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        t = read_json(os.path.join(folder, "tokenizer.json"))
        need(len(t["model"]["vocab"]) + len(t["added_tokens"]) <= c["vocab_size"], "tokenizer")
        read_json(os.path.join(folder, "tokenizer_config.json"))
    print("ok")


if __name__ == "__main__":
    main()
