#include "validation/check.h"

#include "validation/ops.h"

#include <string.h>

int check_wanted(const struct check_options *o, const char *name)
{
    return !o->only || strstr(name, o->only) != NULL;
}

static enum status backend_under_test(const struct backend **be, const char *name)
{
    *be = &ref_backend;
    if (!strcmp(name, "ref"))
        return ST_OK;
    if (strcmp(name, "gpu"))
        return fail(ST_EUSAGE, "no backend '%s': ref or gpu", name);
#ifdef HAVE_CUDA
    *be = &gpu_backend;
    return ST_OK;
#else
    return fail(ST_EUSAGE, "--backend gpu, but this narrows was built without CUDA; build it with "
                           "--with-cuda=DIR");
#endif
}

enum status check_ops(const struct check_options *o, struct report *r)
{
    const struct device_options opt = {.threads = 1, .local_size = 1, .any_order = o->any_order};
    const struct backend *be;
    struct device *test, *gold;
    struct ops_count count;
    enum status st;

    if (o->any_order && !strcmp(o->backend, "ref"))
        return fail(ST_EUSAGE, "--any-order is for --backend gpu: ref adds in one order alone");
    TRY(backend_under_test(&be, o->backend));
    TRY(device_open(&test, be, &opt));
    st = device_open(&gold, &ref64_backend, &opt);
    if (st == ST_OK) {
        st = ops_validate(r->out, test, gold, !o->quick, o->only, &count);
        device_close(gold);
    }
    device_close(test);
    TRY(st);
    if (count.rows > 0) /* else nothing was compared, which the report makes a failure */
        report_equal(r, count.misses == 0, count.misses ? "see above" : "all",
                     "%s of %s in its bounds", o->only ? o->only : "every operation", o->backend);
    return ST_OK;
}
