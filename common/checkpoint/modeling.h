/* modeling_narrows.py: the Python file that lets transformers compute low-rank models. */
#ifndef COMMON_CHECKPOINT_MODELING_H
#define COMMON_CHECKPOINT_MODELING_H

#include "common/base/status.h"

/* Writes it to path. Errors: ST_EIO. */
enum status modeling_write(const char *path);

#endif
