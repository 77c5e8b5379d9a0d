/* Private to launch*.c: running mpirun, and reading what it says. */
#ifndef COMMON_CLI_LAUNCH_JOB_H
#define COMMON_CLI_LAUNCH_JOB_H

#include "common/cli/launch.h"

/* What comes from mpirun and its ranks, on its way to the terminal or to memory. */
struct launch_text {
    int capture; /* keep in data instead of printing */
    char *data;
    size_t used, limit; /* bytes of data, without its closing zero */
    struct launch_result *result;

    char box[8192]; /* of the error stream: an unfinished line, or one of mpirun's boxes */
    size_t held;
    int in_box;
};

/* More text. Lines of mpirun's error stream about ranks that ended badly are read into the result
 * and not passed on. */
void launch_text_add(struct launch_text *text, const char *data, size_t n, int from_err);

/* Passes on what is held. */
void launch_text_end(struct launch_text *text);

/* Runs mpirun (a full argument list) until it has ended. Errors: ST_EIO. */
enum status launch_watch(struct launch_result *result, const struct launch *job,
                         char *const *mpirun, struct launch_text *text);

#endif
