/* Strict reading of a configuration file: YAML by its events, so that every message has a line.
 *
 * A file is one mapping of sections, each a mapping of keys to plain values. Anything else that
 * YAML offers (anchors, aliases, tags, lists, several documents) is refused by name.
 */
#ifndef COMMON_CLI_YAML_H
#define COMMON_CLI_YAML_H

#include "common/model/config.h"

/* Sets the keys that the file gives, over what cfg holds (config_default() first), and cfg->name
 * from the file's name. Messages begin with "path:line: ". Local: every rank reads the file, or
 * one reads it and sends the text for yaml_read_text().
 * Errors: ST_EIO for a file that is missing, unreadable, a folder, or larger than 1 MiB;
 * ST_ECONFIG for one that is empty or not understood, see config_set(). */
enum status yaml_read(struct config *cfg, const char *path);

/* The same for n bytes of text; path is used for messages and cfg->name. */
enum status yaml_read_text(struct config *cfg, const char *path, const char *text, size_t n);

#endif
