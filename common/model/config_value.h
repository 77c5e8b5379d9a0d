/* One value of a configuration as text: strict reading, and writing that reads back.
 *
 * Shared by the keys of config.h and the options of common/cli/options.h, so that both refuse the
 * same mistakes in the same words.
 */
#ifndef COMMON_MODEL_CONFIG_VALUE_H
#define COMMON_MODEL_CONFIG_VALUE_H

#include "common/model/config.h"

enum { CONFIG_VALUE = 4 * CONFIG_LIST + 16 }; /* bytes of any value as text */
enum { CONFIG_ALLOWED = 256 };                /* bytes of a phrase that says what is allowed */

/* Reads a whole number: an optional minus and decimal digits, nothing else; so not 1e3, 1.0, 0x10,
 * 007, or a blank at an end. what: the name for messages. Errors: ST_ECONFIG, also outside
 * [lo, hi]; *out is then unchanged. */
enum status config_value_int(int64_t *out, const char *what, const char *text, int64_t lo,
                             int64_t hi);

/* Reads a decimal number with optional fraction and exponent (3e-4), nothing else; so not nan, inf
 * or hexadecimal. Errors as config_value_int(). */
enum status config_value_real(double *out, const char *what, const char *text, double lo,
                              double hi);

/* Sets the field of key k in cfg from text. An empty text is "no value" unless k is a text that
 * may be empty. Errors: ST_ECONFIG; cfg is then unchanged. */
enum status config_value_set(struct config *cfg, const struct config_key *k, const char *text);

/* Sets the field of key k in cfg to its default. */
void config_value_default(struct config *cfg, const struct config_key *k);

/* Writes the field of key k as it stands in a YAML file (text in double quotes, with escapes).
 * out holds `size` bytes; CONFIG_VALUE are always enough. */
void config_value_write(char *out, size_t size, const struct config_key *k,
                        const struct config *cfg);

/* Writes what k allows: "a whole number from 1 to 8", "one of full, cola, svd", "on or off". */
void config_value_allowed(char out[CONFIG_ALLOWED], const struct config_key *k);

#endif
