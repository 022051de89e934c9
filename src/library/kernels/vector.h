// Vectors of the widest registers of the instruction set that this file is being compiled for.
#pragma once
#include <cstdint>

#ifdef TANDEM_VECTOR_BYTES  // given on the command line, to test wide vectors on a CPU without them
#elif defined(__AVX512F__)
#define TANDEM_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define TANDEM_VECTOR_BYTES 32
#else
#define TANDEM_VECTOR_BYTES 16
#endif

namespace tandem::library::TANDEM_ISA {

template <typename T, int W>
struct VectorOf {
  typedef T type __attribute__((vector_size(W * sizeof(T))));
  typedef T loose __attribute__((vector_size(W * sizeof(T)), aligned(alignof(T)), may_alias));  // for memory
};
template <typename T>
struct VectorOf<T, 1> {
  using type = T;
  using loose = T;
};

template <typename T>
constexpr int kWidth = TANDEM_VECTOR_BYTES / sizeof(T);

template <typename T, int W = kWidth<T>>
inline typename VectorOf<T, W>::type load(const T* p) {
  return *reinterpret_cast<const typename VectorOf<T, W>::loose*>(p);
}
template <typename T, int W = kWidth<T>>
inline void store(T* p, typename VectorOf<T, W>::type v) {
  *reinterpret_cast<typename VectorOf<T, W>::loose*>(p) = v;
}

}  // namespace tandem::library::TANDEM_ISA
