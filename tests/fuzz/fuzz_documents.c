/* with: common/base common/tokenizer common/data/documents.c common/data/documents_long.c
 *     common/data/documents_text.c common/data/json_text.c common/data/input.c
 * seeds: tests/fuzz/documents.jsonl tests/fuzz/documents.jsonl.packed
 *
 * Any bytes as a file of JSON lines or of text, packed or not: refused with a reason, or documents
 * in valid UTF-8; and the same ones, or refused as well, when all come in parts. The first byte
 * chooses the kind, the policy and the size of parts. */
#include "common/data/documents.h"

#include "common/base/utf8.h"
#include "tests/fuzz/named.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

/* Appends the document or part i; a zero byte and a one end a document. *begun: where the document
 * of this part began in out. */
static enum status add_text(struct byte_list *out, int64_t *begun, struct documents_counts *counts,
                            const struct documents_batch *b, int64_t i, const char *const *path,
                            const struct documents_options *o)
{
    int part = b->raw[i].part;
    int64_t length;

    if (part == DOCUMENTS_WHOLE)
        *begun = out->count;
    TRY(documents_text(out, &length, counts, b, i, path, o));
    if (part == DOCUMENTS_DROP)
        out->count = *begun;
    if (part != DOCUMENTS_BEGIN && out->count > *begun &&
        utf8_invalid((unsigned char *)out->bytes + *begun, (size_t)(out->count - *begun)) !=
            (size_t)(out->count - *begun))
        abort();
    if (part == DOCUMENTS_END || (part == DOCUMENTS_WHOLE && length > 0))
        TRY(list_bytes_add(out, "\0\1", 2));
    if (part != DOCUMENTS_BEGIN)
        *begun = out->count;
    return ST_OK;
}

static enum status read_all(struct byte_list *out, struct documents_counts *counts,
                            const char *path, const struct documents_options *o, int64_t size)
{
    struct documents_reader r;
    struct documents_batch b = {0};
    int64_t begun = 0;
    enum status st;

    status_clear();
    if (documents_open(&r, &path, 1, o) != ST_OK)
        abort();
    do {
        st = documents_read(&b, &r, size);
        for (int64_t i = 0; st == ST_OK && i < b.n; i++)
            st = add_text(out, &begun, counts, &b, i, &path, o);
    } while (st == ST_OK && b.n > 0);
    if (st != ST_OK && !*status_message())
        abort(); /* refused without a reason */
    documents_batch_free(&b);
    documents_close(&r);
    return st;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    unsigned how = n ? bytes[0] : 0;
    struct documents_options o = {.key = "text",
                                  .kind = how & 1 ? DOCUMENTS_TEXT : DOCUMENTS_JSONL,
                                  .separator = how & 2 ? "" : NULL,
                                  .invalid = (enum documents_policy)((how >> 2 & 3) % 3)};
    struct documents_counts whole_counts = {0}, parts_counts = {0};
    struct byte_list whole = {0}, parts = {0};
    char folder[NAMED], path[NAMED];
    struct tokenizer t;
    enum status a, b;

    if (n == 0 || tokenizer_open(&t, "bytes") != ST_OK)
        return 0;
    named_folder(folder);
    named_file(path, folder, "documents", bytes + 1, n - 1);
    a = read_all(&whole, &whole_counts, path, &o, 1 << 16);
    o.tokenizer = &t;
    b = read_all(&parts, &parts_counts, path, &o, 2 + (how >> 4));
    /* Of two reasons to leave a line out or refuse it, either may be met first. */
    if ((a == ST_OK) != (b == ST_OK) && !(o.invalid == DOCUMENTS_SKIP && whole_counts.skipped))
        abort();
    if (a == ST_OK && b == ST_OK &&
        (whole.count != parts.count || memcmp(&whole_counts, &parts_counts, sizeof whole_counts) ||
         (whole.count > 0 && memcmp(whole.bytes, parts.bytes, (size_t)whole.count) != 0)))
        abort();
    list_bytes_free(&whole);
    list_bytes_free(&parts);
    tokenizer_close(&t);
    return 0;
}
