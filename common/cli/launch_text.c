/* mpirun frames its messages by lines of dashes. Those which only say that a rank ended badly are
 * told in one line by launch_explain; all others pass unchanged. */
#include "common/cli/launch_job.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char dashes[] =
    "--------------------------------------------------------------------------\n";

static void pass(struct launch_text *text, const char *data, size_t n, int from_err)
{
    size_t room;

    if (!text->capture) {
        fwrite(data, 1, n, from_err ? stderr : stdout);
        return;
    }
    room = text->limit - text->used;
    memcpy(text->data + text->used, data, n < room ? n : room);
    text->used += n < room ? n : room;
    text->data[text->used] = '\0';
}

static void pass_held(struct launch_text *text)
{
    pass(text, text->box, text->held, 1);
    text->held = 0;
    text->in_box = 0;
}

/* Reads "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)." */
static void read_death(struct launch_result *r, const char *line)
{
    char node[sizeof r->node];
    int rank, sig;

    if (sscanf(line,
               "mpirun noticed that process rank %d with PID %*d on node %63s exited on "
               "signal %d",
               &rank, node, &sig) != 3)
        return;
    r->rank = rank;
    r->signal = sig;
    memcpy(r->node, node, sizeof node);
}

/* Whether launch_explain replaces the box that is held; reads it. */
static int known(struct launch_text *text)
{
    static const char *const begins[] = {
        "Primary job  terminated normally, but ", "mpirun noticed that process rank ",
        "mpirun detected that one or more processes exited with non-zero status",
        "MPI_ABORT was invoked on rank "};
    const char *first = text->box + sizeof dashes - 1;

    read_death(text->result, first);
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (!strncmp(first, begins[i], strlen(begins[i])))
            return 1;
    return 0;
}

/* mpirun gets two ranks' last messages at once and cannot read one of them; it says the same in a
 * box. Other ORTE_ERROR_LOG lines may be all that mpirun says of a job that it could not start. */
static int lost_help(const char *line)
{
    return strstr(line, "ORTE_ERROR_LOG: ") && strstr(line, "orte/util/show_help.c");
}

/* Something outside a box that is not for the user. */
static int noise(const char *line)
{
    return lost_help(line) || strstr(line, "mpirun: Forwarding signal ") ||
           strstr(line, "PMIX ERROR: ") || strstr(line, "has sent help message help-") ||
           strstr(line, "have sent help message help-") ||
           strstr(line, "Set MCA parameter \"orte_base_help_aggregate\"");
}

/* The line that begins at box[at] has come to its end. */
static void end_line(struct launch_text *text, size_t at)
{
    int dash = !strcmp(text->box + at, dashes);

    if (!text->in_box && dash) {
        text->in_box = 1;
    } else if (text->in_box && dash) {
        if (known(text))
            text->held = 0;
        pass_held(text);
    } else if (!text->in_box) {
        if (noise(text->box))
            text->held = 0;
        pass_held(text);
    }
}

void launch_text_add(struct launch_text *text, const char *data, size_t n, int from_err)
{
    size_t at = text->held;

    if (!from_err) {
        pass(text, data, n, 0);
        return;
    }
    while (at > 0 && text->box[at - 1] != '\n')
        at--;
    for (size_t i = 0; i < n; i++) {
        text->box[text->held++] = data[i];
        text->box[text->held] = '\0';
        if (data[i] == '\n') {
            end_line(text, at);
            at = text->held;
        } else if (text->held + 2 > sizeof text->box) {
            pass_held(text);
            at = 0;
        }
    }
    /* A progress line or a question has no end: it must not wait for one. */
    if (!text->in_box && text->held > 0 && text->box[0] != '-')
        pass_held(text);
    if (!text->capture)
        fflush(stderr);
}

void launch_text_end(struct launch_text *text)
{
    if (text->in_box && known(text))
        text->held = 0;
    pass_held(text);
    fflush(stderr);
}
