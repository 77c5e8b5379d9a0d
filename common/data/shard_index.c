/* The index of a Megatron dataset and the header of an llm.c file: what they claim against what
 * there is. Works on memory alone. */
#include "common/data/shard.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read as they lie in memory");

#define N PRId64

int shard_width(enum shard_type type)
{
    static const int width[] = {0, 1, 1, 2, 4, 8, 8, 4, 2, 4};

    return type >= SHARD_U8 && type <= SHARD_U32 ? width[type] : 0;
}

const char *shard_type_name(enum shard_type type)
{
    static const char *const name[] = {"?",     "uint8",   "int8",    "int16",  "int32",
                                       "int64", "float64", "float32", "uint16", "uint32"};

    return name[shard_width(type) ? type : 0];
}

int64_t shard_number(const unsigned char *block, int64_t i, int width)
{
    int32_t narrow;
    int64_t wide;

    if (width == 4) {
        memcpy(&narrow, block + 4 * i, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, block + 8 * i, sizeof wide);
    return wide;
}

/* ---- Megatron ---- */

static enum status read_header(struct shard_index *x, const struct shard_map *index,
                               const char *path)
{
    static const char magic[9] = "MMIDIDX\0";
    const unsigned char *at = index->bytes;

    if (index->size < SHARD_INDEX_HEADER)
        return fail(ST_EFORMAT,
                    "%s is cut inside its header: %" N " bytes of %d; copy or build it again", path,
                    index->size, SHARD_INDEX_HEADER);
    if (memcmp(at, magic, sizeof magic) != 0)
        return fail(ST_EFORMAT,
                    "%s is no Megatron index: it does not begin with MMIDIDX and two zero bytes",
                    path);
    if (shard_number(at + 9, 0, 8) != 1)
        return fail(ST_EFORMAT, "%s has version %" N "; this program reads version 1", path,
                    shard_number(at + 9, 0, 8));
    x->type = (enum shard_type)at[17];
    if (at[17] < SHARD_U8 || at[17] > SHARD_U16)
        return fail(ST_EFORMAT, "%s has type code %d; codes are 1 to 8", path, at[17]);
    if (x->type == SHARD_F64 || x->type == SHARD_F32)
        return fail(ST_EFORMAT,
                    "%s has type code %d (%s); token ids are whole numbers: build the data with "
                    "uint16 or int32",
                    path, at[17], shard_type_name(x->type));
    return ST_OK;
}

static enum status refuse_cut(const struct shard_index *x, const struct shard_map *index,
                              const char *path)
{
    int64_t s = x->sequences, body = index->size - SHARD_INDEX_HEADER;
    const char *block = body / 4 < s             ? "the lengths of sequences"
                        : (body - 4 * s) / 8 < s ? "the offsets of sequences"
                                                 : "the document borders";

    return fail(ST_EFORMAT,
                "%s is cut inside %s: it claims %" N " sequences and %" N
                " document borders, and has %" N " bytes; copy or build it again",
                path, block, s, x->documents_count + 1, index->size);
}

/* Sizes of the blocks. Numbers are compared before they are multiplied: they may be anything. */
static enum status find_blocks(struct shard_index *x, const struct shard_map *index,
                               const char *path)
{
    int64_t body = index->size - SHARD_INDEX_HEADER, entries, rest;

    x->sequences = shard_number(index->bytes + 18, 0, 8);
    entries = shard_number(index->bytes + 26, 0, 8);
    if (x->sequences < 0 || entries < 0)
        return fail(ST_EFORMAT, "%s claims %" PRIu64 " sequences and %" PRIu64 " document borders",
                    path, (uint64_t)x->sequences, (uint64_t)entries);
    if (entries < 1)
        return fail(ST_EFORMAT, "%s has no document borders; at least one entry is needed", path);
    x->documents_count = entries - 1;
    if (x->sequences > body / 12 || entries > (body - 12 * x->sequences) / 8)
        return refuse_cut(x, index, path);
    rest = body - 12 * x->sequences - 8 * entries;
    if (rest > 0 && rest == x->sequences)
        return fail(ST_EFORMAT,
                    "%s has a mode for each sequence: data of images and text are not supported",
                    path);
    if (rest > 0)
        return fail(ST_EFORMAT,
                    "%s has %" N " bytes more than its %" N " sequences and %" N
                    " document borders take",
                    path, rest, x->sequences, entries);
    x->lengths = index->bytes + SHARD_INDEX_HEADER;
    x->offsets = x->lengths + 4 * x->sequences;
    x->documents = x->offsets + 8 * x->sequences;
    return ST_OK;
}

/* Sequences lie one after the other and fill the tokens' file. */
static enum status check_sequences(const struct shard_index *x, int64_t bin_size, const char *path,
                                   const char *bin_path)
{
    int64_t end = 0, width = shard_width(x->type);

    for (int64_t i = 0; i < x->sequences; i++) {
        int64_t length = shard_number(x->lengths, i, 4), offset = shard_number(x->offsets, i, 8);

        if (length < 0)
            return fail(ST_EFORMAT, "%s: sequence %" N " has %" N " tokens", path, i, length);
        if (offset != end)
            return fail(ST_EFORMAT,
                        "%s: sequence %" N " begins at byte %" N
                        " of the tokens; the one before ends at %" N,
                        path, i, offset, end);
        end += length * width; /* below 2^60 while the file's size bounds it */
        if (end > bin_size)
            return fail(ST_EFORMAT,
                        "%s is too short: %" N " bytes, and sequence %" N " of %s ends at byte %" N
                        "; copy or build it again",
                        bin_path, bin_size, i, path, end);
    }
    if (end != bin_size)
        return fail(ST_EFORMAT,
                    "%s has %" N " bytes; the sequences of %s (%s) take %" N
                    ": do they belong together?",
                    bin_path, bin_size, path, shard_type_name(x->type), end);
    return ST_OK;
}

static enum status check_documents(const struct shard_index *x, const char *path)
{
    int64_t before = 0;

    for (int64_t j = 0; j <= x->documents_count; j++) {
        int64_t border = shard_number(x->documents, j, 8);

        if (j == 0 && border != 0)
            return fail(ST_EFORMAT, "%s: the first document begins at sequence %" N ", not 0", path,
                        border);
        if (border < before || border > x->sequences)
            return fail(ST_EFORMAT,
                        "%s: document border %" N " is sequence %" N "; it must lie from %" N
                        " (the one before) to %" N " (all sequences)",
                        path, j, border, before, x->sequences);
        before = border;
    }
    if (before != x->sequences)
        return fail(ST_EFORMAT,
                    "%s: the last document ends at sequence %" N " of %" N
                    "; every sequence belongs to a document",
                    path, before, x->sequences);
    return ST_OK;
}

enum status shard_index_read(struct shard_index *x, const struct shard_map *index, int64_t bin_size,
                             const char *path, const char *bin_path)
{
    *x = (struct shard_index){0};
    TRY(read_header(x, index, path));
    TRY(find_blocks(x, index, path));
    TRY(check_sequences(x, bin_size, path, bin_path));
    return check_documents(x, path);
}

/* ---- llm.c ---- */

/* What else llm.c writes under the ending .bin. */
static const char *other_file(int64_t magic)
{
    switch (magic) {
    case 20240522:
        return "questions for an evaluation";
    case 20240326:
        return "a model";
    case 20240327:
        return "a debug state";
    case 20240328:
        return "a tokenizer";
    case 20240527:
        return "a training state";
    default:
        return NULL;
    }
}

static enum status check_magic(int64_t magic, const char *path)
{
    const char *other = other_file(magic);

    if (magic == SHARD_MAGIC_U16 || magic == SHARD_MAGIC_U32)
        return ST_OK;
    if (other)
        return fail(ST_EFORMAT,
                    "%s is no token shard: by its magic number %" N " it is %s of llm.c", path,
                    magic, other);
    return fail(ST_EFORMAT,
                "%s is no token shard: it begins with %" N " (llm.c: %d for uint16, %d for "
                "uint32), and no index %.*s.idx lies beside it (Megatron)",
                path, magic, SHARD_MAGIC_U16, SHARD_MAGIC_U32, (int)strlen(path) - 4, path);
}

enum status shard_llmc_read(enum shard_type *type, int64_t *count, const struct shard_map *file,
                            const char *path)
{
    int64_t magic, version, want, bytes;

    if (file->size < 4)
        return fail(ST_EFORMAT, "%s is no token shard: it has %" N " bytes", path, file->size);
    magic = shard_number(file->bytes, 0, 4);
    TRY(check_magic(magic, path));
    if (file->size < SHARD_LLMC_HEADER)
        return fail(ST_EFORMAT,
                    "%s is cut inside its header: %" N " bytes of %d; copy or build it again", path,
                    file->size, SHARD_LLMC_HEADER);
    *type = magic == SHARD_MAGIC_U16 ? SHARD_U16 : SHARD_U32;
    want = magic == SHARD_MAGIC_U16 ? 1 : 7;
    version = shard_number(file->bytes, 1, 4);
    if (version != want)
        return fail(ST_EFORMAT, "%s has version %" N "; magic number %" N " goes with version %" N,
                    path, version, magic, want);
    *count = shard_number(file->bytes, 2, 4);
    if (*count < 0)
        return fail(ST_EFORMAT,
                    "%s claims %" N " tokens: the format counts in 31 bits, up to 2147483647; "
                    "write several shards",
                    path, *count);
    bytes = SHARD_LLMC_HEADER + *count * shard_width(*type);
    if (bytes != file->size)
        return fail(ST_EFORMAT,
                    "%s has %" N " bytes; its header claims %" N " tokens (%s), which take %" N
                    ": it is %s; copy or build it again",
                    path, file->size, *count, shard_type_name(*type), bytes,
                    file->size < bytes ? "cut" : "too long");
    return ST_OK;
}
