#include "common/cli/launch.h"

#include "common/base/log.h"
#include "common/cli/launch_job.h"
#include "common/cli/options.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cores ------------------------------------------------------------------------------------ */

/* A number that Linux tells about a processor, or -1. */
static long topology(int cpu, const char *what)
{
    char name[96];
    long value = -1;
    FILE *f;

    snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    f = fopen(name, "r");
    if (!f)
        return -1;
    if (fscanf(f, "%ld", &value) != 1)
        value = -1;
    fclose(f);
    return value;
}

/* The same for the hardware threads of one core; -1 when Linux does not tell. */
static long core_key(int cpu)
{
    long package = topology(cpu, "physical_package_id"), core = topology(cpu, "core_id");

    return package < 0 || core < 0 ? -1 : package * 65536 + core;
}

void launch_cores(int *cores, int *processors)
{
    long seen[CPU_SETSIZE];
    int n = 0, all = 0;
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_SET(0, &set);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        long key = CPU_ISSET(cpu, &set) ? core_key(cpu) : 0;
        int known = 0;

        if (!CPU_ISSET(cpu, &set))
            continue;
        all++;
        for (int i = 0; i < n && key >= 0 && !known; i++)
            known = seen[i] == key;
        if (!known)
            seen[n++] = key;
    }
    *cores = n;
    *processors = all;
}

/* mpirun's arguments ----------------------------------------------------------------------- */

enum { FIXED_ARGUMENTS = 32 };

struct command_line {
    char **argv;
    int n;
    char path[4096], program[4096], ranks[16], map[32], wait[64], omp[48];
};

static void put(struct command_line *line, const char *word)
{
    line->argv[line->n++] = (char *)word; /* execv's argument is not const */
}

/* The first executable `name` in PATH, or name itself when it is a path. */
static enum status find_program(char *path, size_t size, const char *name)
{
    const char *dir = getenv("PATH");

    if (strchr(name, '/')) {
        snprintf(path, size, "%s", name);
        return access(path, X_OK) == 0 ? ST_OK : ST_EIO;
    }
    while (dir && *dir) {
        int n = (int)strcspn(dir, ":");

        snprintf(path, size, "%.*s/%s", n, dir, name);
        if (n > 0 && access(path, X_OK) == 0)
            return ST_OK;
        dir += n + (dir[n] == ':');
    }
    return ST_EIO;
}

static enum status find_mpirun(char *path, size_t size)
{
    if (find_program(path, size, "mpirun") != ST_OK && find_program(path, size, "mpiexec") != ST_OK)
        return fail(ST_ECOMM, "no mpirun in PATH; install the Debian package openmpi-bin, or put "
                              "the folder of your Open MPI's mpirun into PATH");
    return ST_OK;
}

static enum status this_program(char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);

    if (n <= 0)
        return fail(ST_EIO, "cannot tell the path of this program: /proc is not mounted; give it "
                            "by --program");
    path[n] = '\0';
    return ST_OK;
}

static enum status choose_program(struct command_line *line, const struct launch *job)
{
    if (!job->program)
        return this_program(line->program, sizeof line->program);
    if (find_program(line->program, sizeof line->program, job->program) != ST_OK)
        return fail(ST_EUSAGE, "no program %s to run", job->program);
    return ST_OK;
}

/* Threads of a rank: as asked for, as the environment says, or a fair share of the cores. */
static int threads_of(const struct launch *job, int cores)
{
    const char *set = getenv("OMP_NUM_THREADS");
    long threads = set ? strtol(set, NULL, 10) : 0;

    if (job->threads > 0)
        return job->threads;
    if (threads > 0 && threads <= 4096)
        return (int)threads;
    return cores / job->ranks > 0 ? cores / job->ranks : 1;
}

/* Where threads share cores, who waits must not spin; where each has its own, the runtime's habit
 * of spinning for a while first makes a step a tenth shorter. What the user set is passed on. */
static void choose_wait(struct command_line *line, int shared)
{
    const char *set = getenv("OMP_WAIT_POLICY");

    line->wait[0] = '\0';
    if (set || shared)
        snprintf(line->wait, sizeof line->wait, "OMP_WAIT_POLICY=%s", set ? set : "passive");
}

static enum status place(struct command_line *line, const struct launch *job)
{
    int cores, processors, threads;

