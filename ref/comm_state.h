/* What the files of the reference backend's collectives share: comm.c (begin and wait) and
 * comm_run.c (what wait runs). Private to them. */
#ifndef REF_COMM_STATE_H
#define REF_COMM_STATE_H

#include "common/backend/comm.h"
#include "common/backend/host_mpi.h"

enum { QUEUE_MAX = 64, STAGE_ALIGN = 64, DIRECT_MAX = 64 * 1024 };

enum ref_comm_kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, SEND, RECEIVE };

struct ref_comm_item {
    enum ref_comm_kind kind;
    struct tensor t[COMM_GROUP_MAX]; /* what wait fills; of a send, what was sent */
    int n, peer;                     /* peer: root, receiver or sender */
    char *payload;                   /* staging: what this rank sends, or receives */
    size_t bytes;                    /* of payload */
    char *own;                       /* payload when staging was too small */
};

struct ref_comm_buffer {
    char *p;
    size_t size;
};

struct ref_comm {
    struct comm base;
    struct host *h; /* the group once more, with a tag of its own */
    struct ref_comm_item queue[QUEUE_MAX];
    int queued, posted, ended;          /* items begun; sent on their way; finished */
    struct ref_comm_buffer stage, work; /* payloads; what one collective receives */
    size_t used, wanted;          /* of stage; what would have been used had there been room */
    struct host_set pairs, round; /* of sends and receives; of one round of a collective */
    size_t *block;                /* [size + 1]: where in a payload each rank's part begins */
    int64_t grown;
    int64_t moment[QUEUE_MAX]; /* of a profile: when what is queued has been done */
    int moments;
    int dead; /* a wait was cut short */
};

/* Bytes of t, and of all tensors of it. */
size_t ref_comm_bytes(const struct tensor *t);
size_t ref_comm_item_bytes(const struct ref_comm_item *it);

/* Memory for bytes; makes b hold at least bytes (its contents are lost). Errors: ST_ENOMEM. */
enum status ref_comm_take(char **p, size_t bytes);
enum status ref_comm_widen(struct ref_comm_buffer *b, size_t bytes);

/* Copies the tensors of an all-reduce to its payload (pack), or back. */
void ref_comm_move(const struct ref_comm *c, const struct ref_comm_item *it, int pack);

/* Runs one collective whose payload is staged, to the end: its tensors hold the result. Local
 * part of a collective of the group. Errors: those of host_set_wait. */
enum status ref_comm_run(struct ref_comm *c, struct ref_comm_item *it);

#endif
