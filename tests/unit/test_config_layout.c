/* Presets, resolving, and the checks of sizes against layouts. */
#include "common/cli/yaml.h"
#include "common/model/config.h"
#include "common/model/presets.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A small model that every layout up to 8 ranks can hold, then the arguments in words. */
static enum status make(struct config *cfg, const char *arguments, int64_t ranks)
{
    char copy[512], *rest = copy;

    config_default(cfg);
    snprintf(copy, sizeof copy, "%s", arguments);
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (*word)
            TRY(config_override(cfg, word));
    TRY(config_resolve(cfg, ranks, 259));
    return config_validate(cfg, ranks);
}

static const struct {
    const char *arguments;
    int ranks;
    const char *parts[4];
} bad[] = {
    {"model.width=130", 1, {"model.width 130", "model.heads 8", "model.width=136"}},
    {"model.width=24", 1, {"model.width 24 / model.heads 8 = 3", "odd", "multiple of 16"}},
    {"model.kv_heads=3", 1, {"model.kv_heads 3 does not divide model.heads 8", "kv_heads=0"}},
    {"model.kv_heads=16", 1, {"model.kv_heads 16 does not divide model.heads 8"}},
    {"model.kv_heads=2 parallel.tp=4",
     4,
     {"model.kv_heads 2 cannot be divided among parallel.tp 4 ranks", "one of 1, 2",
      "model.kv_heads to a multiple of 4"}},
    {"model.heads=4 parallel.tp=8", 8, {"model.heads 4 cannot", "parallel.tp 8", "1, 2, 4"}},
    {"model.ffn=175 parallel.tp=2", 2, {"model.ffn 175", "parallel.tp 2 ranks", "one of 1,"}},
    {"model.rank=15 parallel.strategy=vanilla parallel.tp=2",
     2,
     {"model.rank 15", "parallel.tp 2", "model.rank to a multiple of 2"}},
    {"model.preset=1b-cola parallel.tp=2", 2, {"model.ffn 5461", "parallel.tp 2"}},
    {"model.rank=256", 1, {"model.rank 256 is not below model.width 256", "model.layer=full"}},
    {"model.vocab=100", 1, {"model.vocab 100", "259 tokens", "model.vocab=0"}},
    {"model.layer=full parallel.strategy=btp",
     1,
     {"parallel.strategy btp", "model.layer is full", "parallel.strategy=full"}},
    {"model.layer=full parallel.strategy=vanilla", 1, {"parallel.strategy vanilla"}},
    {"model.layer=svd parallel.strategy=full", 1, {"parallel.strategy full", "layer is svd"}},
    {"model.layer=full model.init=cola", 1, {"model.init cola", "model.init=auto"}},
    {"parallel.recompute=bottleneck parallel.strategy=vanilla",
     1,
     {"parallel.recompute bottleneck needs parallel.strategy btp, not vanilla", "=block"}},
    {"parallel.recompute=bottleneck model.layer=full", 1, {"btp, not full"}},
    {"train.precision=fp64 run.backend=gpu", 1, {"fp64", "ref only", "train.precision=fp32"}},
    {"train.pure_bf16=on", 1, {"train.pure_bf16", "train.precision is fp32"}},
    {"run.graph=on", 1, {"run.graph on", "run.graph=off"}},
    {"run.deterministic=off", 1, {"run.deterministic off", "run.deterministic=on"}},
    {"train.precision=fp64 parallel.tp_payload=bf16", 1, {"tp_payload bf16", "fp64"}},
    {"parallel.pp=2 parallel.virtual_stages=2 parallel.schedule=interleaved shadow.every=5",
     2,
     {"shadow.every 5", "interleaved (parallel.virtual_stages 2)", "shadow.every=0"}},
    {"profile.first=5 profile.last=4", 1, {"profile.last 4", "profile.first 5", "last=0"}},
    {"profile.last=4", 1, {"profile.last 4 needs profile.first"}},
    {"parallel.tp=3", 3, {"parallel.tp 3 is not a power of two", "layout_exact=off"}},
    {"parallel.tp=3 parallel.layout_exact=off",
     3,
     {"model.heads 8", "parallel.tp 3", "1, 2, 4, 8"}},
    {"parallel.grains=3", 1, {"parallel.grains 3 is not a power of two"}},
    {"model.heads=6 model.width=192 model.ffn=510 parallel.tp=6",
     6,
     {"parallel.tp 6 is not a power of two", "layout_exact=off"}},
    {"parallel.grains=16", 1, {"model.heads 8", "parallel.grains 16", "1, 2, 4, 8"}},
    {"parallel.grains=2 parallel.tp=4", 4, {"parallel.tp 4", "parallel.grains 2", "grains=4"}},
    {"model.heads=16 parallel.tp=16", 16, {"parallel.tp 16", "parallel.grains 8", "grains=16"}},
    {"parallel.tp=2", 3, {"3 ranks", "parallel.tp 2 x parallel.dp 1 = 2", "mpirun -n 2"}},
    {"parallel.tp=2", 1, {"1 ranks", "= 2", "mpirun -n 2", "parallel.tp=1 parallel.dp=1"}},
    {"parallel.tp=2 parallel.dp=2",
     2,
     {"2 ranks", "= 4", "mpirun -n 4", "parallel.tp=2 parallel.dp=1"}},
    {"parallel.tp=2 parallel.dp=2", 8, {"8 ranks", "= 4", "parallel.tp=2 parallel.dp=4"}},
    {"parallel.tp=2 parallel.dp=3", 4, {"4 ranks", "= 6", "mpirun -n 4"}},
    {"", 3, {"parallel.dp 3 (3 ranks / parallel.tp 1)", "power of two", "mpirun -n 2", "=off"}},
    {"parallel.dp=3", 0, {"parallel.dp 3", "power of two"}},
    {"train.batch=6", 4, {"train.batch 6", "parallel.dp 4", "train.batch=8"}},
    {"parallel.layout_exact=off", 3, {"train.batch 32", "parallel.dp 3", "train.batch=33"}},
    {"train.micro_batch=3", 2, {"train.micro_batch 3", "16 sequences of a rank", "divisor of 16"}},
    {"train.micro_batch=4 train.head_chunk=5",
     1,
     {"train.head_chunk 5", "4 sequences of train.micro_batch", "head_chunk=0", "or 4 or less"}},
    {"train.micro_batch=64", 1, {"train.micro_batch 64", "32 sequences"}},
    {"parallel.overlap=all parallel.tp=2 train.micro_batch=1",
     2,
     {"parallel.overlap all", "train.micro_batch is 1", "overlap=backward"}},
    {"train.steps=10 train.warmup=10", 1, {"train.warmup 10", "train.steps 10", "warmup=-1"}},
    {"train.schedule=constant train.steps=10 train.warmup=11", 1, {"train.warmup 11"}},
    {"train.schedule=wsd train.steps=10 train.warmup=5 train.decay=6",
     1,
     {"train.warmup 5", "train.decay 6", "train.steps 10", "train.decay=5"}},
    {"model.preset=60m-cloa", 1, {"'60m-cloa' is not known", "did you mean 60m-cola?"}},
    {"model.preset=60m", 1, {"'60m' lacks the kind of layer", "60m-full, 60m-cola or 60m-svd"}},
    {"model.preset=gigantic-full", 1, {"'gigantic-full' is not known", "narrows presets"}},
};

