/* Other layouts of a model: llama2.c's .bin, CoLA's factors, an index that lies. */
#include "common/base/hash.h"
#include "common/checkpoint/source.h"
#include "common/checkpoint/weights.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

#undef fail

#define STORIES "validation/data/stories260k"

/* Of stories260K.bin as published (karpathy/tinyllamas), without its rotary tables. */
#define PUBLISHED UINT64_C(0xa89898ae4063fb91)

enum { D = 64, F = 172, L = 5, H = 8, KV = 4, V = 512, T = 512, HD = D / H, HEADER = 28 };

static char folder[TEMP_PATH];

static void setup(void)
{
    temp_folder_make(folder);
    status_clear();
}

static void teardown(void)
{
    temp_folder_remove(folder);
}

/* ---- a .bin, written by the layout's own words ---- */

struct bin {
    float *data; /* header first */
    size_t n;    /* floats */
};

static void append(struct bin *b, const float *x, size_t n)
{
    memcpy(b->data + b->n, x, n * sizeof *x);
    b->n += n;
}

/* One matrix of all layers; turn: rows j, j + hd/2 of each head become 2j, 2j + 1. */
static void append_kind(struct bin *b, const struct safetensors *f, const char *kind, int turn)
{
    for (int i = 0; i < L; i++) {
        const struct safetensors_tensor *t;
        char name[96];

        snprintf(name, sizeof name, "model.layers.%d.%s.weight", i, kind);
        t = safetensors_find(f, name);
        ck_assert_ptr_nonnull(t);
        for (int64_t r = 0; r < (turn ? t->count / D : 1); r++) {
            int64_t from = r / HD * HD + (r % 2 ? HD / 2 : 0) + r % HD / 2;

            append(b, (const float *)t->data + (turn ? from * D : 0),
                   (size_t)(turn ? D : t->count));
        }
    }
}

/* stories260K as llama2.c has it; untied: the head follows. */
static struct bin make_bin(int untied)
{
    int32_t header[7] = {D, F, L, H, KV, untied ? -V : V, T};
    struct bin b = {.data = calloc(400000, sizeof(float))};
    const struct safetensors_tensor *t;
    struct safetensors f;
    char path[TEMP_PATH];

    OK(safetensors_open(&f, temp_folder_source(path, STORIES "/model.safetensors")));
    memcpy(b.data, header, sizeof header);
    b.n = 7;
    t = safetensors_find(&f, "model.embed_tokens.weight");
    append(&b, t->data, (size_t)t->count);
    append_kind(&b, &f, "input_layernorm", 0);
    append_kind(&b, &f, "self_attn.q_proj", 1);
    append_kind(&b, &f, "self_attn.k_proj", 1);
    append_kind(&b, &f, "self_attn.v_proj", 0);
    append_kind(&b, &f, "self_attn.o_proj", 0);
    append_kind(&b, &f, "post_attention_layernorm", 0);
    append_kind(&b, &f, "mlp.gate_proj", 0);
    append_kind(&b, &f, "mlp.down_proj", 0);
    append_kind(&b, &f, "mlp.up_proj", 0);
    t = safetensors_find(&f, "model.norm.weight");
    append(&b, t->data, D);
    b.n += (size_t)T * HD; /* tables of rotary positions: zeros here */
    t = safetensors_find(&f, "model.embed_tokens.weight");
    if (untied)
        append(&b, t->data, (size_t)t->count);
    safetensors_close(&f);
    return b;
}

static const char *write_bin(char *path, const struct bin *b, size_t bytes)
{
    temp_folder_path(path, folder, "model.bin");
    temp_folder_write(path, b->data, bytes);
    return path;
}

