#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Who speaks and where to: set once at start, like stdout itself. */
static struct {
    FILE *tee;
    enum log_level level;
    int rank, silent;
    int progress_shown;
} state = {.level = LOG_INFO};

void log_open(int rank, int speaker, enum log_level level)
{
    state.rank = rank;
    state.silent = !speaker;
    state.level = level;
}

enum status log_tee(const char *path)
{
    log_close();
    state.tee = fopen(path, "a");
    if (!state.tee)
        return fail(ST_EIO, "cannot open log file %s: %s", path, strerror(errno));
    return ST_OK;
}

void log_close(void)
{
    if (state.tee)
        fclose(state.tee);
    state.tee = NULL;
}

static void clear_progress(void)
{
    if (state.progress_shown)
        fputs("\r\033[K", stdout);
    state.progress_shown = 0;
}

/* A log that cannot be written is said once, and given up: the run is worth more than its log. */
static void tee_check(void)
{
    if (!fflush(state.tee) && !ferror(state.tee))
        return;
    fprintf(stderr, "warning: the log file cannot be written and ends here: %s\n", strerror(errno));
    fclose(state.tee);
    state.tee = NULL;
}

static void line(enum log_level level, const char *prefix, const char *fmt, va_list args)
{
    FILE *out = level >= LOG_WARN ? stderr : stdout;
    va_list again;

    if (level < state.level || (state.silent && level < LOG_ERROR))
        return;
    clear_progress();
    fflush(stdout);
    va_copy(again, args);
    fputs(prefix, out);
    vfprintf(out, fmt, args);
    fputc('\n', out);
    fflush(out);
    if (state.tee) {
        fputs(prefix, state.tee);
        vfprintf(state.tee, fmt, again);
        fputc('\n', state.tee);
        tee_check();
    }
    va_end(again);
}

#define LOG_FUNCTION(name, level, prefix)   \
    void name(const char *fmt, ...)         \
    {                                       \
        va_list args;                       \
                                            \
        va_start(args, fmt);                \
        line((level), (prefix), fmt, args); \
        va_end(args);                       \
    }

LOG_FUNCTION(log_debug, LOG_DEBUG, "debug: ")
LOG_FUNCTION(log_info, LOG_INFO, "")
LOG_FUNCTION(log_warn, LOG_WARN, "warning: ")
LOG_FUNCTION(log_error, LOG_ERROR, "narrows: ")

/* Whether somebody watches standard output. mpirun gives its ranks a terminal of its own even when
 * what they print goes to a file: there the launcher's word counts. */
static int watched(void)
{
    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return getenv("NARROWS_TERMINAL") != NULL;
    return isatty(STDOUT_FILENO);
}

void log_progress(const char *fmt, ...)
{
    va_list args;

    if (state.silent || state.level > LOG_INFO || !watched())
        return;
    va_start(args, fmt);
    clear_progress();
    vprintf(fmt, args);
    fflush(stdout);
    state.progress_shown = 1;
    va_end(args);
}