START_TEST(test_bad_layout)
{
    struct config cfg;

    status_clear();
    ck_assert_msg(make(&cfg, bad[_i].arguments, bad[_i].ranks) == ST_ECONFIG,
                  "'%s' on %d ranks was taken, or: %s", bad[_i].arguments, bad[_i].ranks,
                  status_message());
    for (int p = 0; p < 4 && bad[_i].parts[p]; p++)
        ck_assert_msg(strstr(status_message(), bad[_i].parts[p]) != NULL,
                      "'%s' on %d ranks\n gave: %s\n lacks: %s", bad[_i].arguments, bad[_i].ranks,
                      status_message(), bad[_i].parts[p]);
}
END_TEST

static const struct {
    const char *arguments;
    int ranks;
    int tp, dp, grains;
} good[] = {
    {"", 1, 1, 1, 8},
    {"", 0, 1, 1, 8},
    {"", 4, 1, 4, 8},
    {"parallel.tp=2", 2, 2, 1, 8},
    {"parallel.tp=2", 8, 2, 4, 8},
    {"parallel.tp=8", 8, 8, 1, 8},
    {"parallel.tp=4", 0, 4, 1, 8},
    {"parallel.tp=2 parallel.dp=2", 0, 2, 2, 8},
    {"model.kv_heads=2 parallel.tp=2", 2, 2, 1, 2},
    {"model.heads=16 parallel.tp=16 parallel.grains=16", 16, 16, 1, 16},
    {"model.rank=60 parallel.strategy=vanilla parallel.tp=4", 4, 4, 1, 4},
    {"model.rank=60 parallel.tp=4", 4, 4, 1, 8},
    {"model.heads=6 model.width=192 model.ffn=510 parallel.tp=3 parallel.layout_exact=off", 3, 3, 1,
     3},
    {"train.batch=9 parallel.layout_exact=off", 3, 1, 3, 1},
    {"model.heads=6 model.width=192 model.ffn=510 parallel.tp=3 parallel.grains=8 "
     "parallel.layout_exact=off",
     3, 3, 1, 3},
    {"parallel.tp=2 parallel.grains=4 parallel.layout_exact=off", 2, 2, 1, 4},
    {"model.layer=full parallel.tp=2", 2, 2, 1, 8},
    {"model.preset=1b-cola", 1, 1, 1, 1},
    {"model.preset=1b-boost-cola parallel.tp=8", 8, 8, 1, 8},
    {"train.precision=fp64", 1, 1, 1, 8},
    {"train.schedule=constant train.steps=10 train.warmup=10", 1, 1, 1, 8},
    {"train.steps=1", 1, 1, 1, 8},
    {"train.steps=1 train.schedule=wsd", 1, 1, 1, 8},
};