    launch_cores(&cores, &processors);
    threads = threads_of(job, cores);
    snprintf(line->omp, sizeof line->omp, "OMP_NUM_THREADS=%d", threads);
    snprintf(line->map, sizeof line->map, "slot:PE=%d", threads);
    choose_wait(line, (int64_t)job->ranks * threads > cores);
    if (!job->bind) {
        /* Also when there are cores for all: other jobs may be bound to the same ones. */
        put(line, "--bind-to");
        put(line, "none");
        if (job->ranks > cores)
            put(line, "--oversubscribe");
        return ST_OK;
    }
    if ((int64_t)job->ranks * threads > cores)
        return fail(ST_EUSAGE,
                    "--bind core: %d ranks of %d threads need %lld cores and there are "
                    "%d; take fewer ranks or threads, or --bind none",
                    job->ranks, threads, (long long)job->ranks * threads, cores);
    put(line, "--map-by");
    put(line, line->map);
    put(line, "--bind-to");
    put(line, "core");
    return ST_OK;
}

static enum status compose(struct command_line *line, const struct launch *job, char *const *argv)
{
    TRY(find_mpirun(line->path, sizeof line->path));
    TRY(choose_program(line, job));
    put(line, line->path);
    put(line, "-n");
    snprintf(line->ranks, sizeof line->ranks, "%d", job->ranks);
    put(line, line->ranks);
    if (geteuid() == 0)
        put(line, "--allow-run-as-root");
    TRY(place(line, job));
    put(line, "-x");
    put(line, line->omp);
    /* Every product is one OpenBLAS call on one thread; threads share out the products. */
    put(line, "-x");
    put(line, "OPENBLAS_NUM_THREADS=1");
    if (line->wait[0]) {
        put(line, "-x");
        put(line, line->wait);
    }
    if (isatty(STDOUT_FILENO)) { /* log_progress: ranks cannot see it, mpirun stands between */
        put(line, "-x");
        put(line, "NARROWS_TERMINAL=1");
    }
    put(line, line->program);
    for (int i = 0; argv[i]; i++)
        put(line, argv[i]);
    put(line, NULL);
    return ST_OK;
}

/* A setting of Open MPI that the user's environment may overrule, which an option would not allow:
 * containers forbid process_vm_readv, and every copy by it would print a warning. */
