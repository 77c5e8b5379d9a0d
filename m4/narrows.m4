# Macros of configure.ac. They need neither pkg.m4 nor libtool, so that a machine with a bare
# autoconf and automake can build the tree.

# NARROWS_MISSING(WHAT, DEBIAN-PACKAGE, [ALTERNATIVE])
# Ends configure. One wording for all: what is missing, the package, the other way out.
AC_DEFUN([NARROWS_MISSING],
[AC_MSG_ERROR([$1 not found.
  Debian, Ubuntu:  apt-get install $2
  elsewhere:       ]m4_default([$3], [give its place in CPPFLAGS and LDFLAGS, or in PKG_CONFIG_PATH])[
  config.log says what was tried.])])

# NARROWS_EXACT_FLAGS
# The reference backend promises bits; flags that let the compiler change them are refused.
AC_DEFUN([NARROWS_EXACT_FLAGS],
[AC_MSG_CHECKING([that the flags keep IEEE arithmetic])
for narrows_flag in $CC $CFLAGS $CPPFLAGS $NVCCFLAGS; do
  AS_CASE([$narrows_flag],
    [-ffast-math|-Ofast|-funsafe-math-optimizations|-fassociative-math|-freciprocal-math|-ffinite-math-only|-fno-signed-zeros|-ffp-contract=fast|-ffp-contract=on|-ffp-model=fast|-mrecip*|-use_fast_math|--use_fast_math],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([$narrows_flag lets the compiler change results, which the reference backend
  promises bit for bit (docs/numerics.md). Leave it out of CC, CFLAGS, CPPFLAGS and NVCCFLAGS.])])
done
AC_MSG_RESULT([yes])])

# NARROWS_BUILD_KIND
# Turns --enable-werror, --enable-coverage and --enable-sanitizers into KIND_CFLAGS (before the
# user's CFLAGS), KIND_LDFLAGS and the two optimisation levels.
AC_DEFUN([NARROWS_BUILD_KIND],
[OPT_CFLAGS=-O2
REF_OPT_CFLAGS=-O3
KIND_CFLAGS=
KIND_LDFLAGS=
narrows_kind=plain
AS_IF([test "x$enable_werror" = xyes], [KIND_CFLAGS="-Werror"])
AS_IF([test "x$enable_coverage" = xyes],
      [OPT_CFLAGS="-O1 -fno-inline"
       REF_OPT_CFLAGS=$OPT_CFLAGS
       KIND_CFLAGS="$KIND_CFLAGS --coverage"
       KIND_LDFLAGS="$KIND_LDFLAGS --coverage"
       narrows_kind=coverage])
AS_IF([test "x$enable_sanitizers" = xyes],
      [OPT_CFLAGS=-O1
       REF_OPT_CFLAGS=-O1
       narrows_san="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
       KIND_CFLAGS="$KIND_CFLAGS $narrows_san -fno-omit-frame-pointer"
       KIND_LDFLAGS="$KIND_LDFLAGS $narrows_san"
       narrows_kind="$narrows_kind, sanitizers"])
AM_CONDITIONAL([SANITIZERS], [test "x$enable_sanitizers" = xyes])
AC_SUBST([OPT_CFLAGS])
AC_SUBST([REF_OPT_CFLAGS])
AC_SUBST([KIND_CFLAGS])
AC_SUBST([KIND_LDFLAGS])])

# NARROWS_TRY_LINK(HEADER, EXPRESSION, CFLAGS, LIBS, IF-IT-LINKS)
# Links a program with the given flags; leaves CPPFLAGS and LIBS as they were.
AC_DEFUN([NARROWS_TRY_LINK],
[narrows_save_CPPFLAGS=$CPPFLAGS
narrows_save_LIBS=$LIBS
CPPFLAGS="$3 $CPPFLAGS"
LIBS="$4 $LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$1>]], [[(void)($2);]])],
               [narrows_linked=yes], [narrows_linked=no])
CPPFLAGS=$narrows_save_CPPFLAGS
LIBS=$narrows_save_LIBS
AS_IF([test "$narrows_linked" = yes], [$5])])