START_TEST(test_good_layout)
{
    struct config cfg, again;

    ck_assert_msg(make(&cfg, good[_i].arguments, good[_i].ranks) == ST_OK, "%s", status_message());
    ck_assert_int_eq(cfg.parallel.tp, good[_i].tp);
    ck_assert_int_eq(cfg.parallel.dp, good[_i].dp);
    ck_assert_int_eq(cfg.parallel.grains, good[_i].grains);
    ck_assert_int_eq(config_vocab_padded(&cfg) % good[_i].grains, 0);
    ck_assert_int_ge(config_vocab_padded(&cfg), cfg.model.vocab);
    again = cfg;
    ck_assert_int_eq(config_resolve(&again, good[_i].ranks, 259), ST_OK);
    ck_assert_int_eq(memcmp(&cfg, &again, sizeof cfg), 0);
}
END_TEST

/* How often the host reads what steps found: lines of the log are never late. */
START_TEST(test_read_every)
{
    static const struct {
        const char *change;
        int log_every, read_every;
    } on[] = {{"run.backend=ref", 10, 1},
              {"run.backend=gpu", 10, 10},
              {"run.backend=gpu", 1, 1},
              {"run.backend=gpu", 1000, 16}};
    struct config cfg;

    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        config_default(&cfg);
        ck_assert_int_eq(config_override(&cfg, on[i].change), ST_OK);
        cfg.train.log_every = on[i].log_every;
        ck_assert_int_eq(config_resolve(&cfg, 1, 259), ST_OK);
        ck_assert_int_eq(cfg.train.read_every, on[i].read_every);
    }
    cfg.train.read_every = 7;
    ck_assert_int_eq(config_resolve(&cfg, 1, 259), ST_OK);
    ck_assert_int_eq(cfg.train.read_every, 7);
}
END_TEST

