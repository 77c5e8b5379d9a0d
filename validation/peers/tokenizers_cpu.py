#!/usr/bin/env python3
"""Speed of tiktoken and of Hugging Face's tokenizers, one thread, beside `narrows tokenize --time`.

    tokenizers_cpu.py TOKENIZER.json TEXT

TOKENIZER is byte-level BPE cut as GPT-2 cuts. TEXT is encoded document by document, cut at lines
<|endoftext|>. Needs `pip install tiktoken tokenizers`."""
import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def byte_of_character():
    """What the characters of byte-level tokens stand for."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printed]
    return {chr(b): b for b in printed} | {chr(256 + i): b for i, b in enumerate(others)}


def ranks(path):
    with open(path, encoding="utf-8") as file:
        vocabulary = json.load(file)["model"]["vocab"]
    byte = byte_of_character()
    return {bytes(byte[c] for c in token): i for token, i in vocabulary.items()
            if all(c in byte for c in token)}


def report(name, size, encode, documents):
    begin = time.perf_counter()
    tokens = sum(len(encode(document)) for document in documents)
    seconds = time.perf_counter() - begin
    print(f"{name}: {size} bytes, {tokens} tokens, {seconds:.3f} s, "
          f"{1e-6 * size / seconds:.1f} MB/s")


def main():
    tokenizer, text = sys.argv[1:]
    with open(text, encoding="utf-8") as file:
        whole = file.read()
    documents = whole.split("<|endoftext|>\n")
    size = len(whole.encode())
    own = Tokenizer.from_file(tokenizer)
    fast = tiktoken.Encoding("it", pat_str=GPT2, mergeable_ranks=ranks(tokenizer),
                             special_tokens={})
    report("tokenizers", size, lambda d: own.encode(d, add_special_tokens=False).ids, documents)
    report("tiktoken", size, fast.encode_ordinary, documents)


if __name__ == "__main__":
    main()