# NARROWS_FIND_LIB(VAR, PC-MODULE, HEADER, EXPRESSION, FALLBACK-LIBS...)
# Sets have_VAR, VAR_CFLAGS, VAR_LIBS: what the user gave in VAR_LIBS, else what pkg-config says,
# else each fallback in turn (static prefixes need the long ones). Each is tried by linking.
AC_DEFUN([NARROWS_FIND_LIB],
[AC_ARG_VAR([$1_CFLAGS], [compiler flags for $2, in place of the search])
AC_ARG_VAR([$1_LIBS], [linker flags for $2, in place of the search])
have_$1=no
AC_MSG_CHECKING([for $2])
AS_IF([test -n "$$1_LIBS"],
      [NARROWS_TRY_LINK([$3], [$4], [$$1_CFLAGS], [$$1_LIBS], [have_$1=yes])])
AS_IF([test "$have_$1" = no && test "$PKG_CONFIG" != no && $PKG_CONFIG --exists $2],
      [for narrows_static in "" --static; do
         AS_IF([test "$have_$1" = no],
               [narrows_cflags=`$PKG_CONFIG $narrows_static --cflags $2`
                narrows_libs=`$PKG_CONFIG $narrows_static --libs $2`
                NARROWS_TRY_LINK([$3], [$4], [$narrows_cflags], [$narrows_libs],
                                 [have_$1=yes
                                  $1_CFLAGS=$narrows_cflags
                                  $1_LIBS=$narrows_libs])])
       done])
m4_foreach([narrows_fallback], [m4_shift(m4_shift(m4_shift(m4_shift($@))))],
[AS_IF([test "$have_$1" = no],
      [NARROWS_TRY_LINK([$3], [$4], [], [narrows_fallback],
                        [have_$1=yes
                         $1_LIBS="narrows_fallback"])])
])dnl
AS_IF([test "$have_$1" = yes], [AC_MSG_RESULT([$$1_LIBS])], [AC_MSG_RESULT([no])])])

# NARROWS_LIB(VAR, PC-MODULE, NAME, DEBIAN-PACKAGE, HEADER, EXPRESSION, FALLBACK-LIBS...)
AC_DEFUN([NARROWS_LIB],
[NARROWS_FIND_LIB([$1], [$2], [$5], [$6], m4_shift(m4_shift(m4_shift(m4_shift(m4_shift(m4_shift($@)))))))
AS_IF([test "$have_$1" = no], [NARROWS_MISSING([$3], [$4])])])

# NARROWS_MPI
# CC is a wrapper that knows MPI, or pkg-config does (CC=clang works so).
AC_DEFUN([NARROWS_MPI],
[AC_ARG_VAR([MPI_CFLAGS], [compiler flags for MPI where CC is no MPI wrapper])
AC_ARG_VAR([MPI_LIBS], [linker flags for MPI where CC is no MPI wrapper])
have_mpi=no
AC_MSG_CHECKING([for MPI])
NARROWS_TRY_LINK([mpi.h], [MPI_Init(0, 0)], [$MPI_CFLAGS], [$MPI_LIBS],
                 [have_mpi="yes, by $CC"])
for narrows_pc in ompi-c ompi mpi-c mpich; do
  AS_IF([test "$have_mpi" = no && test "$PKG_CONFIG" != no && $PKG_CONFIG --exists $narrows_pc],
        [narrows_cflags=`$PKG_CONFIG --cflags $narrows_pc`
         narrows_libs=`$PKG_CONFIG --libs $narrows_pc`
         NARROWS_TRY_LINK([mpi.h], [MPI_Init(0, 0)], [$narrows_cflags], [$narrows_libs],
                          [have_mpi="yes, by pkg-config $narrows_pc"
                           MPI_CFLAGS=$narrows_cflags
                           MPI_LIBS=$narrows_libs])])
done
AC_MSG_RESULT([$have_mpi])
AS_IF([test "$have_mpi" = no],
      [NARROWS_MISSING([MPI for CC=$CC], [libopenmpi-dev],
                       [give CC=mpicc, or MPI_CFLAGS and MPI_LIBS])])
# nvcc and clang-tidy do not go through the wrapper: they are told where mpi.h is.
MPI_CPPFLAGS=
for narrows_flag in $MPI_CFLAGS `$CC --showme:compile 2>/dev/null || $CC -show 2>/dev/null`; do
  AS_CASE([$narrows_flag], [-I*], [MPI_CPPFLAGS="$MPI_CPPFLAGS $narrows_flag"])
done
AC_SUBST([MPI_CPPFLAGS])])

# NARROWS_SUMMARY
AC_DEFUN([NARROWS_SUMMARY],
[AS_IF([test "$have_CHECK" = yes], [narrows_check="yes"],
       [narrows_check="no (Debian package: check); everything else is built"])
AS_IF([test "$MPIRUN" = no],
      [narrows_mpirun="not found: no tests on several ranks (Debian package: openmpi-bin)"],
      [narrows_mpirun=$MPIRUN])
AS_IF([test "x$ac_cv_prog_c_openmp" = xunsupported || test "x$enable_openmp" = xno],
      [narrows_openmp="no: one thread a rank"], [narrows_openmp="yes ($OPENMP_CFLAGS)"])
AC_MSG_NOTICE([
  $PACKAGE_STRING, to be built by $CC (build kind: $narrows_kind)
    reference backend   yes (MPI: $have_mpi; OpenBLAS: $OPENBLAS_LIBS)
    OpenMP              $narrows_openmp
    GPU backend         $narrows_cuda
    GPU attention       $narrows_cudnn
    GPU fused SwiGLU    $narrows_hopper
    unit tests          $narrows_check
    mpirun              $narrows_mpirun
  next: make, make check, make install])])
