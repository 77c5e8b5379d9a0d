#include "common/cli/verbs.h"

#include "common/model/nearest.h"

#include <stdio.h>
#include <string.h>

static enum status help(const char *command, const char *about, const struct verb *verbs)
{
    printf("narrows %s: %s\n\nusage: narrows %s VERB [options] ...\n\n", command, about, command);
    for (const struct verb *v = verbs; v->name; v++)
        printf("  %-10s %s\n", v->name, v->summary);
    printf("\nnarrows %s VERB --help explains a verb.\n", command);
    if (fflush(stdout) || ferror(stdout))
        return fail(ST_EIO, "the help could not be written");
    return ST_OK;
}

static enum status unknown(const char *command, const struct verb *verbs, const char *name)
{
    struct nearest near = nearest_to(name);

    for (const struct verb *v = verbs; v->name; v++)
        nearest_offer(&near, v->name);
    if (near.best)
        return fail(ST_EUSAGE, "narrows %s has no verb '%s'; did you mean '%s'?", command, name,
                    near.best);
    return fail(ST_EUSAGE, "narrows %s has no verb '%s': see narrows %s --help", command, name,
                command);
}

enum status verbs_run(struct host *job, const char *command, const char *about,
                      const struct verb *verbs, int argc, char **argv)
{
    if (argc < 1)
        return fail(ST_EUSAGE, "narrows %s needs a verb, such as %s: see narrows %s --help",
                    command, verbs[0].name, command);
    if (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h"))
        return help(command, about, verbs);
    for (const struct verb *v = verbs; v->name; v++)
        if (!strcmp(v->name, argv[0]))
            return v->run(job, argc - 1, argv + 1);
    return unknown(command, verbs, argv[0]);
}
