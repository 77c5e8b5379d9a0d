#!/usr/bin/env python3
"""Encode a text with a SentencePiece model and store its first ids as little-endian uint16.

Made `validation/data/stories260k/train_tokens.u16`: the 50*4*64 + 1 ids that the stored training
trace reads. The whole text is encoded in one piece, without BOS or EOS, and only then cut.
Needs: numpy, sentencepiece (0.2.3 was used).

    tokens_u16.py tok512.model tinyshakespeare/train.txt 12801 train_tokens.u16 [SHA256]

SHA256, where given, is the digest of all ids of the text as little-endian uint32; a difference is
an error.
"""

import hashlib
import sys

import numpy as np
import sentencepiece


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    model, text, count, out = sys.argv[1:5]
    with open(text, encoding="utf-8", newline="") as f:
        ids = sentencepiece.SentencePieceProcessor(model_file=model).encode(f.read())
    digest = hashlib.sha256(np.array(ids, "<u4").tobytes()).hexdigest()
    print(f"{len(ids)} ids, sha256 of the uint32 ids {digest}")
    if len(sys.argv) == 6 and digest != sys.argv[5]:
        sys.exit(
            f"the digest of the ids is {digest}, wanted {sys.argv[5]}: another text, "
            "tokenizer or SentencePiece version"
        )
    if len(ids) < int(count) or max(ids) > 65535:
        sys.exit(f"{count} ids below 65536 wanted, {len(ids)} found, the largest {max(ids)}")
    np.array(ids[: int(count)], "<u2").tofile(out)


if __name__ == "__main__":
    main()
