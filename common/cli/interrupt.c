#include "common/cli/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* A signal handler can reach nothing but a variable of this kind. */
static volatile sig_atomic_t requested;

static void on_signal(int sig)
{
    static const char note[] = "\nnarrows: stops after this step; once more ends at once\n";
    ssize_t written;

    /* _exit, not exit: the user asked twice, perhaps because an orderly end hangs, and buffers
     * and exit handlers may be in any state when a signal arrives. */
    if (requested && sig != SIGUSR1)
        _exit(130);
    /* mpirun and launch speak to all ranks at once: only Ctrl-C on a single process is answered. */
    if (!requested && sig == SIGINT) {
        written = write(STDERR_FILENO, note, sizeof note - 1);
        (void)written; /* nothing can be done about it here */
    }
    requested = 1;
}

void interrupt_install(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    struct sigaction action;

    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    action.sa_handler = on_signal;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

int interrupt_requested(void)
{
    return requested != 0;
}
