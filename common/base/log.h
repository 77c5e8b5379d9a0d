/* Messages to the user and to the run's log file.
 *
 * Rank 0 speaks for the job: on other ranks log_info() and log_warn() print nothing. Lines are
 * flushed at once, so that `tail -f` and a killed job show the last of them.
 */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include "common/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Sets who speaks. rank: this process' rank in the job; speaker: nonzero where lines are printed
 * (rank 0); level: the lowest level printed. Before this call the process speaks at LOG_INFO. */
void log_open(int rank, int speaker, enum log_level level);

/* Copies every printed line to path as well (opened for append). Errors: ST_EIO. */
enum status log_tee(const char *path);

/* Closes the file of log_tee, if any. */
void log_close(void);

/* One line to stdout (debug, info) or stderr (warn, error); a newline is added. A warning is
 * prefixed "warning: ", an error "narrows: ". log_error prints on every rank that calls it. */
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A line that the next one overwrites, when stdout is a terminal; nothing otherwise. */
void log_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif
#endif