/* The file made here is the published one, and every tensor read from it is Hugging Face's. */
START_TEST(test_llama2c)
{
    struct bin b = make_bin(0);
    struct safetensors f;
    struct config cfg, want;
    struct source s;
    char path[TEMP_PATH], other[TEMP_PATH];

    ck_assert_uint_eq(hash_bytes(b.data, (b.n - (size_t)T * HD) * sizeof(float)), PUBLISHED);
    write_bin(path, &b, b.n * sizeof(float));
    config_default(&cfg);
    config_default(&want);
    OK(source_config(&cfg, path));
    OK(source_config(&want, temp_folder_source(other, STORIES)));
    OK(hf_config_same(&cfg, &want));
    ck_assert_int_eq(cfg.train.seq, T);
    OK(source_open(&s, path));
    OK(safetensors_open(&f, temp_folder_source(other, STORIES "/model.safetensors")));
    ck_assert_int_eq(s.n, f.n);
    for (int i = 0; i < s.n; i++) {
        float *x = malloc((size_t)f.tensor[i].count * sizeof *x);

        ck_assert_str_eq(s.tensor[i].name, f.tensor[i].name);
        ck_assert_int_eq(s.tensor[i].rank, f.tensor[i].rank);
        ck_assert_int_eq(s.tensor[i].rows * s.tensor[i].cols, f.tensor[i].count);
        OK(source_read_all(x, DT_F32, &s.tensor[i]));
        ck_assert_msg(!memcmp(x, f.tensor[i].data, (size_t)f.tensor[i].count * sizeof *x), "%s",
                      s.tensor[i].name);
        free(x);
    }
    safetensors_close(&f);
    source_close(&s);
    free(b.data);
}
END_TEST

START_TEST(test_llama2c_untied)
{
    struct bin b = make_bin(1);
    struct config cfg;
    struct source s;
    char path[TEMP_PATH];
    float x;

    write_bin(path, &b, b.n * sizeof(float));
    config_default(&cfg);
    OK(source_config(&cfg, path));
    ck_assert(!cfg.model.tied && cfg.model.vocab == V);
    OK(source_open(&s, path));
    OK(source_read(&x, DT_F32, source_find(&s, "lm_head.weight"), V - 1, D - 1, 1));
    ck_assert(x == b.data[b.n - 1]);
    source_close(&s);
    free(b.data);
}
END_TEST

START_TEST(test_llama2c_refused)
{
    static const struct {
        int word;
        int32_t value;
        const char *says;
    } cases[] = {{0, 0x616b3432, "later version"},
                 {0, 0, "0 width"},
                 {1, -1, "-1 FFN"},
                 {2, 1 << 20, "1048576 blocks"},
                 {3, 7, "do not go together"},
                 {4, 3, "do not go together"},
                 {5, INT32_MIN, "vocabulary"},
                 {6, 0, "0 positions"},
                 {2, 6, "it was cut off"},
                 {2, 4, "bytes; the sizes"}};
    struct bin b = make_bin(0);
    struct config cfg;
    struct source s;
    char path[TEMP_PATH];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t word[7], old[7];

        memcpy(old, b.data, sizeof old);
        memcpy(word, old, sizeof word);
        word[cases[i].word] = cases[i].value;
        memcpy(b.data, word, sizeof word);
        write_bin(path, &b, b.n * sizeof(float));
        memcpy(b.data, old, sizeof old);
        status_clear();
        ck_assert_int_eq(source_open(&s, path), ST_EFORMAT);
        ck_assert_msg(strstr(status_message(), cases[i].says) != NULL, "%s", status_message());
    }
    for (size_t bytes = 0; bytes < 40; bytes += 3) {
        write_bin(path, &b, bytes);
        ck_assert_int_eq(source_open(&s, path), ST_EFORMAT);
    }
    write_bin(path, &b, 20);
    ck_assert_int_eq(source_config(&cfg, path), ST_EFORMAT);
    temp_folder_path(path, folder, "none.bin");
    ck_assert_int_eq(source_open(&s, path), ST_EIO);
    free(b.data);
}
END_TEST

/* ---- CoLA ---- */

