#include "common/model/presets.h"

#include "common/model/config_value.h"
#include "common/model/nearest.h"

#include <inttypes.h>
#include <string.h>

/* size, d, f, L, H, r, tied, SiLU with CoLA, source */
static const struct preset sizes[] = {
    {"9m", 128, 352, 4, 4, 32, false, false, "GaLore; for tests"},
    {"20m", 256, 688, 4, 4, 64, false, false, "GaLore; for tests"},
    {"35m", 384, 1024, 6, 8, 96, false, false, "GaLore; for tests"},
    {"40m", 416, 1024, 8, 8, 104, false, false, "GaLore; for tests"},
    {"60m", 512, 1376, 8, 8, 128, false, true, "CoLA, GaLore"},
    {"60m-boost", 512, 1344, 8, 8, 128, true, false, "BOOST: f that tp divides"},
    {"71m", 512, 1368, 12, 8, 128, false, false, "GaLore"},
    {"130m", 768, 2048, 12, 12, 256, false, true, "CoLA, GaLore; r = d/3"},
    {"250m", 768, 2560, 24, 16, 192, false, false, "GaLore"},
    {"350m", 1024, 2736, 24, 16, 256, false, false, "CoLA, GaLore"},
    {"1b", 2048, 5461, 24, 32, 512, false, false, "CoLA, GaLore; f is odd: tp 1 only"},
    {"1b-boost", 2048, 5472, 24, 32, 512, true, false, "BOOST: f that tp divides"},
    {"3b", 2560, 6848, 32, 32, 640, false, false, "GaLore"},
    {"3b-boost", 3072, 8192, 28, 24, 768, true, false, "BOOST"},
    {"7b", 4096, 11008, 32, 32, 1024, false, false, "CoLA, LLaMA"},
    {"7b-boost", 4096, 11008, 32, 32, 1024, true, false, "BOOST: tied"},
    {"13b-boost", 5120, 13824, 40, 40, 1280, true, false, "BOOST"},
    {"30b-boost", 8192, 22016, 36, 64, 2048, true, false, "BOOST"},
    {"40b", 8192, 22016, 48, 64, 2048, false, false, "our own shape, from no paper"},
    {.size = NULL},
};

const struct preset *preset_sizes(void)
{
    return sizes;
}

int64_t preset_parameters(const struct preset *p, enum layer_kind layer)
{
    int64_t d = p->width, f = p->ffn, r = p->rank;
    int64_t linear =
        layer == LAYER_FULL ? 4 * d * d + 3 * d * f : 4 * r * (d + d) + 3 * r * (d + f);
    int64_t embedding = (p->tied ? 1 : 2) * PRESET_VOCAB * d;

    return embedding + p->layers * (linear + 2 * d) + d;
}

int64_t preset_tp(const struct preset *p)
{
    int64_t tp = 8;

    while (p->heads % tp || p->ffn % tp)
        tp /= 2;
    return tp;
}

enum status preset_table(FILE *out)
{
    fprintf(out, "%-10s %6s %6s %6s %6s %6s %5s %8s %9s  %s\n", "size", "width", "ffn", "layers",
            "heads", "rank", "tp <=", "full M", "low-rank", "source");
    for (const struct preset *p = sizes; p->size; p++)
        fprintf(out,
                "%-10s %6" PRId64 " %6" PRId64 " %6" PRId64 " %6" PRId64 " %6" PRId64 " %5" PRId64
                " %8.1f %9.1f  %s%s\n",
                p->size, p->width, p->ffn, p->layers, p->heads, p->rank, preset_tp(p),
                (double)preset_parameters(p, LAYER_FULL) / 1e6,
                (double)preset_parameters(p, LAYER_COLA) / 1e6, p->source,
                p->tied && !strstr(p->source, "tied") ? "; tied" : "");
    fprintf(out,
            "\nA preset is a size and a kind of layer: model.preset=60m-cola, 60m-svd, "
            "60m-full.\nParameters are in millions, with a vocabulary of %d.\n",
            PRESET_VOCAB);
    if (fflush(out) || ferror(out))
        return fail(ST_EIO, "the table of presets could not be written");
    return ST_OK;
}

