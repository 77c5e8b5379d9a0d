#include "common/cli/saved.h"

#include "common/checkpoint/weights.h"
#include "common/cli/yaml.h"
#include "common/tokenizer/tokenizer.h"

#include <unistd.h>

/* A folder of Hugging Face's brings its tokenizer, unless the user named one. */
static enum status find_tokenizer(struct config *cfg, const char *folder)
{
    char key[WEIGHTS_PATH + sizeof "data.tokenizer="];

    if (cfg->origin[config_find("data.tokenizer") - config_keys()] != ORIGIN_DEFAULT)
        return ST_OK;
    if (!tokenizer_in(folder))
        return fail(ST_ECONFIG,
                    "%s has no " WEIGHTS_SETTINGS " and no tokenizer.json, so its tokenizer is not "
                    "known; name it, as in data.tokenizer=bytes or data.tokenizer=PATH",
                    folder);
    snprintf(key, sizeof key, "data.tokenizer=%s", folder);
    return config_override(cfg, key);
}

/* One rank, whatever the run had. */
static void set_layout(struct config *cfg)
{
    cfg->parallel.tp = cfg->parallel.dp = cfg->parallel.pp = 1;
    cfg->parallel.zero = 0;
    cfg->parallel.virtual_stages = 1;
    cfg->parallel.schedule = PIPELINE_1F1B;
    cfg->parallel.stage_layers[0] = '\0';
    if (!cfg->parallel.layout_exact)
        cfg->parallel.grains = 0; /* a rank is one grain */
}

enum status saved_settings(struct config *cfg, int *framed, const char *folder,
                           const struct options *words)
{
    char path[WEIGHTS_PATH + sizeof WEIGHTS_SETTINGS];
    int settings;

    snprintf(path, sizeof path, "%s/" WEIGHTS_SETTINGS, folder);
    settings = !access(path, F_OK);
    config_default(cfg);
    TRY(settings ? yaml_read(cfg, path) : weights_config(cfg, folder));
    set_layout(cfg);
    TRY(options_override(cfg, words));
    if (framed)
        *framed = !settings;
    return settings ? ST_OK : find_tokenizer(cfg, folder);
}
