#include "common/base/utf8.h"

/* The bytes that follow lead, and the range that the first of them must lie in: it is what rules
 * out overlong forms (e0, f0), surrogates (ed) and code points over 10FFFF (f4). */
static size_t following(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    if (lead < 0xe0)
        return 1;
    if (lead == 0xe0)
        *low = 0xa0;
    if (lead == 0xed)
        *high = 0x9f;
    if (lead == 0xf0)
        *low = 0x90;
    if (lead == 0xf4)
        *high = 0x8f;
    return lead < 0xf0 ? 2 : 3;
}

size_t utf8_length(const unsigned char *text, size_t n)
{
    unsigned char low, high;
    size_t more;

    if (n == 0)
        return 0;
    if (text[0] < 0x80)
        return 1;
    more = following(text[0], &low, &high);
    if (more == 0 || more >= n || text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i <= more; i++)
        if (text[i] < 0x80 || text[i] > 0xbf)
            return 0;
    return more + 1;
}

size_t utf8_invalid(const unsigned char *text, size_t n)
{
    size_t i = 0;

    while (i < n) {
        size_t length = utf8_length(text + i, n - i);

        if (length == 0)
            return i;
        i += length;
    }
    return n;
}
