#include "common/train/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const names[START_PARTS] = {
    "program and MPI",           "data", "device and groups", "memory and start values",
    "checkpoint and run folder", "step"};

static double clock_of(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds since this process began, to a hundredth; 0 where the system does not tell. Field 22 of
 * /proc/self/stat counts from the machine's start; the name before it may hold anything but the
 * last bracket. */
static double age(void)
{
    enum { FIELD = 22, NAME = 2 };
    char line[1024], *at;
    FILE *in = fopen("/proc/self/stat", "re");
    size_t n = in ? fread(line, 1, sizeof line - 1, in) : 0;
    double began;

    if (in)
        fclose(in);
    line[n] = '\0';
    at = strrchr(line, ')');
    for (int field = NAME; at && field < FIELD; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return 0.0;
    began = (double)strtoull(at + 1, NULL, 10) / (double)sysconf(_SC_CLK_TCK);
    began = clock_of(CLOCK_BOOTTIME) - began;
    return began > 0.0 ? began : 0.0;
}

void start_begin(struct start *s)
{
    memset(s, 0, sizeof *s);
    s->seconds[START_PROGRAM] = age();
    s->since = clock_of(CLOCK_MONOTONIC);
}

void start_lap(struct start *s, enum start_part part)
{
    double now = clock_of(CLOCK_MONOTONIC);

    s->seconds[part] += now - s->since;
    s->since = now;
}

double start_seconds(const struct start *s)
{
    double sum = 0.0;

    for (int i = 0; i < START_PARTS; i++)
        sum += s->seconds[i];
    return sum;
}

void start_text(char *out, size_t size, const struct start *s)
{
    size_t used = 0;

    for (int i = 0; i < START_PARTS && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s %.2f", i ? ", " : "", names[i],
                                 s->seconds[i]);
}
