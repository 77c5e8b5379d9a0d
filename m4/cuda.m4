# NARROWS_CUDA
# The GPU backend: nvcc, cudart, cuBLASLt, NCCL; cuDNN (attention) where it is found.
# Without --with-cuda a toolkit that is incomplete leaves the backend out and the summary says why;
# with --with-cuda=DIR it is an error.
AC_DEFUN([NARROWS_CUDA],
[AC_ARG_WITH([cuda],
             [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit, or no @<:@/usr/local/cuda, PATH@:>@])],
             [], [with_cuda=guess])
AC_ARG_WITH([cuda-arch],
            [AS_HELP_STRING([--with-cuda-arch=LIST],
                            [GPU targets, with commas; PTX of the last is added @<:@90@:>@])],
            [], [with_cuda_arch=90])
AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl=DIR], [NCCL, if not with CUDA])],
            [], [with_nccl=guess])
AC_ARG_WITH([cudnn], [AS_HELP_STRING([--with-cudnn=DIR], [cuDNN, if not with CUDA, or no])],
            [], [with_cudnn=guess])
AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [flags for the CUDA compiler @<:@-O3 -lineinfo@:>@])
: "${NVCCFLAGS=-O3 -lineinfo}"
narrows_cuda=
narrows_cudnn="no"
narrows_hopper="no"
AS_IF([test "x$with_cuda" = xno], [narrows_cuda="no: --without-cuda"])
AS_IF([test -z "$narrows_cuda" && test "x$enable_sanitizers" = xyes],
      [AS_IF([test "x$with_cuda" != xguess],
             [AC_MSG_ERROR([--enable-sanitizers and --with-cuda do not go together: leave one out])])
       narrows_cuda="no: not with --enable-sanitizers"])
AS_IF([test -z "$narrows_cuda"], [NARROWS_CUDA_TOOLKIT])
AS_IF([test -z "$narrows_cuda"], [NARROWS_CUDA_NCCL])
AS_IF([test -z "$narrows_cuda"], [NARROWS_CUDA_LINK])
AS_CASE([$narrows_cuda],
        [yes*], [have_cuda=yes
                 AC_SUBST([CUDA_DEFS], ["-DHAVE_CUDA=1"])
                 NARROWS_CUDNN
                 NARROWS_NVTX],
        [have_cuda=no
         narrows_why=`echo "$narrows_cuda" | sed 's/^no: //'`
         AS_CASE([$with_cuda], [no|guess], [],
                 [AC_MSG_ERROR([--with-cuda=$with_cuda: $narrows_why])])])
AM_CONDITIONAL([HAVE_CUDA], [test "$have_cuda" = yes])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_LIBS])
AC_SUBST([CUDA_GENCODE])
AC_SUBST([CUDA_GENCODE_HOPPER])
AS_IF([test "x$enable_werror" = xyes],
      [AC_SUBST([NVCC_WERROR], ["-Werror all-warnings -Xcompiler -Werror"])])])

# Finds nvcc and from it the toolkit's folders; checks each target by compiling for it.
AC_DEFUN([NARROWS_CUDA_TOOLKIT],
[AS_CASE([$with_cuda],
         [guess|yes], [narrows_path="/usr/local/cuda/bin$PATH_SEPARATOR$PATH"],
         [narrows_path="$with_cuda/bin"])
AC_PATH_PROG([NVCC], [nvcc], [no], [$narrows_path])
AS_IF([test "$NVCC" = no],
      [narrows_cuda="no: nvcc not found in $narrows_path"],
      [narrows_nvcc=`readlink -f "$NVCC" 2>/dev/null || echo "$NVCC"`
       CUDA_HOME=`dirname "\`dirname "$narrows_nvcc"\`"`
       AS_IF([test -f "$CUDA_HOME/include/cuda_runtime.h"], [],
             [CUDA_HOME=`dirname "\`dirname "$NVCC"\`"`])
       AS_IF([test "$CUDA_HOME" != /usr && test -d "$CUDA_HOME/include"],
             [CUDA_CPPFLAGS="-isystem $CUDA_HOME/include"])
       narrows_cuda_dirs=
       for narrows_dir in lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib; do
         AS_IF([test -z "$narrows_cuda_dirs" && test "$CUDA_HOME" != /usr \
                && { test -f "$CUDA_HOME/$narrows_dir/libcudart.so" \
                     || test -f "$CUDA_HOME/$narrows_dir/libcudart_static.a"; }],
               [narrows_cuda_dirs="-L$CUDA_HOME/$narrows_dir -Wl,-rpath,$CUDA_HOME/$narrows_dir"])
       done
       NARROWS_CUDA_TARGETS])])

