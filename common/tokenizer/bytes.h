/* The tokenizer whose ids are the bytes themselves. */
#ifndef COMMON_TOKENIZER_BYTES_H
#define COMMON_TOKENIZER_BYTES_H

#include "common/tokenizer/tokenizer.h"

/* Fills in everything but the name. */
void bytes_open(struct tokenizer *t);

#endif
