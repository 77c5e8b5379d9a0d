/* llama2.c's tokenizer.bin: the longest token's length, then score, length and text of each. */
#ifndef COMMON_TOKENIZER_LLAMA2C_H
#define COMMON_TOKENIZER_LLAMA2C_H

#include "common/tokenizer/tokenizer.h"

/* Makes a tokenizer of the file's content. As in llama2.c, ids 0, 1, 2 are unknown, begin and end,
 * 3 to 258 the bytes, and begin is put before a text that is framed. Errors: ST_EFORMAT with the
 * reason, ST_ENOMEM. On failure nothing is left open. */
enum status llama2c_open(struct tokenizer *t, const struct byte_list *content);

#endif