AC_DEFUN([NARROWS_CUDA_TARGETS],
[CUDA_GENCODE=
AS_CASE([$with_cuda_arch], [no|yes|""],
        [AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: give numbers as in 90 or 80,90])])
for narrows_arch in `echo "$with_cuda_arch" | tr , ' '`; do
  narrows_arch=`echo "$narrows_arch" | sed 's/^sm_//'`
  CUDA_GENCODE="$CUDA_GENCODE -gencode=arch=compute_$narrows_arch,code=sm_$narrows_arch"
done
CUDA_GENCODE="$CUDA_GENCODE -gencode=arch=compute_$narrows_arch,code=compute_$narrows_arch"
AC_MSG_CHECKING([that $NVCC compiles for $with_cuda_arch])
cat >conftest.cu <<'END'
__global__ void k(float *x) { x[[threadIdx.x]] = 1.0f; }
END
AS_IF([AC_TRY_COMMAND([$NVCC -std=c++17 $CUDA_GENCODE -c conftest.cu -o conftest.cu.o >&AS_MESSAGE_LOG_FD])],
      [AC_MSG_RESULT([yes])
       NARROWS_HOPPER],
      [AC_MSG_RESULT([no])
       narrows_cuda="no: $NVCC cannot compile for $with_cuda_arch (config.log says why; --with-cuda-arch, or Debian package g++)"])
rm -f conftest.cu conftest.cu.o])

# For 9.0 among the targets: its own matrix instructions (sm_90a) and tensor maps, since CUDA 12.5.
AC_DEFUN([NARROWS_HOPPER],
[CUDA_GENCODE_HOPPER=$CUDA_GENCODE
narrows_hopper="no (90 is not among the targets)"
AS_CASE([$CUDA_GENCODE], [*,code=sm_90\ *|*,code=sm_90a\ *],
        [AC_MSG_CHECKING([for wgmma and tensor maps])
         CUDA_GENCODE_HOPPER=`echo "$CUDA_GENCODE" | \
                              sed 's/compute_90,code=sm_90 /compute_90a,code=sm_90a /'`
         cat >conftest.cu <<'END'
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void k(const __grid_constant__ CUtensorMap m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
int main()
{
    cudaDriverEntryPointQueryResult found;
    void *p;
    return cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000,
                                            cudaEnableDefault, &found);
}
END
         AS_IF([AC_TRY_COMMAND([$NVCC -std=c++17 $CUDA_GENCODE_HOPPER -c conftest.cu -o conftest.cu.o >&AS_MESSAGE_LOG_FD])],
               [narrows_hopper=yes
                CUDA_GENCODE_HOPPER="$CUDA_GENCODE_HOPPER -DHAVE_HOPPER=1"],
               [narrows_hopper="no (config.log says why; CUDA 12.5 or later has them)"
                CUDA_GENCODE_HOPPER=$CUDA_GENCODE])
         AC_MSG_RESULT([$narrows_hopper])])])

AC_DEFUN([NARROWS_CUDA_NCCL],
[NCCL_LIBS=-lnccl
AS_CASE([$with_nccl],
        [no], [narrows_cuda="no: --without-nccl (NCCL is needed)"],
        [guess|yes], [],
        [CUDA_CPPFLAGS="$CUDA_CPPFLAGS -isystem $with_nccl/include"
         NCCL_LIBS="-L$with_nccl/lib -Wl,-rpath,$with_nccl/lib -lnccl"])])

