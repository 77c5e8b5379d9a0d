/* Multiple-choice files of llm.c: reading, and what is refused. */
#include "common/data/choices.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

#undef fail

enum { HEADER = 256 };

static char folder[TEMP_PATH], path[TEMP_PATH];

static void setup(void)
{
    temp_folder_make(folder);
    temp_folder_path(path, folder, "questions.bin");
    status_clear();
}

static void teardown(void)
{
    temp_folder_remove(folder);
}

static void write_words(const uint16_t *w, size_t n, int32_t questions)
{
    int32_t header[HEADER] = {CHOICES_MAGIC, 1, questions, 34};
    char *bytes = malloc(sizeof header + n * 2);

    memcpy(bytes, header, sizeof header);
    memcpy(bytes + sizeof header, w, n * 2);
    temp_folder_write(path, bytes, sizeof header + n * 2);
    free(bytes);
}

/* Two questions as llm.c's data_common.py writes them. */
static const uint16_t good[] = {65535, 32,    0,  1, 2, 3, 10, 11, 12, 2, 20, 21, 3, 30, 31,
                                32,    65535, 26, 1, 0, 3, 1,  9,  1,  7, 1,  8,  1, 500};

enum { GOOD = sizeof good / sizeof *good };

START_TEST(test_read)
{
    struct choices_question q;
    struct choices c;

    write_words(good, GOOD, 2);
    ck_assert(choices_is(path));
    OK(choices_open(&c, path));
    ck_assert(c.questions == 2 && c.longest == 6 && c.largest == 500);
    choices_question(&q, &c, 0);
    ck_assert(q.answers == 2 && q.right == 1 && q.context_tokens == 3);
    ck_assert(q.context[0] == 10 && q.context[2] == 12);
    ck_assert(q.answer_tokens[0] == 2 && q.answer[0][1] == 21);
    ck_assert(q.answer_tokens[1] == 3 && q.answer[1][2] == 32);
    choices_question(&q, &c, 1);
    ck_assert(q.answers == 3 && q.right == 0 && q.answer[2][0] == 500);
    choices_close(&c);
}
END_TEST

/* One word of the good file changed. */
START_TEST(test_refused)
{
    static const struct {
        size_t word;
        uint16_t value;
        const char *says;
    } cases[] = {{0, 1, "question 0 does not begin"},
                 {1, 30, "takes 32 bytes and says 30"},
                 {3, 2, "the right one is 2"},
                 {4, 0, "has 0 answers"},
                 {4, 65, "has 65 answers"},
                 {5, 0, "a context of 0 tokens"},
                 {5, 60000, "a context of 60000"},
                 {9, 0, "an answer of 0 tokens"},
                 {12, 60000, "an answer of 60000"},
                 {16, 7, "question 1 does not begin"},
                 {27, 2, "an answer of 2 tokens; 1 words are left"}};
    struct choices c;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t w[GOOD];

        memcpy(w, good, sizeof good);
        w[cases[i].word] = cases[i].value;
        write_words(w, GOOD, 2);
        status_clear();
        ck_assert_msg(choices_open(&c, path) == ST_EFORMAT, "case %zu", i);
        ck_assert_msg(strstr(status_message(), cases[i].says) != NULL, "case %zu: %s", i,
                      status_message());
    }
    for (size_t n = 0; n < GOOD; n++) { /* cut anywhere */
        write_words(good, n, 2);
        ck_assert_int_eq(choices_open(&c, path), ST_EFORMAT);
    }
    write_words(good, GOOD, 1);
    status_clear();
    ck_assert_int_eq(choices_open(&c, path), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "behind the last") != NULL, "%s", status_message());
    write_words(good, GOOD, -1);
    ck_assert_int_eq(choices_open(&c, path), ST_EFORMAT);
    temp_folder_write(path, "abc", 3);
    ck_assert(!choices_is(path));
    ck_assert_int_eq(choices_open(&c, path), ST_EFORMAT);
    ck_assert_int_eq(choices_open(&c, "/nonexistent"), ST_EIO);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("choices");
    TCase *c = tcase_create("choices");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_test(c, test_read);
    tcase_add_test(c, test_refused);
    return check_unit(suite);
}