static void set_defaults(void)
{
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

/* The job ---------------------------------------------------------------------------------- */

static enum status check_ranks(const struct launch *job)
{
    if (job->ranks < 1 || job->ranks > LAUNCH_RANKS_MAX)
        return fail(ST_EUSAGE, "%d ranks: 1 to %d can be launched on one machine", job->ranks,
                    LAUNCH_RANKS_MAX);
    return ST_OK;
}

static enum status run_job(struct launch_result *result, const struct launch *job,
                           char *const *argv, struct launch_text *text)
{
    struct command_line line = {.n = 0};
    enum status st;
    size_t n = 0;

    while (argv[n])
        n++;
    line.argv = calloc(n + FIXED_ARGUMENTS, sizeof *line.argv);
    if (!line.argv)
        return fail(ST_ENOMEM, "no host memory for %zu arguments", n);
    st = compose(&line, job, argv);
    set_defaults();
    if (st == ST_OK)
        st = launch_watch(result, job, line.argv, text);
    free(line.argv);
    return st;
}

enum status launch_run(struct launch_result *result, const struct launch *job, char *const *argv,
                       char **output, size_t limit)
{
    struct launch_text text = {.capture = output != NULL, .limit = limit, .result = result};
    enum status st;

    *result = (struct launch_result){0};
    TRY(check_ranks(job));
    if (output) {
        text.data = calloc(limit + 1, 1);
        if (!text.data)
            return fail(ST_ENOMEM, "no host memory for %zu bytes of output", limit);
    }
    st = run_job(result, job, argv, &text);
    if (output && st == ST_OK)
        *output = text.data;
    else
        free(text.data);
    return st;
}

void launch_explain(char *text, size_t size, const struct launch *job,
                    const struct launch_result *result)
{
    int sig = result->signal;

    text[0] = '\0';
    if (result->timed_out)
        snprintf(text, size, "the job was ended after %g s, as --timeout says", job->timeout);
    else if (sig)
        snprintf(text, size, "rank %d on %s died from signal %d (%s)%s", result->rank, result->node,
                 sig, strsignal(sig),
                 sig == 9 ? "; if nobody sent it, the machine ran out of memory" : "");
    else if (result->exit_code > 128 && result->exit_code != status_exit_code(ST_ESTOP) &&
             !result->interrupted)
        /* mpirun tells which only of ranks that had started MPI. */
        snprintf(text, size, "a rank died from signal %d (%s) before it had joined the job",
                 result->exit_code - 128, strsignal(result->exit_code - 128));
}

/* The command ------------------------------------------------------------------------------ */

static int report(enum status st)
{
    if (st != ST_OK)
        log_error("%s", status_message()[0] ? status_message() : status_text(st));
    return status_exit_code(st);
}

static enum status check_words(struct launch *job, const char *bind, int64_t words)
{
    if (!bind || (strcmp(bind, "core") != 0 && strcmp(bind, "none") != 0))
        return fail(ST_EUSAGE, "--bind %s: core or none", bind ? bind : "");
    job->bind = !strcmp(bind, "core");
    if (words < 1)
        return fail(ST_EUSAGE, "nothing to run: narrows launch -n %d -- train CONFIG", job->ranks);
    if (getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK"))
        return fail(ST_EUSAGE, "narrows launch inside an MPI job: call mpirun or narrows launch, "
                               "not one in the other");
    return ST_OK;
}

static enum status parse(struct launch *job, struct options *words, int argc, char **argv)
{
    int64_t ranks = 0, threads = 0;
    const char *bind = "none";
    const struct option options[] = {
        {"--ranks", 'n', "N", OPTION_INT, &ranks, 1, LAUNCH_RANKS_MAX,
         "ranks: one for each part that the configuration cuts the work into"},
        {"--threads", 't', "T", OPTION_INT, &threads, 1, 4096,
         "threads of a rank (default: OMP_NUM_THREADS, else cores / ranks)"},
        {"--bind", 0, "core|none", OPTION_TEXT, &bind, 0, 0,
         "core: each rank on cores of its own, as many as it has threads (default: none)"},
        {"--timeout", 0, "S", OPTION_REAL, &job->timeout, 0, 31536000,
         "end the job after S seconds, with status 124 (default: 0, never)"},
        {"--program", 0, "P", OPTION_TEXT, &job->program, 0, 0,
         "run P on every rank instead of narrows: a debugger, a script"},
        {0}};
    const struct options_spec spec = {
        "launch",
        "runs a command of narrows on several ranks of this machine (by Open MPI's mpirun)",
        "-- COMMAND [ARGUMENTS]",
        0,
        0,
        false,
        options,
        "narrows launch -n 2 -- train examples/quickstart.yaml\n"
        "narrows launch -n 4 --threads 2 --bind core -- train examples/quickstart.yaml\n"
        "\n"
        "Ctrl-C asks for a checkpoint and an orderly end, a second Ctrl-C ends the job at once.\n"
        "The exit status is that of the job: a rank's own, or 128 + signal."};
    int own = 0;

    while (own < argc && strcmp(argv[own], "--") != 0)
        own++;
    TRY(options_parse(words, &spec, own, argv));
    if (words->help)
        return options_help(stdout, &spec);
    if (ranks == 0)
        return fail(ST_EUSAGE, "how many ranks? narrows launch -n 2 -- train CONFIG");
    job->ranks = (int)ranks;
    job->threads = (int)threads;
    return check_words(job, bind, argc - own - 1);
}

int launch_command(int argc, char **argv)
{
    struct launch job = {0};
    struct launch_result result;
    struct options words;
    enum status st = parse(&job, &words, argc, argv);
    char text[256];
    int own = 0;

    if (st != ST_OK || words.help)
        return report(st);
    while (strcmp(argv[own], "--") != 0)
        own++;
    st = launch_run(&result, &job, argv + own + 1, NULL, 0);
    if (st != ST_OK)
        return report(st);
    launch_explain(text, sizeof text, &job, &result);
    /* The rank that speaks may have left an unfinished progress line on the terminal. */
    if (text[0]) {
        if (isatty(STDERR_FILENO))
            fputc('\n', stderr);
        log_error("%s", text);
    }
    return result.exit_code;
}
