/* Which family of kernels OpenBLAS runs, and a better one where it does not know the processor. */
#ifndef COMMON_CLI_BLAS_KERNEL_H
#define COMMON_CLI_BLAS_KERNEL_H

/* An OpenBLAS that is older than the processor falls back to kernels ten times slower. Where that
 * happened and OPENBLAS_CORETYPE is not set, sets it to the best family that the processor runs
 * (SkylakeX, Haswell) and starts this program anew, once, with the same arguments; the library
 * reads the variable only at load time. Returns when there is nothing to better. Call first in
 * main(). */
void blas_kernel_choose(char **argv);

/* The family in use: "SkylakeX", "Haswell", ... Results differ in their last bits between
 * families, so every table of hashes names it. */
const char *blas_kernel_name(void);

#endif