START_TEST(test_resolve)
{
    struct config cfg;

    ck_assert_int_eq(make(&cfg, "train.steps=500 train.schedule=wsd", 2), ST_OK);
    ck_assert_int_eq(cfg.model.kv_heads, 8);
    ck_assert_int_eq(cfg.model.ffn, 704);
    ck_assert_int_eq(cfg.model.rank, 64);
    ck_assert_int_eq(cfg.model.vocab, 259);
    ck_assert_int_eq(config_vocab_padded(&cfg), 320);
    ck_assert_int_eq(cfg.model.outer_silu, SILU_OFF);
    ck_assert_int_eq(cfg.model.init, INIT_COLA);
    ck_assert_int_eq(cfg.train.warmup, 50);
    ck_assert_int_eq(cfg.train.decay, 100);
    ck_assert_int_eq(cfg.train.micro_batch, 16);
    ck_assert_int_eq(cfg.parallel.strategy, STRATEGY_BTP);
    ck_assert_int_eq(cfg.parallel.tp_payload, PAYLOAD_FP32);
    ck_assert_str_eq(cfg.run.dir, "runs/run");
    ck_assert_int_eq(make(&cfg, "model.layer=full model.rank=32", 1), ST_OK);
    ck_assert_int_eq(cfg.model.rank, 0);
    ck_assert_int_eq(cfg.model.outer_silu, SILU_ON);
    ck_assert_int_eq(cfg.model.init, INIT_STANDARD);
    ck_assert_int_eq(cfg.parallel.strategy, STRATEGY_FULL);
    ck_assert_int_eq(make(&cfg, "model.width=770 model.heads=1", 1), ST_OK);
    ck_assert_int_eq(cfg.model.ffn, 2112); /* 8/3 770 = 2053.3 */
    ck_assert_int_eq(make(&cfg, "model.width=768 model.heads=1", 1), ST_OK);
    ck_assert_int_eq(cfg.model.ffn, 2048); /* 8/3 768 = 2048 */
    ck_assert_int_eq(make(&cfg, "model.layer=svd", 1), ST_OK);
    ck_assert_int_eq(cfg.model.outer_silu, SILU_ON);
    ck_assert_int_eq(make(&cfg, "run.backend=gpu train.precision=bf16", 1), ST_OK);
    ck_assert_int_eq(cfg.parallel.tp_payload, PAYLOAD_BF16);
    ck_assert_int_eq(make(&cfg, "run.backend=gpu", 1), ST_OK);
    ck_assert_int_eq(cfg.parallel.tp_payload, PAYLOAD_FP32);
    ck_assert_int_eq(make(&cfg, "train.precision=bf16", 1), ST_OK);
    ck_assert_int_eq(cfg.parallel.tp_payload, PAYLOAD_FP32);
}
END_TEST

static const struct {
    const char *words;
    int64_t chunk, mib; /* sequences whose logits live at once; what these take */
} heads[] = {
    {"train.batch=8", 8, 2},
    {"train.batch=8 train.head_chunk=3", 3, 0},
    {"train.batch=8 train.micro_batch=2 train.head_chunk=2", 2, 0},
    {"train.batch=8 train.seq=2048 model.vocab=32000", 2, 500},
    {"train.batch=8 train.seq=2048 model.vocab=32000 parallel.tp=2", 4, 500},
    {"train.batch=8 train.seq=2048 model.vocab=32000 train.precision=bf16", 4, 500},
    {"train.batch=8 train.seq=2048 model.vocab=32000 train.precision=fp64", 1, 500},
    {"train.batch=8 train.seq=8192 model.vocab=32768", 1, 1024},
    {"train.batch=8 train.seq=4096 model.vocab=32768", 1, 512},
    {"train.batch=8 train.seq=4096 model.vocab=16384", 2, 512},
};

/* As many as take 512 MiB, but one at the least and a micro-batch at the most. */
START_TEST(test_head_chunk)
{
    struct config cfg;

    ck_assert_int_eq(make(&cfg, heads[_i].words, 0), ST_OK);
    ck_assert_int_eq(config_head_chunk(&cfg), heads[_i].chunk);
    ck_assert_int_eq(config_head_bytes(&cfg) >> 20, heads[_i].mib);
}
END_TEST

/* The same padded vocabulary whatever the layout. */
START_TEST(test_vocab_padding)
{
    struct config cfg;

    for (int tp = 1; tp <= 8; tp *= 2) {
        char arguments[64];

        snprintf(arguments, sizeof arguments, "parallel.tp=%d model.vocab=32001", tp);
        ck_assert_int_eq(make(&cfg, arguments, tp), ST_OK);
        ck_assert_int_eq(config_vocab_padded(&cfg), 32064);
    }
}
END_TEST

/* A preset in the file gives way to the file's sizes; one in an argument replaces them, and gives
 * way to sizes in arguments only. */
