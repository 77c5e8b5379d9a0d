/* Numbers as people read them. Each writes into a caller's buffer of TEXT_NUMBER bytes and
 * returns it, so that several can stand in one printf. */
#ifndef COMMON_BASE_TEXT_H
#define COMMON_BASE_TEXT_H

#include <stddef.h>

enum { TEXT_NUMBER = 32 };

/* 950 "950", 41234 "41.2k", 2.5e6 "2.5M", then G, T. */
char *text_count(char buf[TEXT_NUMBER], double n);

/* 512 "512 B", 1536 "1.5 KiB", then MiB, GiB, TiB. */
char *text_bytes(char buf[TEXT_NUMBER], double bytes);

/* Seconds: "0:07", "12:34", "3:02:01", "4d 03:02:01"; "-" when not finite or negative. */
char *text_duration(char buf[TEXT_NUMBER], double seconds);

/* Seconds of a text such as "3h50m", "90s", "1d12h" (whole numbers with d, h, m, s, each at most
 * once and in this order); negative when it is none. */
double text_seconds(const char *text);

/* Bytes of a text such as "80GiB", "1.5 TiB", "141GB", "4096" (B, KiB, MiB, GiB, TiB are steps of
 * 1024, KB, MB, GB, TB of 1000); negative when it is none. */
double text_size(const char *text);

#endif
