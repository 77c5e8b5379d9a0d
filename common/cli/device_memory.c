#include "common/cli/device_memory.h"

#include "gpu/limits.h"

#include <string.h>

/* NCCL's receive buffers of one connection: 4 MiB for the plain protocol (its NCCL_BUFFSIZE) and
 * what its two low-latency ones take; a ring over NVLink has up to 24 connections a GPU. */
enum { NCCL_CONNECTION = (4 << 20) + (512 << 10) + (4800 << 10), NCCL_CONNECTIONS = 24 };

/* Heads that one rank attends to; BOOST's own vanilla code does not cut them. */
static int64_t heads_of_rank(const struct config *cfg)
{
    const struct config_parallel *p = &cfg->parallel;
    int whole = p->strategy == STRATEGY_VANILLA && p->vanilla == VANILLA_RELEASED;

    return whole ? cfg->model.heads : cfg->model.heads / p->tp;
}

/* Bytes of cuDNN's workspace for `sequences` at a time; where it may add in any order, of the sums
 * of dq that it is given. */
static size_t attention_workspace(const struct config *cfg, int64_t sequences)
{
    int64_t head = cfg->model.width / cfg->model.heads;

    if (!cfg->run.deterministic)
        return (size_t)(sequences * heads_of_rank(cfg) * cfg->train.seq * head) * sizeof(float);
    return (size_t)(sequences * heads_of_rank(cfg) * cfg->train.seq * cfg->train.seq) * 2;
}

/* As gpu/attention_cudnn.c chooses: the most that divides the micro-batch and keeps the workspace
 * small; one at the least. */
static size_t attention_at_once(const struct config *cfg)
{
    int64_t n = cfg->train.micro_batch, slice = n;

    while (slice > 1 &&
           (n % slice || attention_workspace(cfg, slice) > (size_t)GPU_ATTENTION_WORKSPACE))
        slice--;
    return attention_workspace(cfg, slice);
}

/* By the rule of gpu/attention.h; what is trained within documents is validated so too. Whether the
 * build that will run has cuDNN is not asked: own kernels need less. */
static int by_cudnn(const struct config *cfg)
{
    int64_t head = cfg->model.width / cfg->model.heads;

    return cfg->train.precision == PRECISION_BF16 && !cfg->data.reset_documents && head % 8 == 0 &&
           head <= 128;
}

/* Two numbers for each token and head beside the workspace. The smaller scratch is held until the
 * larger one is there. */
static size_t scratch(const struct config *cfg)
{
    int64_t tokens = cfg->train.micro_batch * cfg->train.seq;
    size_t table = (size_t)(tokens * heads_of_rank(cfg)) * sizeof(float);
    size_t most = by_cudnn(cfg) ? 2 * table + attention_at_once(cfg) : table;

    return most > GPU_SCRATCH ? most + GPU_SCRATCH : GPU_SCRATCH;
}

/* Communicators of more than one rank that a stage in the middle has. */
static int communicators(const struct config *cfg)
{
    const struct config_parallel *p = &cfg->parallel;
    int edges = p->pp == 1 ? 0 : p->pp == 2 && p->virtual_stages == 1 ? 1 : 2;

    return (p->tp > 1) * (1 + (p->overlap == OVERLAP_ALL)) + (p->dp > 1) + (p->pp > 1) +
           (p->pp > 1 && cfg->model.tied) + edges * PIPE_DIRECTIONS;
}

enum status device_memory_beside(struct memory_beside *beside, const struct config *cfg)
{
    if (cfg->run.backend != BACKEND_GPU)
        return memory_beside_none(beside, cfg);
    *beside = (struct memory_beside){.products = GPU_WORKSPACE,
                                     .scratch = scratch(cfg),
                                     .context = GPU_CONTEXT,
                                     .code = GPU_CODE,
                                     .messages = (size_t)communicators(cfg) * NCCL_CONNECTIONS *
                                                 NCCL_CONNECTION};
    return ST_OK;
}

size_t device_memory_opened(const struct config *cfg)
{
    return cfg->run.backend == BACKEND_GPU ? (size_t)GPU_CONTEXT + GPU_SCRATCH + GPU_WORKSPACE : 0;
}