START_TEST(test_preset_order)
{
    static const char file[] = "model:\n  layers: 3\n  preset: 60m-cola\n";
    struct config cfg;

    config_default(&cfg);
    ck_assert_int_eq(yaml_read_text(&cfg, "a/b.yaml", file, strlen(file)), ST_OK);
    ck_assert_int_eq(config_resolve(&cfg, 1, 0), ST_OK);
    ck_assert_int_eq(cfg.model.layers, 3);
    ck_assert_int_eq(cfg.model.width, 512);
    ck_assert_int_eq(cfg.model.ffn, 1376);
    ck_assert_int_eq(cfg.model.rank, 128);
    ck_assert_int_eq(cfg.model.vocab, PRESET_VOCAB);
    ck_assert_int_eq(cfg.model.layer, LAYER_COLA);
    ck_assert_int_eq(cfg.model.outer_silu, SILU_ON);
    ck_assert_str_eq(cfg.run.dir, "runs/b");

    config_default(&cfg);
    ck_assert_int_eq(yaml_read_text(&cfg, "b.yaml", file, strlen(file)), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "model.preset=350m-svd"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "model.width=2048"), ST_OK);
    ck_assert_int_eq(config_resolve(&cfg, 1, 0), ST_OK);
    ck_assert_int_eq(cfg.model.layers, 24);
    ck_assert_int_eq(cfg.model.width, 2048);
    ck_assert_int_eq(cfg.model.rank, 256);
    ck_assert_int_eq(cfg.model.layer, LAYER_SVD);
    ck_assert_int_eq(cfg.model.outer_silu, SILU_ON);
}
END_TEST

/* The sizes of CoLA's paper, with its counts of parameters in millions. */
START_TEST(test_preset_sizes)
{
    static const struct {
        const char *size;
        int width, ffn, layers, heads, rank;
        double full, low;
    } rows[] = {
        {"60m", 512, 1376, 8, 8, 128, 58.1, 42.8},
        {"130m", 768, 2048, 12, 12, 256, 134.1, 94.0},
        {"350m", 1024, 2736, 24, 16, 256, 368.0, 185.2},
        {"1b", 2048, 5461, 24, 32, 512, 1339.1, 609.3},
        {"7b", 4096, 11008, 32, 32, 1024, 6738.4, 2820.9},
    };
    const struct preset *p = preset_sizes();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        while (p->size && strcmp(p->size, rows[i].size) != 0)
            p++;
        ck_assert_msg(p->size != NULL, "%s is missing, or out of order", rows[i].size);
        ck_assert_int_eq(p->width, rows[i].width);
        ck_assert_int_eq(p->ffn, rows[i].ffn);
        ck_assert_int_eq(p->layers, rows[i].layers);
        ck_assert_int_eq(p->heads, rows[i].heads);
        ck_assert_int_eq(p->rank, rows[i].rank);
        ck_assert_double_eq_tol((double)preset_parameters(p, LAYER_FULL) / 1e6, rows[i].full, .05);
        ck_assert_double_eq_tol((double)preset_parameters(p, LAYER_SVD) / 1e6, rows[i].low, .05);
    }
}
END_TEST

/* Every size with every kind of layer is a valid configuration at the tp that it promises. */
START_TEST(test_presets_valid)
{
    for (const struct preset *p = preset_sizes(); p->size; p++)
        for (int kind = LAYER_FULL; kind <= LAYER_SVD; kind++) {
            int tp = (int)preset_tp(p);
            char arguments[128];
            struct config cfg;

            snprintf(arguments, sizeof arguments, "model.preset=%s-%s parallel.tp=%d", p->size,
                     config_choice_name("model.layer", kind), tp);
            ck_assert_msg(make(&cfg, arguments, tp) == ST_OK, "%s: %s", arguments,
                          status_message());
            ck_assert_int_eq(cfg.model.layer, kind);
            ck_assert_int_eq(cfg.parallel.grains, tp);
            ck_assert_int_eq(cfg.model.outer_silu == SILU_ON,
                             kind != LAYER_COLA || p->cola_outer_silu);
        }
}
END_TEST

START_TEST(test_need_data)
{
    struct config cfg;

    config_default(&cfg);
    ck_assert_int_eq(config_need_data(&cfg), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "data.train is not set"));
    ck_assert_int_eq(config_override(&cfg, "data.train=x"), ST_OK);
    ck_assert_int_eq(config_need_data(&cfg), ST_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config layout");
    TCase *tests = tcase_create("config layout");

    tcase_add_loop_test(tests, test_bad_layout, 0, (int)(sizeof bad / sizeof bad[0]));
    tcase_add_loop_test(tests, test_good_layout, 0, (int)(sizeof good / sizeof good[0]));
    tcase_add_test(tests, test_resolve);
    tcase_add_test(tests, test_read_every);
    tcase_add_test(tests, test_vocab_padding);
    tcase_add_loop_test(tests, test_head_chunk, 0, (int)(sizeof heads / sizeof heads[0]));
    tcase_add_test(tests, test_preset_order);
    tcase_add_test(tests, test_preset_sizes);
    tcase_add_test(tests, test_presets_valid);
    tcase_add_test(tests, test_need_data);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
