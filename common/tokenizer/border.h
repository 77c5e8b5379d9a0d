/* Where a long text may be cut so that its parts, encoded one by one, give the ids of the whole.
 *
 * A border is proved, not guessed: it is a place where the tokenizer's first words end whatever
 * stands further away. For byte-level tokenizers with the words of GPT-2 or cl100k_base (LLaMA 3,
 * Qwen 2) that is between a letter or digit and an ASCII character that is neither: no word of
 * theirs goes across. For those with a mark for spaces (SentencePiece's, llama2.c's) it is a space
 * between a letter or digit and another: no token goes across a gap. Before an ASCII character
 * every normal form may be cut, and added tokens that touch the place rule it out. Tokenizers with
 * regular expressions of their own, or with edits that could go across, have no known borders.
 */
#ifndef COMMON_TOKENIZER_BORDER_H
#define COMMON_TOKENIZER_BORDER_H

#include "common/tokenizer/recipe.h"

/* Nonzero when some places are known to be borders for r, which is finished. */
int border_known(const struct recipe *r);

/* The last border in text[least .. n): text[0 .. border) and text[*next ..) are encoded apart, both
 * as beginnings of a text and without special tokens, as together, whatever follows text[n - 1].
 * *next is the border, or behind the space there where encoding puts it before a text again.
 * Returns -1 for none. */
int64_t border_last(int64_t *next, const struct recipe *r, const unsigned char *text, int64_t n,
                    int64_t least);

#endif
