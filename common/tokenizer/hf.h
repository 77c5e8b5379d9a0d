/* Hugging Face's tokenizer.json: BPE models, byte-level or with characters as SentencePiece has
 * them. What would change the ids and is not known here is refused by its name.
 */
#ifndef COMMON_TOKENIZER_HF_H
#define COMMON_TOKENIZER_HF_H

#include "common/tokenizer/recipe.h"

#include <jansson.h>

/* Makes a tokenizer of the file's content. path: for tokenizer_config.json beside it. Errors:
 * ST_EFORMAT with the place and the reason, ST_ENOMEM. On failure nothing is left open. */
enum status hf_open(struct tokenizer *t, const struct byte_list *content, const char *path);

/* The parts of a file, in the order in which they are read. Errors as above. */

/* pre_tokenizer: how text is cut; sets byte_level. */
enum status hf_pre_tokenizer(struct recipe *r, const json_t *json);
/* normalizer: the edits, and the mark that stands for a space. */
enum status hf_normalizer(struct recipe *r, const json_t *json);
/* model: tokens and merges. */
enum status hf_model(struct recipe *r, const json_t *json);
/* added_tokens; vocab: that of the model. */
enum status hf_added(struct recipe *r, const json_t *json, const json_t *vocab);
/* decoder: the texts of the tokens, and t->strip. */
enum status hf_decoder(struct tokenizer *t, struct recipe *r, const json_t *json);
/* post_processor: what goes around a text. */
enum status hf_post_processor(struct recipe *r, const json_t *json);

/* Sets begin, end and pad from tokenizer_config.json beside path, or, where there is none, from the
 * names that special tokens usually have. */
enum status hf_special(struct tokenizer *t, const struct recipe *r, const char *path);

/* json's member "type" ("" if it has none); a text member or NULL; a truth value or `otherwise`. */
const char *hf_type(const json_t *json);
const char *hf_text(const json_t *json, const char *name);
int hf_flag(const json_t *json, const char *name, int otherwise);

/* Appends the bytes that a byte-level token stands for. Returns 0, with nothing appended, for one
 * with a character that stands for no byte. Errors: ST_ENOMEM, as -1. */
int hf_bytes_of(struct byte_list *out, const char *token, size_t n);

#endif
