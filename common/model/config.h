/* The configuration of a run: struct config, its keys, defaults, checks and print-outs.
 *
 * The keys stand once, in config_keys.def, and the values of choices in config_choices.def; the
 * struct below, the reader, the checks, --print-config and docs/config.md follow from them. A key
 * model.width is the field cfg->model.width: int64_t for whole numbers, double for real ones, bool
 * for on/off, an enum for a choice, char[CONFIG_TEXT] for text,
 * char[CONFIG_LIST] for text that may be a list.
 *
 * The life of a configuration:
 *
 *     config_default(&cfg);
 *     yaml_read(&cfg, path);                      common/cli/yaml.h: file:line in each message
 *     config_override(&cfg, "train.lr=1e-3");     arguments win over the file
 *     config_resolve(&cfg, ranks, vocab);         presets, 0 and auto become values
 *     config_validate(&cfg, ranks);               sizes against layout, before any allocation
 *
 * All functions are local: every rank calls them with the same input and gets the same result,
 * which config_digest() lets the ranks compare.
 */
#ifndef COMMON_MODEL_CONFIG_H
#define COMMON_MODEL_CONFIG_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CONFIG_TEXT = 512, CONFIG_LIST = 4096 }; /* bytes of a text or list, its end included */

/* clang-format off */

/* enum layer_kind { LAYER_FULL, LAYER_COLA, LAYER_SVD }; and so on */
#define KIND(kind)       enum kind {
#define CODE(code, text) code,
#define END()            };
#include "common/model/config_choices.def"

/* struct config_model, config_data, config_train, config_parallel, and so on */
#define SECTION(section, help)              struct config_##section {
#define TEXT(sec, key, init, empty, help) char key[CONFIG_TEXT];
#define LIST(sec, key, help) char key[CONFIG_LIST];
#define INT(sec, key, init, lo, hi, unit, help) int64_t key;
#define REAL(sec, key, init, lo, hi, unit, help) double key;
#define FLAG(sec, key, init, help) bool key;
#define CHOICE(sec, key, kind, init, help) enum kind key;
#define END(section)                        };
#include "common/model/config_keys.def"

/* clang-format on */

/* One byte for each key; only its size is used. */
struct config_count {
#define SECTION(section, help)
#define TEXT(sec, key, init, empty, help)        char sec##_##key;
#define LIST(sec, key, help)                     char sec##_##key;
#define INT(sec, key, init, lo, hi, unit, help)  char sec##_##key;
#define REAL(sec, key, init, lo, hi, unit, help) char sec##_##key;
#define FLAG(sec, key, init, help)               char sec##_##key;
#define CHOICE(sec, key, kind, init, help)       char sec##_##key;
#define END(section)
#include "common/model/config_keys.def"
};
enum { CONFIG_KEYS = sizeof(struct config_count) };

/* Who gave a value; a later one wins over an earlier one. A preset named in the file gives way to
 * the file's own sizes; one named by an argument replaces them. */
enum config_origin {
    ORIGIN_DEFAULT,
    ORIGIN_FILE_PRESET,
    ORIGIN_FILE,
    ORIGIN_ARGUMENT_PRESET,
    ORIGIN_ARGUMENT
};

struct config {
    struct config_model model;
    struct config_data data;
    struct config_train train;
    struct config_parallel parallel;
    struct config_run run;
    struct config_checkpoint checkpoint;
    struct config_profile profile;
    struct config_shadow shadow;
    struct config_sample sample;
    char name[128];                    /* the file's name without folder and ending */
    unsigned char origin[CONFIG_KEYS]; /* enum config_origin of each key */
    int32_t line[CONFIG_KEYS];         /* line of the file that gave it; 0 = none */
};

enum config_type {
    CONFIG_IS_TEXT,
    CONFIG_IS_INT,
    CONFIG_IS_REAL,
    CONFIG_IS_FLAG,
    CONFIG_IS_CHOICE
};

