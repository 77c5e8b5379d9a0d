/* Status codes, the one way to pass them up, and the one record of what went wrong.
 *
 * Every function that can fail returns enum status. fail() records a message for the user;
 * TRY hands a failure to the caller and adds one line of trace, so that a debug log reads like a
 * backtrace. Only cli/main.c ends the program; it prints the record once for the whole job.
 * Each thread has a record of its own: what starts threads passes their messages on.
 */
#ifndef COMMON_BASE_STATUS_H
#define COMMON_BASE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* code, what it means, exit status of the program */
#define STATUS_LIST(X)                                \
    X(ST_OK, "ok", 0)                                 \
    X(ST_EMISMATCH, "a check missed its bound", 1)    \
    X(ST_EUSAGE, "command line not understood", 2)    \
    X(ST_ECONFIG, "configuration not valid", 3)       \
    X(ST_EIO, "file could not be read or written", 4) \
    X(ST_EFORMAT, "file content not valid", 5)        \
    X(ST_ENOMEM, "out of memory", 6)                  \
    X(ST_ESHAPE, "tensor shapes do not agree", 7)     \
    X(ST_EDTYPE, "data type not supported here", 7)   \
    X(ST_ECOMM, "communication failed", 8)            \
    X(ST_EPEER, "another rank failed", 8)             \
    X(ST_EDEVICE, "device reported an error", 9)      \
    X(ST_ENUMERIC, "a number is not finite", 10)      \
    X(ST_EINTERNAL, "internal error", 11)             \
    X(ST_ESTOP, "stopped on request", 130)

enum status {
#define X(code, text, exit) code,
    STATUS_LIST(X)
#undef X
        ST_COUNT
};

/* One sentence for st, without a full stop. Never NULL. */
const char *status_text(enum status st);

/* The program's exit status for st: 0 for ST_OK, 1 for a missed bound, 2 and up for failures. */
int status_exit_code(enum status st);

/* Records the formatted message as the reason of a failure and returns st.
 * The first message recorded since status_clear() is kept: the deepest cause wins. A message names
 * the thing, the value found, the value allowed and what to do; no full stop, no newline. */
enum status fail(enum status st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts text in front of the recorded message ("config.yaml:12: " or the name of a tensor). */
void status_prefix(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Appends "file:line: expr" to the recorded trace and returns st unchanged. Used by TRY. */
enum status status_trace(enum status st, const char *file, int line, const char *expr);

/* The recorded message and trace of this thread; "" when there is none. Valid until the next call
 * that records. */
const char *status_message(void);
const char *status_backtrace(void);

/* Forgets the record. */
void status_clear(void);

#define TRY(expr)                                                \
    do {                                                         \
        enum status st_ = (expr);                                \
        if (st_ != ST_OK)                                        \
            return status_trace(st_, __FILE__, __LINE__, #expr); \
    } while (0)

/* For conditions that only a mistake in this program can make true; users never see them. */
#define FAIL_IF(cond, st)                                                                     \
    do {                                                                                      \
        if (cond)                                                                             \
            return status_trace(fail((st), "%s:%d: %s", __FILE__, __LINE__, #cond), __FILE__, \
                                __LINE__, #cond);                                             \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
