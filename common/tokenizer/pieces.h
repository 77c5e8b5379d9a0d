/* SentencePiece's BPE, from a list of pieces with scores: two neighbours are merged where the text
 * of both together is a piece, the best score first. */
#ifndef COMMON_TOKENIZER_PIECES_H
#define COMMON_TOKENIZER_PIECES_H

#include "common/tokenizer/recipe.h"

#define PIECES_MARK "\xe2\x96\x81"      /* U+2581, what stands for a space in pieces */
#define PIECES_KIND "SentencePiece BPE" /* tokenizer.kind */

enum piece_type { /* as in the protobuf message */
                  PIECE_NORMAL = 1,
                  PIECE_UNKNOWN = 2,
                  PIECE_CONTROL = 3,
                  PIECE_USER = 4,
                  PIECE_UNUSED = 5,
                  PIECE_BYTE = 6
};

/* Scores by id; grows as pieces are added. */
struct pieces {
    struct recipe *recipe;
    float *scores;
    int32_t count, room;
};

/* Adds the piece with the next id. Errors: ST_EFORMAT for a type that is not supported, an empty
 * text, a byte piece that names no byte, a score that is no number; ST_ENOMEM. */
enum status pieces_add(struct pieces *p, const void *text, int64_t n, float score,
                       enum piece_type type);

/* Adds the merges: all pairs of pieces that make a piece, ranked by its score. Errors: ST_EFORMAT
 * for a piece with a character that is no piece itself (it could not be built); ST_ENOMEM. */
enum status pieces_merges(struct pieces *p);

/* Makes a tokenizer of the pieces; the recipe is then the tokenizer's. prefix: a space is put
 * before a text. one_space: spaces at the ends are left out, and all but one between words.
 * Errors: as recipe_finish. */
enum status pieces_finish(struct tokenizer *t, struct pieces *p, int prefix, int one_space);
void pieces_close(struct pieces *p);

/* The byte that the n bytes of text name as "<0x0A>" does, or -1. */
int pieces_byte(const char *text, int64_t n);

#endif
