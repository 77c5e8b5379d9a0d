#include "common/cli/blas_kernel.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *blas_kernel_name(void)
{
    return openblas_get_corename();
}

/* The best family that this processor runs and every OpenBLAS of the last ten years has. */
static const char *best_family(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

void blas_kernel_choose(char **argv)
{
    const char *best = best_family();

    if (!best || getenv("OPENBLAS_CORETYPE") || strcmp(blas_kernel_name(), "Prescott"))
        return;
    if (!setenv("OPENBLAS_CORETYPE", best, 1)) /* set now, so that this happens once */
        execv("/proc/self/exe", argv);
    /* Where that cannot be done the slow kernels stay; the table of settings names them. */
}