# Links the libraries as the program will be: by the C compiler. cudart shared, else static.
AC_DEFUN([NARROWS_CUDA_LINK],
[AC_MSG_CHECKING([for cudart, cublasLt and NCCL])
for narrows_cudart in "-lcudart" "-lcudart_static -lrt -ldl -lpthread"; do
  AS_IF([test -z "$narrows_cuda"],
        [CUDA_LIBS="$narrows_cuda_dirs -lcublasLt -lcublas $NCCL_LIBS $narrows_cudart -lstdc++"
         NARROWS_TRY_LINK([cuda_runtime.h], [cudaGetLastError()], [$CUDA_CPPFLAGS],
                          [$narrows_cuda_dirs $narrows_cudart -lstdc++],
                          [narrows_cudart_found=yes])
         NARROWS_TRY_LINK([cublasLt.h], [cublasLtGetVersion()], [$CUDA_CPPFLAGS], [$CUDA_LIBS],
                          [narrows_cublas_found=yes])
         NARROWS_TRY_LINK([nccl.h], [ncclGetVersion(0)], [$CUDA_CPPFLAGS], [$CUDA_LIBS],
                          [narrows_cuda="yes ($NVCC, targets $with_cuda_arch)"])])
done
AS_CASE([$narrows_cuda:$narrows_cudart_found:$narrows_cublas_found],
        [yes*], [AC_MSG_RESULT([$CUDA_LIBS])],
        [*:yes:yes], [AC_MSG_RESULT([no NCCL])
          narrows_cuda="no: NCCL not found with $NVCC (package libnccl-dev, or --with-nccl=DIR)"],
        [*:yes:], [AC_MSG_RESULT([no cublasLt or no NCCL])
          narrows_cuda="no: cublasLt or NCCL not found with $NVCC (libcublas-dev, libnccl-dev)"],
        [AC_MSG_RESULT([no cudart])
         narrows_cuda="no: cudart not found with $NVCC (package cuda-cudart-dev)"])])

# Ranges for Nsight Systems: headers alone, a part of most toolkits.
AC_DEFUN([NARROWS_NVTX],
[AC_MSG_CHECKING([for NVTX])
narrows_nvtx=no
NARROWS_TRY_LINK([nvtx3/nvToolsExt.h], [nvtxRangePop()], [$CUDA_CPPFLAGS], [$CUDA_LIBS -ldl],
                 [narrows_nvtx=yes
                  CUDA_DEFS="$CUDA_DEFS -DHAVE_NVTX=1"
                  CUDA_LIBS="$CUDA_LIBS -ldl"])
AC_MSG_RESULT([$narrows_nvtx])])

AC_DEFUN([NARROWS_CUDNN],
[narrows_cudnn="without cuDNN (--without-cudnn)"
AS_CASE([$with_cudnn],
        [guess|yes], [narrows_cudnn_cppflags=; narrows_cudnn_libs=-lcudnn],
        [narrows_cudnn_cppflags="-isystem $with_cudnn/include"
         narrows_cudnn_libs="-L$with_cudnn/lib -Wl,-rpath,$with_cudnn/lib -lcudnn"])
AS_IF([test "x$with_cudnn" != xno],
      [AC_MSG_CHECKING([for cuDNN])
       narrows_cudnn="without cuDNN (not found; --with-cudnn=DIR)"
       NARROWS_TRY_LINK([cudnn.h], [cudnnGetVersion()],
                        [$narrows_cudnn_cppflags $CUDA_CPPFLAGS],
                        [$narrows_cudnn_libs $CUDA_LIBS],
                        [narrows_cudnn="cuDNN"
                         CUDA_DEFS="$CUDA_DEFS -DHAVE_CUDNN=1"
                         CUDA_CPPFLAGS="$narrows_cudnn_cppflags $CUDA_CPPFLAGS"
                         CUDA_LIBS="$narrows_cudnn_libs $CUDA_LIBS"])
       AC_MSG_RESULT([$narrows_cudnn])
       AS_IF([test "$narrows_cudnn" != cuDNN && test "x$with_cudnn" != xguess],
             [AC_MSG_ERROR([--with-cudnn=$with_cudnn: cudnn.h or libcudnn not found there])])])])