/* "60m-cola" into its size and layer; NULL when it is not of that form. */
static const struct preset *find(enum layer_kind *layer, const char *name)
{
    const char *dash = strrchr(name, '-');

    for (int kind = LAYER_FULL; dash && kind <= LAYER_SVD; kind++)
        for (const struct preset *p = sizes; p->size; p++)
            if (!strcmp(dash + 1, config_choice_name("model.layer", kind)) &&
                strlen(p->size) == (size_t)(dash - name) &&
                !strncmp(p->size, name, strlen(p->size))) {
                *layer = (enum layer_kind)kind;
                return p;
            }
    return NULL;
}

static enum status unknown(const char *name)
{
    char full[2][64], *best = NULL;
    struct nearest near = nearest_to(name);

    for (const struct preset *p = sizes; p->size; p++) {
        if (!strcmp(p->size, name))
            return fail(ST_ECONFIG,
                        "model.preset: '%s' lacks the kind of layer: write %s-full, "
                        "%s-cola or %s-svd",
                        name, name, name, name);
        for (int kind = 0; kind < 3; kind++) {
            char *slot = full[best == full[0] ? 1 : 0]; /* not the one that holds the best */

            snprintf(slot, sizeof full[0], "%s-%s", p->size,
                     config_choice_name("model.layer", kind));
            nearest_offer(&near, slot);
            if (near.best == slot)
                best = slot;
        }
    }
    if (best)
        return fail(ST_ECONFIG, "model.preset: '%s' is not known; did you mean %s?", name, best);
    return fail(ST_ECONFIG, "model.preset: '%s' is not known: `narrows presets` lists the names",
                name);
}

static enum status give(struct config *cfg, const char *name, const char *text,
                        enum config_origin origin)
{
    const struct config_key *k = config_find(name);
    ptrdiff_t i;

    FAIL_IF(!k, ST_EINTERNAL);
    i = k - config_keys();
    if (cfg->origin[i] >= origin)
        return ST_OK;
    TRY(config_value_set(cfg, k, text));
    cfg->origin[i] = (unsigned char)origin;
    return ST_OK;
}

static enum status give_int(struct config *cfg, const char *name, int64_t value,
                            enum config_origin origin)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64, value);
    TRY(give(cfg, name, text, origin));
    return ST_OK;
}

enum status preset_apply(struct config *cfg)
{
    enum layer_kind layer = LAYER_FULL;
    const struct preset *p = find(&layer, cfg->model.preset);
    enum config_origin by = cfg->origin[config_find("model.preset") - config_keys()];
    enum config_origin as = by == ORIGIN_ARGUMENT ? ORIGIN_ARGUMENT_PRESET : ORIGIN_FILE_PRESET;

    if (!cfg->model.preset[0])
        return ST_OK;
    if (!p)
        return unknown(cfg->model.preset);
    TRY(give(cfg, "model.layer", config_choice_name("model.layer", layer), as));
    TRY(give_int(cfg, "model.width", p->width, as));
    TRY(give_int(cfg, "model.ffn", p->ffn, as));
    TRY(give_int(cfg, "model.layers", p->layers, as));
    TRY(give_int(cfg, "model.heads", p->heads, as));
    TRY(give_int(cfg, "model.kv_heads", p->heads, as));
    TRY(give_int(cfg, "model.rank", p->rank, as));
    TRY(give_int(cfg, "model.vocab", PRESET_VOCAB, as));
    TRY(give(cfg, "model.tied", p->tied ? "on" : "off", as));
    TRY(give(cfg, "model.outer_silu", p->cola_outer_silu && layer == LAYER_COLA ? "on" : "auto",
             as));
    return ST_OK;
}
