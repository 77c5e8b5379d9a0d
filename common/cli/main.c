/* The program: finds the command, starts and ends the job, prints the one message of a failure.
 * The only place that ends the process. */
#include "common/backend/host.h"
#include "common/base/log.h"
#include "common/cli/blas_kernel.h"
#include "common/cli/commands.h"
#include "common/cli/interrupt.h"
#include "common/model/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

static void usage(FILE *out)
{
    fputs("narrows: pre-trains LLaMA models with low-rank bottlenecks and their full-rank "
          "baselines\n\nusage: narrows COMMAND [ARGUMENTS]\n\n",
          out);
    for (const struct command *c = commands(); c->name; c++)
        if (c->summary) /* without one: for this program's own use */
            fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fputs("\nnarrows COMMAND --help explains a command. To begin:\n\n"
          "  narrows launch -n 2 -- train examples/quickstart.yaml\n\n"
          "NARROWS_DEBUG=1 in the environment adds where in the source a failure came from.\n",
          out);
}

static const struct command *find(const char *name)
{
    for (const struct command *c = commands(); c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

static enum status unknown(const char *name)
{
    struct nearest near = nearest_to(name);

    for (const struct command *c = commands(); c->name; c++)
        nearest_offer(&near, c->name);
    if (near.best)
        return fail(ST_EUSAGE, "no command '%s'; did you mean '%s'?", name, near.best);
    return fail(ST_EUSAGE, "no command '%s'; narrows help lists them", name);
}

static void report(enum status st)
{
    if (st == ST_OK)
        return;
    log_error("%s", status_message()[0] ? status_message() : status_text(st));
    if (getenv("NARROWS_DEBUG"))
        fputs(status_backtrace(), stderr);
}

enum { CALL = 256 }; /* bytes of what a rank was started for; longer ones are compared so far */

/* out = "train --dry-run": the command and its options without values, which it checks itself. */
static void describe_call(char out[CALL], int argc, char **argv)
{
    size_t n = (size_t)snprintf(out, CALL, "%s", argv[1]);

    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0 && n < CALL; i++)
        if (argv[i][0] == '-')
            n += (size_t)snprintf(out + n, CALL - n, " %.*s", (int)strcspn(argv[i], "="), argv[i]);
}

/* Ranks with different calls would wait for each other in different places. */
static enum status same_call(struct host *job, int argc, char **argv)
{
    int n = host_size(job);
    char mine[CALL] = "", *all = malloc((size_t)n * CALL);
    enum status st = all ? ST_OK : fail(ST_ENOMEM, "no memory to compare %d ranks", n);

    describe_call(mine, argc, argv);
    if (st == ST_OK)
        st = host_gather(job, all, mine, CALL);
    for (int i = 0; st == ST_OK && i < n; i++)
        if (strcmp(all + (size_t)i * CALL, all) != 0)
            st = fail(ST_EUSAGE,
                      "rank %d was started as narrows %s, rank 0 as narrows %s; start all ranks "
                      "with the same command and options",
                      i, all + (size_t)i * CALL, all);
    free(all);
    return host_agree(job, st);
}

/* Runs a command as a job: rank 0 speaks for all. */
static enum status run_job(const struct command *c, int argc, char **argv)
{
    struct host *job;
    enum status st = host_start(&job, &argc, &argv);

    if (st != ST_OK) {
        report(st);
        return st;
    }
    log_open(host_rank(job), host_rank(job) == 0, getenv("NARROWS_DEBUG") ? LOG_DEBUG : LOG_INFO);
    st = same_call(job, argc, argv);
    if (st == ST_OK)
        st = host_agree(job, c->run(job, argc - 2, argv + 2));
    if (host_rank(job) == 0 || status_message()[0]) /* after a lost rank, who knows it tells */
        report(st);
    host_end(job, st);
    return st;
}

/* Returns the exit status. */
static int run(int argc, char **argv)
{
    const struct command *c;
    enum status st;

    if (argc < 2 || !strcmp(argv[1], "help") || !strcmp(argv[1], "--help") ||
        !strcmp(argv[1], "-h")) {
        usage(argc < 2 ? stderr : stdout);
        return status_exit_code(argc < 2 ? ST_EUSAGE : ST_OK);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
        puts("narrows " PACKAGE_VERSION);
        return 0;
    }
    c = find(argv[1]);
    if (c && c->program) /* has its own way with signals */
        return c->program(argc - 2, argv + 2);
    interrupt_install();
    if (c && c->job)
        return status_exit_code(run_job(c, argc, argv));
    st = c ? c->run(NULL, argc - 2, argv + 2) : unknown(argv[1]);
    report(st);
    return status_exit_code(st);
}

int main(int argc, char **argv)
{
    blas_kernel_choose(argv);
    return run(argc, argv);
}