/* Factors [in, rank] and [rank, out] come out as [rank, in] and [out, rank]. */
START_TEST(test_cola)
{
    struct safetensors_spec spec[2] = {
        {"model.layers.0.mlp.up_proj.cola_a", SAFETENSORS_F32, 2, {5, 3}},
        {"model.layers.0.mlp.up_proj.cola_b", SAFETENSORS_BF16, 2, {3, 7}}};
    const struct source_tensor *down, *up;
    struct safetensors_writer w;
    struct source s;
    char path[TEMP_PATH];
    uint16_t b[21];
    float a[15], x[35];

    for (int i = 0; i < 21; i++)
        b[i] = bf16_from_float((float)i);
    for (int i = 0; i < 15; i++)
        a[i] = (float)i;
    OK(safetensors_create(&w, temp_folder_path(path, folder, "m.safetensors"), spec, 2, NULL));
    OK(safetensors_put(&w, spec[0].name, a));
    OK(safetensors_put(&w, spec[1].name, b));
    OK(safetensors_finish(&w));
    OK(source_open(&s, path));
    down = source_find(&s, "model.layers.0.mlp.up_proj.down.weight");
    up = source_find(&s, "model.layers.0.mlp.up_proj.up.weight");
    ck_assert(down && up && s.n == 2);
    ck_assert(down->rows == 3 && down->cols == 5 && up->rows == 7 && up->cols == 3);
    OK(source_read_all(x, DT_F32, down));
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 5; j++)
            ck_assert(x[i * 5 + j] == a[j * 3 + i]);
    OK(source_read(x, DT_F32, up, 4, 1, 2));
    ck_assert(x[0] == 11 && x[1] == 18);
    ck_assert_int_eq(source_read(x, DT_F32, up, 7, 0, 1), ST_EINTERNAL);
    ck_assert_int_eq(source_read(x, DT_F32, up, 0, 2, 2), ST_EINTERNAL);
    source_close(&s);
}
END_TEST

/* ---- an index ---- */

START_TEST(test_index)
{
    static const char head[] = "{\"weight_map\": {\"a\": \"one.safetensors\", \"%s\": \"%s\"}}";
    struct safetensors_spec spec = {"a", SAFETENSORS_F32, 1, {1}};
    struct safetensors_writer w;
    struct source s;
    char path[TEMP_PATH], text[256];
    static const char config[] = "{\"model_type\": \"llama\", \"vocab_size\": 5, \"hidden_size\": "
                                 "4, \"intermediate_size\": 4,"
                                 " \"num_hidden_layers\": 1, \"num_attention_heads\": 1}";
    float one = 1;

    temp_folder_write(temp_folder_path(path, folder, "config.json"), config, sizeof config - 1);
    for (int i = 0; i < 2; i++) {
        temp_folder_path(path, folder, i ? "two.safetensors" : "one.safetensors");
        OK(safetensors_create(&w, path, &spec, 1, NULL));
        OK(safetensors_put(&w, "a", &one));
        OK(safetensors_finish(&w));
    }
    temp_folder_path(path, folder, WEIGHTS_INDEX);
    snprintf(text, sizeof text, head, "b", "one.safetensors");
    temp_folder_write(path, text, strlen(text));
    ck_assert_int_eq(source_open(&s, folder), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "tensor b is missing from one.safetensors") != NULL,
                  "%s", status_message());
    status_clear();
    snprintf(text, sizeof text, head, "c", "three.safetensors");
    temp_folder_write(path, text, strlen(text));
    ck_assert_int_eq(source_open(&s, folder), ST_EIO);
    status_clear();
    spec.name = "d";
    temp_folder_path(path, folder, "two.safetensors");
    OK(safetensors_create(
        &w, path, (struct safetensors_spec[]){{"a", SAFETENSORS_F32, 1, {1}}, spec}, 2, NULL));
    OK(safetensors_put(&w, "a", &one));
    OK(safetensors_put(&w, "d", &one));
    OK(safetensors_finish(&w));
    temp_folder_path(path, folder, WEIGHTS_INDEX);
    snprintf(text, sizeof text, head, "d", "two.safetensors");
    temp_folder_write(path, text, strlen(text));
    ck_assert_int_eq(source_open(&s, folder), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "a is there twice") != NULL, "%s", status_message());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("source");
    TCase *c = tcase_create("source");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_test(c, test_llama2c);
    tcase_add_test(c, test_llama2c_untied);
    tcase_add_test(c, test_llama2c_refused);
    tcase_add_test(c, test_cola);
    tcase_add_test(c, test_index);
    return check_unit(suite);
}
