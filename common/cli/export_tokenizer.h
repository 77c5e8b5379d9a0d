/* The tokenizer's part of `narrows export`. */
#ifndef COMMON_CLI_EXPORT_TOKENIZER_H
#define COMMON_CLI_EXPORT_TOKENIZER_H

#include "common/checkpoint/outlet.h"

/* Fills the ids that are not known (-1) with the special tokens of that tokenizer; nothing for ""
 * and "none". Errors: those of tokenizer_open, with the way out. */
enum status export_ids(struct hf_ids *ids, const char *tokenizer);

/* Puts what transformers reads as that tokenizer into the folder: its file under the usual name and
 * what lies beside it; a tokenizer.json made here for "bytes" and pieces (hf_write.h), where none
 * lies there; a tokenizer_config.json likewise. framed: what is made puts a begin token before a
 * text. What cannot be made is said. Errors: those of
 * tokenizer_open and hf_write; ST_EIO. */
enum status export_tokenizer(struct outlet *o, const char *tokenizer, const struct hf_ids *ids,
                             int framed);

#endif
