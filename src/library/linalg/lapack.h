// LAPACK and the few BLAS functions that go with it, from the OpenBLAS of the package, opened when first needed.
//
// The Fortran functions are called as they are: column-major matrices, everything by address, and at the end the
// lengths of the character arguments, which gfortran's calling convention has. OpenBLAS runs
// each in the calling thread, and batches are divided among the threads of our own pool; ManyThreads is the exception.
#pragma once
#include <complex>
#include <cstddef>
#include <type_traits>

namespace tandem::library::linalg {

template <typename T>
struct RealOf {
  using type = T;
};
template <typename T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <typename T>
using Real = typename RealOf<T>::type;
template <typename T>
inline constexpr bool kIsComplex = !std::is_same_v<T, Real<T>>;

using Size = const int*;
using Char = const char*;
using Length = std::size_t;

template <typename T>
struct Lapack {
  using R = Real<T>;
  void (*getrf)(Size m, Size n, T* a, Size lda, int* pivots, int* info);
  void (*getri)(Size n, T* a, Size lda, const int* pivots, T* work, Size lwork, int* info);
  void (*getrs)(Char trans, Size n, Size nrhs, const T* a, Size lda, const int* pivots, T* b, Size ldb, int* info,
                Length);
  void (*potrf)(Char uplo, Size n, T* a, Size lda, int* info, Length);
  void (*potri)(Char uplo, Size n, T* a, Size lda, int* info, Length);
  void (*sytrf)(Char uplo, Size n, T* a, Size lda, int* pivots, T* work, Size lwork, int* info, Length);
  void (*sytrs)(Char uplo, Size n, Size nrhs, const T* a, Size lda, const int* pivots, T* b, Size ldb, int* info,
                Length);
  void (*hetrf)(Char uplo, Size n, T* a, Size lda, int* pivots, T* work, Size lwork, int* info, Length);  // or sytrf
  void (*hetrs)(Char uplo, Size n, Size nrhs, const T* a, Size lda, const int* pivots, T* b, Size ldb, int* info,
                Length);
  void (*trsm)(Char side, Char uplo, Char trans, Char diag, Size m, Size n, const T* alpha, const T* a, Size lda, T* b,
               Size ldb, Length, Length, Length, Length);
  void (*gemm)(Char transa, Char transb, Size m, Size n, Size k, const T* alpha, const T* a, Size lda, const T* b,
               Size ldb, const T* beta, T* c, Size ldc, Length, Length);
  void (*geqrf)(Size m, Size n, T* a, Size lda, T* tau, T* work, Size lwork, int* info);
  void (*orgqr)(Size m, Size n, Size k, T* a, Size lda, const T* tau, T* work, Size lwork, int* info);  // ungqr
  // The following take one more argument, `rwork`, for complex matrices.
  std::conditional_t<kIsComplex<T>,
                     void (*)(Char jobz, Size m, Size n, T* a, Size lda, R* s, T* u, Size ldu, T* vt, Size ldvt,
                              T* work, Size lwork, R* rwork, int* iwork, int* info, Length),
                     void (*)(Char jobz, Size m, Size n, T* a, Size lda, R* s, T* u, Size ldu, T* vt, Size ldvt,
                              T* work, Size lwork, int* iwork, int* info, Length)>
      gesdd;
  std::conditional_t<kIsComplex<T>,
                     void (*)(Char jobz, Char uplo, Size n, T* a, Size lda, R* w, T* work, Size lwork, R* rwork,
                              Size lrwork, int* iwork, Size liwork, int* info, Length, Length),
                     void (*)(Char jobz, Char uplo, Size n, T* a, Size lda, R* w, T* work, Size lwork, int* iwork,
                              Size liwork, int* info, Length, Length)>
      syevd;  // heevd
  std::conditional_t<kIsComplex<T>,
                     void (*)(Char jobvl, Char jobvr, Size n, T* a, Size lda, T* w, T* vl, Size ldvl, T* vr, Size ldvr,
                              T* work, Size lwork, R* rwork, int* info, Length, Length),
                     void (*)(Char jobvl, Char jobvr, Size n, T* a, Size lda, T* wr, T* wi, T* vl, Size ldvl, T* vr,
                              Size ldvr, T* work, Size lwork, int* info, Length, Length)>
      geev;
  std::conditional_t<kIsComplex<T>,
                     void (*)(Size m, Size n, Size nrhs, T* a, Size lda, T* b, Size ldb, R* s, const R* rcond,
                              int* rank, T* work, Size lwork, R* rwork, int* iwork, int* info),
                     void (*)(Size m, Size n, Size nrhs, T* a, Size lda, T* b, Size ldb, R* s, const R* rcond,
                              int* rank, T* work, Size lwork, int* iwork, int* info)>
      gelsd;
};

// The functions for T: float, double and the complex numbers of both. Throws where the library is not to be had.
template <typename T>
const Lapack<T>& lapack();

// While one is alive, OpenBLAS divides its work among threads of its own: for one large matrix, during which our pool
// sleeps. Only one at a time, and never within a parallel call.
class ManyThreads {
 public:
  ManyThreads();
  ~ManyThreads();
  ManyThreads(const ManyThreads&) = delete;
  ManyThreads& operator=(const ManyThreads&) = delete;
};

}  // namespace tandem::library::linalg
