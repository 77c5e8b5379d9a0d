/* SentencePiece's .model files: BPE models without a table of normalisation (as LLaMA's are). */
#ifndef COMMON_TOKENIZER_SPM_H
#define COMMON_TOKENIZER_SPM_H

#include "common/tokenizer/tokenizer.h"

/* Makes a tokenizer of the file's content. Begin is put before a text that is framed, as LLaMA
 * has it. Errors: ST_EFORMAT with the reason, ST_ENOMEM. On failure nothing is left open. */
enum status spm_open(struct tokenizer *t, const struct byte_list *content);

#endif
