/* launch_run: the child, its environment, its signals and what it prints. */
#include "common/cli/launch_job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds that mpirun gets to end its ranks before it is killed itself; it needs about one. */
static const double grace = 5;

struct child {
    pid_t pid;
    int out, err;      /* pipes to read from; -1 when closed or not ours */
    int signals;       /* signalfd of SIGCHLD, SIGINT, SIGTERM */
    sigset_t old_mask; /* of this process before */
    double kill_at;    /* when mpirun is killed; 0: not at all */
    int ended, code;
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Starting --------------------------------------------------------------------------------- */

/* Whether mpirun set this variable ("NAME=value") for a rank of the job that this process is. */
static int of_outer_job(const char *variable)
{
    static const char *const begins[] = {"PMIX_",
                                         "ORTE_",
                                         "PRTE_",
                                         "OMPI_COMM_",
                                         "OMPI_APP_",
                                         "OMPI_UNIVERSE_",
                                         "OMPI_NUM_",
                                         "OMPI_FIRST_",
                                         "OMPI_FILE_",
                                         "OMPI_COMMAND=",
                                         "OMPI_ARGV=",
                                         "OMPI_MCA_orte_",
                                         "OMPI_MCA_ess",
                                         "OMPI_MCA_pmix",
                                         "OMPI_MCA_shmem_",
                                         "OMPI_MCA_init",
                                         "OMPI_MCA_mpi_oversubscribe"};

    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (!strncmp(variable, begins[i], strlen(begins[i])))
            return 1;
    return 0;
}

/* What a running MPI process has in its environment would make mpirun believe that it belongs to
 * that job. What the user has set (OMPI_MCA_btl...) stays. */
static void forget_outer_job(void)
{
    char **next = environ;

    if (!getenv("PMIX_RANK"))
        return;
    for (char **e = environ; *e; e++)
        if (!of_outer_job(*e))
            *next++ = *e;
    *next = NULL;
}

/* In the child: never returns. */
static void become(const struct child *c, char *const *argv, int out, int err, pid_t parent)
{
    static const int reset[] = {SIGINT, SIGTERM, SIGUSR1, SIGPIPE};
    int null = open("/dev/null", O_RDONLY);

    /* Its own process group: Ctrl-C reaches the terminal's, and mpirun must not see it. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(128 + SIGTERM);
    for (size_t i = 0; i < sizeof reset / sizeof reset[0]; i++)
        signal(reset[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &c->old_mask, NULL);
    dup2(null, STDIN_FILENO);
    if (out >= 0)
        dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    forget_outer_job();
    execv(argv[0], argv);
    dprintf(STDERR_FILENO, "narrows: cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static enum status open_pipes(int out[2], int err[2], int capture)
{
    out[0] = out[1] = -1;
    if (pipe2(err, O_CLOEXEC) != 0)
        return fail(ST_EIO, "no pipe to mpirun: %s", strerror(errno));
    if (capture && pipe2(out, O_CLOEXEC) != 0) {
        close(err[0]);
        close(err[1]);
        return fail(ST_EIO, "no pipe to mpirun: %s", strerror(errno));
    }
    return ST_OK;
}

static void watch_signals(struct child *c)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    /* Blocked before the fork: none is lost, and no handler of interrupt.h runs here. */
    sigprocmask(SIG_BLOCK, &set, &c->old_mask);
    c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static enum status start(struct child *c, char *const *argv, int capture)
{
    int out[2], err[2];
    pid_t parent = getpid();

    *c = (struct child){.out = -1, .err = -1};
    TRY(open_pipes(out, err, capture));
    watch_signals(c);
    fflush(NULL);
    c->pid = fork();
    if (c->pid == 0)
        become(c, argv, out[1], err[1], parent);
    close(err[1]);
    if (capture)
        close(out[1]);
    c->err = err[0];
    c->out = out[0];
    if (c->pid < 0 || c->signals < 0)
        return fail(ST_EIO, "no process for mpirun: %s", strerror(errno));
    setpgid(c->pid, c->pid); /* in both processes: whichever runs first */
    return ST_OK;
}

static void stop(struct child *c)
{
    if (c->out >= 0)
        close(c->out);
    if (c->err >= 0)
        close(c->err);
    if (c->signals >= 0)
        close(c->signals);
    sigprocmask(SIG_SETMASK, &c->old_mask, NULL);
}

/* Running ---------------------------------------------------------------------------------- */

static void end_job(struct child *c)
{
    if (c->kill_at > 0) {
        kill(-c->pid, SIGKILL);
        return;
    }
    kill(c->pid, SIGTERM);
    c->kill_at = seconds() + grace;
}

static void take_signals(struct child *c, struct launch_result *result)
{
    struct signalfd_siginfo info;
    int status;

    while (read(c->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        if (result->interrupted) {
            end_job(c);
            continue;
        }
        result->interrupted = true;
        fputs("\nnarrows: asked the ranks to stop; once more ends the job at once\n", stderr);
        kill(c->pid, SIGUSR1);
    }
    if (!c->ended && waitpid(c->pid, &status, WNOHANG) == c->pid) {
        c->ended = 1;
        c->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

/* Reads what is there from *fd; closes it at its end. */
static void take_text(int *fd, struct launch_text *text, int from_err)
{
    char data[4096];
    ssize_t n = read(*fd, data, sizeof data);

    if (n > 0)
        launch_text_add(text, data, (size_t)n, from_err);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(*fd);
        *fd = -1;
    }
}

static void check_time(struct child *c, const struct launch *job, struct launch_result *result,
                       double began)
{
    double now = seconds();

    if (job->timeout > 0 && !result->timed_out && now - began > job->timeout) {
        result->timed_out = true;
        end_job(c);
    }
    if (c->kill_at > 0 && now > c->kill_at)
        kill(-c->pid, SIGKILL);
}

static void watch(struct child *c, const struct launch *job, struct launch_result *result,
                  struct launch_text *text)
{
    double began = seconds();

    while (!c->ended || c->err >= 0 || c->out >= 0) {
        struct pollfd fds[3] = {{.fd = c->signals, .events = POLLIN},
                                {.fd = c->err, .events = POLLIN},
                                {.fd = c->out, .events = POLLIN}};
        int ready = poll(fds, 3, c->ended ? 200 : 100);

        if (fds[1].revents)
            take_text(&c->err, text, 1);
        if (fds[2].revents)
            take_text(&c->out, text, 0);
        take_signals(c, result);
        if (!c->ended)
            check_time(c, job, result, began);
        else if (ready == 0)
            break; /* a process that outlives mpirun holds the pipe open */
    }
}

enum status launch_watch(struct launch_result *result, const struct launch *job,
                         char *const *mpirun, struct launch_text *text)
{
    struct child c;
    enum status st = start(&c, mpirun, text->capture);

    if (st == ST_OK) {
        watch(&c, job, result, text);
        launch_text_end(text);
        result->exit_code = result->timed_out ? 124 : c.code;
    }
    stop(&c);
    return st;
}
