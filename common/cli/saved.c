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

enum status saved_read(struct config *cfg, int *found, const char *folder)
{
    char path[WEIGHTS_PATH + sizeof WEIGHTS_SETTINGS];

    snprintf(path, sizeof path, "%s/" WEIGHTS_SETTINGS, folder);
    config_default(cfg);
    *found = !access(path, F_OK);
    return *found ? yaml_read(cfg, path) : ST_OK;
}

enum status saved_settings(struct config *cfg, const char *folder, const struct options *words)
{
    int found;

    TRY(saved_read(cfg, &found, folder));
    if (!found) {
        TRY(weights_config(cfg, folder));
        cfg->sample.frame = true;
    }
    config_one_rank(cfg);
    TRY(options_override(cfg, words));
    return found ? ST_OK : find_tokenizer(cfg, folder);
}
