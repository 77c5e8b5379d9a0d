/* What may change when a run goes on, and what may not. */
#include "common/train/resume.h"

#include "common/base/log.h"
#include "common/model/config_value.h"

#include <string.h>

/* How a key may change. Keys that are not listed may not. */
enum rule {
    RULE_FREE, /* no bit of the model depends on it */
    RULE_SAID, /* allowed, but bits or the schedule change from here on */
    RULE_BF16, /* said in bf16, where each product is rounded; else free */
    RULE_FIXED
};

static const struct {
    const char *key; /* a section, or a key */
    enum rule rule;
} rules[] = {
    /* layouts: the same bits (docs/numerics.md) */
    {"parallel", RULE_FREE},
    {"parallel.strategy", RULE_SAID},
    {"parallel.norm", RULE_SAID},
    {"parallel.vanilla", RULE_SAID},
    {"parallel.tp_payload", RULE_SAID},
    {"parallel.grains", RULE_SAID},
    {"parallel.grouping", RULE_BF16},
    {"parallel.layout_exact", RULE_SAID},
    {"train.micro_batch", RULE_FREE},
    {"train.head_chunk", RULE_FREE},
    /* where the start weights came from: those of the checkpoint are later */
    {"train.init_from", RULE_FREE},
    /* length: the schedule is that of the new one */
    {"train.steps", RULE_SAID},
    {"train.warmup", RULE_SAID},
    {"train.decay", RULE_SAID},
    /* output */
    {"train.eval_every", RULE_FREE},
    {"train.eval_sequences", RULE_FREE},
    {"train.log_every", RULE_FREE},
    {"train.read_every", RULE_FREE},
    {"run", RULE_FREE},
    {"run.backend", RULE_SAID},
    {"checkpoint", RULE_FREE},
    {"profile", RULE_FREE},
    {"shadow", RULE_FREE},
    {"sample", RULE_FREE},
    /* texts may have moved: their hashes are compared */
    {"data.train", RULE_FREE},
    {"data.validation", RULE_FREE},
    /* the name of a shape; the sizes are compared */
    {"model.preset", RULE_FREE},
};

static enum rule rule_of(const struct config_key *k)
{
    enum rule rule = RULE_FIXED;

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!strcmp(rules[i].key, k->name))
            return rules[i].rule;
        if (!strcmp(rules[i].key, k->section))
            rule = rules[i].rule;
    }
    return rule;
}

enum { LIST = 1024 };

/* Adds "key was (is)" to a list. */
static void add(char list[LIST], const struct config_key *k, const char *was, const char *is)
{
    size_t used = strlen(list);

    snprintf(list + used, LIST - used, "%s%s %.80s (now %.80s)", used ? ", " : "", k->name, was,
             is);
}

enum status resume_compare(const struct config *was, const struct config *is)
{
    char a[CONFIG_VALUE], b[CONFIG_VALUE], fixed[LIST] = "", said[LIST] = "";

    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys()[i];
        enum rule rule = rule_of(k);

        if (rule == RULE_BF16)
            rule = is->train.precision == PRECISION_BF16 ? RULE_SAID : RULE_FREE;
        config_value_write(a, sizeof a, k, was);
        config_value_write(b, sizeof b, k, is);
        if (rule != RULE_FREE && strcmp(a, b) != 0)
            add(rule == RULE_FIXED ? fixed : said, k, a, b);
    }
    if (fixed[0])
        return fail(ST_ECONFIG,
                    "the checkpoint was made with %s: a run that goes on keeps its model, data, "
                    "seed and optimiser; set the old values, or begin a new run",
                    fixed);
    if (said[0])
        log_info("resume     the checkpoint was made with %s: from here on the run is not the one "
                 "that it would have been",
                 said);
    return ST_OK;
}
