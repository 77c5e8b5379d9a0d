/* The tokenizers of other programs that stand, packed, in tests/data/tokenizers. */
#ifndef TESTS_UNIT_STORED_TOKENIZER_H
#define TESTS_UNIT_STORED_TOKENIZER_H

#include "common/tokenizer/tokenizer.h"

/* Unpacks tests/data/tokenizers/NAME.gz to folder/NAME; path [TEMP_PATH]; returns it. A failure
 * ends the test. */
const char *stored_tokenizer_unpack(char *path, const char *folder, const char *name);

/* The same, and opens it. */
void stored_tokenizer_open(struct tokenizer *t, const char *folder, const char *name);

#endif
