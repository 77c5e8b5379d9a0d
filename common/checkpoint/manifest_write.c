/* From the table to the text. */
#include "common/checkpoint/manifest.h"

#include "common/base/hash.h"
#include "common/model/config_value.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- small values ---- */

/* Reals as hexadecimal text: the same bits when read. */
static json_t *real(double x)
{
    char text[40];

    snprintf(text, sizeof text, "%a", x);
    return json_string(text);
}

static json_t *hex(uint64_t h)
{
    char text[HASH_HEX];

    hash_hex(text, h);
    return json_string(text);
}

static json_t *integer(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* ---- sections ---- */

static json_t *config_section(const struct config *cfg)
{
    json_t *o = json_object();
    char value[CONFIG_VALUE];

    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys()[i];

        if (k->type == CONFIG_IS_TEXT)
            snprintf(value, sizeof value, "%s", (const char *)cfg + k->offset);
        else
            config_value_write(value, sizeof value, k, cfg);
        json_object_set_new(o, k->name, json_string(value));
    }
    return o;
}

/* Where the next batch begins: written for people, since it follows from the step. */
static json_t *data_section(const struct manifest *m)
{
    const struct manifest_state *s = &m->state;
    json_t *o = json_object();

    json_object_set_new(o, "position", json_integer(s->step * m->cfg.train.batch));
    json_object_set_new(o, "samples", json_integer(s->samples));
    json_object_set_new(o, "train", hex(s->train));
    json_object_set_new(o, "validation", hex(s->validation));
    return o;
}

/* Numbers are drawn by counters: the key is all the state there is. */
static json_t *random_section(const struct manifest *m)
{
    return json_pack("{s:s, s:I}", "generator", "Philox4x32-10", "seed",
                     (json_int_t)m->cfg.train.seed);
}

static json_t *statistics_section(const struct manifest_state *s)
{
    json_t *o = json_object();

    json_object_set_new(o, "loss", real(s->loss));
    json_object_set_new(o, "grad_norm", real(s->norm));
    json_object_set_new(o, "best_validation_loss", real(s->best));
    json_object_set_new(o, "skipped_in_a_row", json_integer(s->skips));
    return o;
}

static json_t *files_section(const struct manifest *m)
{
    json_t *list = json_array();

    for (int i = 0; i < m->files; i++) {
        const struct manifest_file *f = &m->file[i];
        json_t *o = json_object();

        json_object_set_new(o, "name", json_string(f->name));
        json_object_set_new(o, "bytes", integer(f->bytes));
        json_object_set_new(o, "header", integer(f->header));
        json_object_set_new(o, "xxh64", hex(f->hash));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *piece_object(const struct manifest_piece *p)
{
    json_t *o = json_object();

    json_object_set_new(o, "kind", json_string(part_kind_name((enum part_kind)p->kind)));
    json_object_set_new(o, "grain", json_integer(p->grain));
    json_object_set_new(o, "dtype", json_string(manifest_type_name((enum dtype)p->dtype)));
    json_object_set_new(o, "at",
                        json_pack("[I,I]", (json_int_t)p->area.row, (json_int_t)p->area.col));
    json_object_set_new(o, "shape",
                        json_pack("[I,I]", (json_int_t)p->area.rows, (json_int_t)p->area.cols));
    json_object_set_new(o, "file", json_integer(p->file));
    json_object_set_new(o, "offset", integer(p->offset));
    json_object_set_new(o, "xxh64", hex(p->hash));
    return o;
}

static json_t *tensors_section(const struct manifest *m)
{
    json_t *list = json_array(), *pieces = NULL;

    for (int i = 0; i < m->pieces; i++) {
        const struct manifest_piece *p = &m->piece[i];

        if (i == 0 || strcmp(p->tensor, p[-1].tensor) != 0) {
            json_t *o = json_object();

            pieces = json_array();
            json_object_set_new(o, "name", json_string(p->tensor));
            json_object_set_new(o, "shape",
                                json_pack("[I,I]", (json_int_t)p->rows, (json_int_t)p->cols));
            json_object_set_new(o, "pieces", pieces);
            json_array_append_new(list, o);
        }
        json_array_append_new(pieces, piece_object(p));
    }
    return list;
}

/* ---- the whole ---- */

/* Puts the hash of the text behind it, as a last field. */
static enum status seal(char **text, size_t *bytes, const char *json)
{
    size_t n = strlen(json) - 1, room = n + 64; /* without its closing brace */

    *text = malloc(room);
    if (!*text)
        return fail(ST_ENOMEM, "no memory for a manifest of %zu bytes", n);
    memcpy(*text, json, n);
    *bytes = n + (size_t)snprintf(*text + n, room - n, ",\"xxh64\":\"%016llx\"}\n",
                                  (unsigned long long)hash_bytes(json, n));
    return ST_OK;
}

enum status manifest_text(char **text, size_t *bytes, const struct manifest *m)
{
    json_t *o = json_object();
    char *json;
    enum status st;

    json_object_set_new(o, "format", json_string("narrows checkpoint"));
    json_object_set_new(o, "version", json_integer(MANIFEST_VERSION));
    json_object_set_new(o, "step", json_integer(m->state.step));
    json_object_set_new(o, "ranks", json_integer(m->ranks));
    json_object_set_new(o, "config", config_section(&m->cfg));
    json_object_set_new(o, "data", data_section(m));
    json_object_set_new(o, "random", random_section(m));
    json_object_set_new(o, "statistics", statistics_section(&m->state));
    json_object_set_new(o, "files", files_section(m));
    json_object_set_new(o, "tensors", tensors_section(m));
    json = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    st = json ? seal(text, bytes, json) : fail(ST_ENOMEM, "no memory for a manifest");
    free(json);
    return st;
}
