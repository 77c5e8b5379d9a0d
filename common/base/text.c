#include "common/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *scaled(char *buf, double n, double step, const char *const *units, int count)
{
    int i = 0;

    while (i < count - 1 && n >= step) {
        n /= step;
        i++;
    }
    snprintf(buf, TEXT_NUMBER, i == 0 ? "%.0f%s" : "%.1f%s", n, units[i]);
    return buf;
}

char *text_count(char buf[TEXT_NUMBER], double n)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};

    return scaled(buf, n, 1000.0, units, 6);
}

char *text_bytes(char buf[TEXT_NUMBER], double bytes)
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};

    return scaled(buf, bytes, 1024.0, units, 6);
}

char *text_duration(char buf[TEXT_NUMBER], double seconds)
{
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e9) {
        snprintf(buf, TEXT_NUMBER, "-");
        return buf;
    }

    long s = lround(seconds), days = s / 86400;

    if (days)
        snprintf(buf, TEXT_NUMBER, "%ldd %02ld:%02ld:%02ld", days, s / 3600 % 24, s / 60 % 60,
                 s % 60);
    else if (s >= 3600)
        snprintf(buf, TEXT_NUMBER, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, TEXT_NUMBER, "%ld:%02ld", s / 60, s % 60);
    return buf;
}

double text_seconds(const char *text)
{
    static const char units[] = "dhms";
    static const double seconds[] = {86400, 3600, 60, 1};
    const char *unit = units;
    double sum = 0.0;

    if (!*text)
        return -1.0;
    while (*text) {
        double n = 0.0;
        int digits = 0;

        for (; *text >= '0' && *text <= '9'; text++, digits++)
            n = 10.0 * n + (*text - '0');
        unit = *text && digits && digits < 10 ? strchr(unit, *text) : NULL;
        if (!unit)
            return -1.0;
        sum += n * seconds[unit - units];
        unit++;
        text++;
    }
    return sum;
}

double text_size(const char *text)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB"};
    static const double bytes[] = {1, 0x1p10, 0x1p20, 0x1p30, 0x1p40, 1e3, 1e6, 1e9, 1e12};
    char *end;
    double n;

    if (*text < '0' || *text > '9')
        return -1.0;
    n = strtod(text, &end);
    end += *end == ' ';
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i]))
            return n * bytes[i];
    return *end ? -1.0 : n;
}
