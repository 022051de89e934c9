#include "library/linalg/lapack.h"

#include <dlfcn.h>

#include <mutex>
#include <string>

#include "check.h"
#include "device/parallel.h"
#include "fork_guard.h"
#include "library/blas.h"

namespace tandem::library::linalg {
namespace {

struct Library {
  void* handle = nullptr;
  void (*set_num_threads)(int) = nullptr;
  std::string reason;
};

const Library& library() {
  static const Library opened = [] {
    Library made;
#ifdef TANDEM_LAPACK
    made.handle = open_bundled("libscipy_openblas.so", &made.reason);
    if (made.handle) {
      made.set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(made.handle, "scipy_openblas_set_num_threads"));
      if (made.set_num_threads) made.set_num_threads(1);
    }
#else
    made.reason = "\n  it was built without";
#endif
    return made;
  }();
  return opened;
}

template <typename T>
Lapack<T> load() {
  const Library& from = library();
  if (!from.handle)
    fail(ErrorKind::Unsupported,
         "factorisations need LAPACK (libscipy_openblas.so), and this copy of Tandem has none:", from.reason,
         "\n  fix: install scipy-openblas32 and build Tandem again");
  constexpr bool is_complex = kIsComplex<T>;
  const std::string letter = std::is_same_v<Real<T>, float> ? (is_complex ? "c" : "s") : (is_complex ? "z" : "d");
  Lapack<T> table;
  const auto get = [&](auto& function, const std::string& name) {
    const std::string symbol = "scipy_" + letter + name + "_";
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(from.handle, symbol.c_str()));
    if (!function) fail(ErrorKind::Unsupported, "the LAPACK of this copy of Tandem has no ", symbol);
  };
  get(table.getrf, "getrf");
  get(table.getri, "getri");
  get(table.getrs, "getrs");
  get(table.potrf, "potrf");
  get(table.potri, "potri");
  get(table.sytrf, "sytrf");
  get(table.sytrs, "sytrs");
  get(table.hetrf, is_complex ? "hetrf" : "sytrf");
  get(table.hetrs, is_complex ? "hetrs" : "sytrs");
  get(table.trsm, "trsm");
  get(table.gemm, "gemm");
  get(table.geqrf, "geqrf");
  get(table.orgqr, is_complex ? "ungqr" : "orgqr");
  get(table.gesdd, "gesdd");
  get(table.syevd, is_complex ? "heevd" : "syevd");
  get(table.geev, "geev");
  get(table.gelsd, "gelsd");
  return table;
}

}  // namespace

namespace {
std::mutex many_threads;  // held by the ManyThreads that is alive
ForkGuard fork_many_threads(many_threads, {}, ForkGuard::Before::Go);
}  // namespace

ManyThreads::ManyThreads() {
  many_threads.lock();
  if (library().set_num_threads) library().set_num_threads(num_threads());
}

ManyThreads::~ManyThreads() {
  if (library().set_num_threads) library().set_num_threads(1);
  many_threads.unlock();
}

template <typename T>
const Lapack<T>& lapack() {
  static const Lapack<T> table = load<T>();
  return table;
}

template const Lapack<float>& lapack<float>();
template const Lapack<double>& lapack<double>();
template const Lapack<std::complex<float>>& lapack<std::complex<float>>();
template const Lapack<std::complex<double>>& lapack<std::complex<double>>();

}  // namespace tandem::library::linalg
