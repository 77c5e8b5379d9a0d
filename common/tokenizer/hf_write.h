/* A tokenizer.json of Hugging Face for tokenizers that come from elsewhere. */
#ifndef COMMON_TOKENIZER_HF_WRITE_H
#define COMMON_TOKENIZER_HF_WRITE_H

#include "common/tokenizer/tokenizer.h"

#include <jansson.h>

/* *out = a tokenizer.json with the ids of t, for "bytes" and for pieces (SentencePiece's .model,
 * llama2.c's file); json_decref. NULL where none is known: t is another one, has user-defined
 * symbols, or leaves spaces out. framed: a text gets what t puts around it (TOKENIZER_FRAME).
 * Local. Errors: ST_EFORMAT for a token whose text is not UTF-8 or is that of another one;
 * ST_ENOMEM. */
enum status hf_write(json_t **out, const struct tokenizer *t, int framed);

#endif
