#include "common/checkpoint/outlet.h"

#include "common/checkpoint/weights.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a process that was ended leaves of WEIGHTS_TENSORS. */
#define UNFINISHED "model.safetensors.partial"

/* What transformers keeps a tokenizer in. */
#define TOKENIZER_FILES                                                                      \
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", \
        "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja"

static const char *const tokenizer_files[] = {TOKENIZER_FILES, NULL};

/* All that such a folder may hold of ours. */
static const char *const files[] = {
    WEIGHTS_CONFIG,           WEIGHTS_TENSORS,       UNFINISHED,      WEIGHTS_SETTINGS,
    "generation_config.json", "modeling_narrows.py", TOKENIZER_FILES, NULL};

static int has_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int found = 0;

    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        found |= strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d)
        closedir(d);
    return found;
}

enum status outlet_begin(struct outlet *o, const char *dir, enum safetensors_type type,
                         struct safetensors_spec *t, int n)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    char path[FOLDER_PATH];
    enum status st;

    memset(o, 0, sizeof *o);
    o->out.fd = -1;
    o->type = type;
    if (strlen(dir) >= FOLDER_PATH)
        return fail(ST_EIO, "the path %.64s... is longer than %d bytes", dir, FOLDER_PATH - 1);
    memcpy(o->dir, dir, strlen(dir) + 1);
    if (has_entries(dir))
        return fail(ST_EUSAGE, "%s is there and is not empty; choose another name or remove it",
                    dir);
    for (int i = 0; i < n; i++)
        t[i].type = type;
    TRY(folder_begin(o->partial, dir, files));
    st = outlet_path(path, o, WEIGHTS_TENSORS);
    if (st == ST_OK)
        st = safetensors_create(&o->out, path, t, n, metadata);
    if (st != ST_OK)
        folder_drop(dir, files);
    return st;
}

enum status outlet_put(struct outlet *o, const char *name, const void *values, enum dtype dt,
                       int64_t n)
{
    size_t bytes = (size_t)n * safetensors_type_size(o->type);
    enum status st;

    if (bytes > o->room) {
        free(o->packed);
        o->packed = malloc(bytes);
        o->room = o->packed ? bytes : 0;
        if (!o->packed)
            return fail(ST_ENOMEM, "no memory for %zu bytes of %s", bytes, name);
    }
    st = safetensors_pack(o->packed, o->type, values, dt, n);
    if (st != ST_OK) {
        status_prefix("tensor %s: ", name);
        return st;
    }
    return safetensors_put(&o->out, name, o->packed);
}

enum status outlet_path(char *path, const struct outlet *o, const char *name)
{
    return folder_join(path, o->partial, name);
}

static enum status copy_stream(FILE *in, FILE *out, const char *from)
{
    char buffer[65536];

    for (size_t n; (n = fread(buffer, 1, sizeof buffer, in)) > 0;)
        fwrite(buffer, 1, n, out);
    return ferror(in) ? fail(ST_EIO, "cannot read %s: %s", from, strerror(errno)) : ST_OK;
}

enum status outlet_copy_as(struct outlet *o, const char *path, const char *name)
{
    char new[FOLDER_PATH];
    enum status st, end;
    FILE *in, *out;

    TRY(outlet_path(new, o, name));
    in = fopen(path, "rb");
    if (!in)
        return fail(ST_EIO, "cannot read %s: %s", path, strerror(errno));
    out = fopen(new, "wb");
    if (!out) {
        fclose(in);
        return fail(ST_EIO, "cannot write %s: %s", new, strerror(errno));
    }
    st = copy_stream(in, out, path);
    fclose(in);
    end = folder_close(out, new);
    return st == ST_OK ? end : st;
}

enum status outlet_copy(struct outlet *o, const char *from, const char *name, int *copied)
{
    char old[FOLDER_PATH];
    int there;

    TRY(folder_join(old, from, name));
    there = access(old, F_OK) == 0;
    if (copied)
        *copied = there;
    return there ? outlet_copy_as(o, old, name) : ST_OK;
}

enum status outlet_copy_tokenizer(struct outlet *o, const char *from, int *n)
{
    *n = 0;
    for (int i = 0; tokenizer_files[i]; i++) {
        int copied;

        TRY(outlet_copy(o, from, tokenizer_files[i], &copied));
        *n += copied;
    }
    return ST_OK;
}

enum status outlet_commit(struct outlet *o)
{
    enum status st;

    free(o->packed);
    o->packed = NULL;
    st = safetensors_finish(&o->out);
    if (st == ST_OK)
        st = folder_commit(o->dir, files);
    if (st != ST_OK)
        folder_drop(o->dir, files);
    return st;
}

void outlet_drop(struct outlet *o)
{
    free(o->packed);
    o->packed = NULL;
    safetensors_drop(&o->out);
    folder_drop(o->dir, files);
}

const char *outlet_dtype(enum safetensors_type type)
{
    static const char *const names[] = {"float64", "float32", "float16", "bfloat16"};

    return type <= SAFETENSORS_BF16 ? names[type] : "?";
}
