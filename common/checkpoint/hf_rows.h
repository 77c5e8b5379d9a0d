/* Private to hf_config*.c: the keys that mean the same on both sides. */
#ifndef COMMON_CHECKPOINT_HF_ROWS_H
#define COMMON_CHECKPOINT_HF_ROWS_H

/* key of config.json, key of ours, nonzero where a file must give it */
#define HF_ROWS(X)                                \
    X("vocab_size", "model.vocab", 1)             \
    X("hidden_size", "model.width", 1)            \
    X("intermediate_size", "model.ffn", 1)        \
    X("num_hidden_layers", "model.layers", 1)     \
    X("num_attention_heads", "model.heads", 1)    \
    X("num_key_value_heads", "model.kv_heads", 0) \
    X("max_position_embeddings", "train.seq", 0)  \
    X("initializer_range", "model.init_std", 0)   \
    X("rms_norm_eps", "model.norm_eps", 0)        \
    X("tie_word_embeddings", "model.tied", 0)

/* CoLA's name for max_position_embeddings. */
#define HF_COLA_LENGTH "max_sequence_length"

#endif