/* One row of the table of keys. */
struct config_key {
    const char *section, *key; /* "model", "width" */
    const char *name;          /* "model.width" */
    enum config_type type;
    bool may_be_empty;       /* TEXT */
    bool list;               /* TEXT that may be a list */
    size_t offset;           /* of the field in struct config */
    const char *text;        /* default of TEXT */
    int64_t integer, lo, hi; /* default and bounds of INT; default of FLAG and CHOICE */
    double real, real_lo, real_hi;
    const char *const *choices; /* CHOICE: NULL-ended, indexed by the enum */
    const char *unit, *help;
};

/* A section and what it is about. */
struct config_section {
    const char *name, *help;
};

/* The table, in the order of config_keys.def: CONFIG_KEYS rows. */
const struct config_key *config_keys(void);

/* The sections in their order; the last has name NULL. */
const struct config_section *config_sections(void);

/* The row of a dotted name; NULL when there is none. */
const struct config_key *config_find(const char *name);

/* Every key gets its default; origin of all is ORIGIN_DEFAULT. */
void config_default(struct config *cfg);

/* Sets the key `name` from text as written in a file or an argument. origin: ORIGIN_FILE or
 * ORIGIN_ARGUMENT; line: of the file, 0 for an argument. Errors: ST_ECONFIG for an unknown name
 * (with the nearest one), one given twice by the same origin, and a value of the wrong kind or
 * out of its range. The message begins with the key; the caller puts the place in front. */
enum status config_set(struct config *cfg, const char *name, const char *text,
                       enum config_origin origin, int line);

/* Sets a key from an argument "model.width=256". An empty text is written key="" with its quotes.
 * Errors as config_set(), with the argument in the message. */
enum status config_override(struct config *cfg, const char *argument);

/* Turns presets, zeros and auto into values.
 * ranks: processes of the job; 0 = as the configuration says (a dry run), which takes dp 0 as 1.
 * vocab: tokens of the tokenizer; 0 = not known: model.vocab 0 then stays 0.
 * run.threads 0 stays 0: it may differ from node to node. Errors: ST_ECONFIG for an unknown
 * preset. Resolving twice changes nothing. */
enum status config_resolve(struct config *cfg, int64_t ranks, int64_t vocab);

/* The same model on one rank, whatever layout cfg is of. Resolve it again afterwards. */
void config_one_rank(struct config *cfg);

/* The same on the reference, which has nothing of what a GPU alone does (config_validate). */
void config_on_ref(struct config *cfg);

/* Checks a resolved configuration against itself and the layout. ranks: as config_resolve().
 * Errors: ST_ECONFIG with one message that names both numbers and a way out. */
enum status config_validate(const struct config *cfg, int64_t ranks);

/* For commands that read text. Errors: ST_ECONFIG when data.train is "", saying how to set it. */
enum status config_need_data(const struct config *cfg);

/* model.vocab rounded up to what embedding and head hold: a multiple of 64 and of tp, so that
 * every grain is equal. The same in every layout whose tp is a power of two up to 64. */
int64_t config_vocab_padded(const struct config *cfg);

/* Sequences whose logits live at once: train.head_chunk; with 0 as many as take 512 MiB on a rank,
 * one at the least; never more than a micro-batch. And the bytes of those logits on a rank. */
int64_t config_head_chunk(const struct config *cfg);
int64_t config_head_bytes(const struct config *cfg);

/* Nonzero when the layers have a bottleneck (cola, svd). */
int config_low_rank(const struct config *cfg);

/* The word for a choice: config_choice_name("model.layer", LAYER_COLA) is "cola". NULL when the
 * key is no choice or has no such value. */
const char *config_choice_name(const char *name, int value);

/* Writes cfg as YAML that yaml_read() takes back to the same values. Errors: ST_EIO. */
enum status config_print(FILE *out, const struct config *cfg);

/* Writes the table of keys: name, value in cfg, default, unit or choices, help. Errors: ST_EIO. */
enum status config_table(FILE *out, const struct config *cfg);

/* Writes docs/config.md. Errors: ST_EIO. */
enum status config_markdown(FILE *out);

/* xxHash64 of what config_print() writes: equal when all keys have equal values. Errors:
 * ST_ENOMEM. */
enum status config_digest(uint64_t *digest, const struct config *cfg);

#endif
