#include "collectives/mpi.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>

#include "check.h"

namespace tandem::collectives::mpi {
namespace {

constexpr int kSerialised = 2048;  // MPI_THREAD_SERIALIZED
constexpr int kMostText = 8192;    // MPI_MAX_LIBRARY_VERSION_STRING

std::unique_ptr<Api> made;
std::string version;

template <typename F>
void load(void* library, F*& function, const char* name) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  if (!function) fail(ErrorKind::Distributed, "MPI: the library has no ", name);
}

std::unique_ptr<Api> open(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(ErrorKind::Distributed, "MPI: ", dlerror());
  auto a = std::make_unique<Api>();
  load(library, a->init, "MPI_Init_thread");
  load(library, a->initialized, "MPI_Initialized");
  load(library, a->error_string, "MPI_Error_string");
  load(library, a->library_version, "MPI_Get_library_version");
  load(library, a->set_errors, "MPI_Comm_set_errhandler");
  load(library, a->comm_group, "MPI_Comm_group");
  load(library, a->group_incl, "MPI_Group_incl");
  load(library, a->group_free, "MPI_Group_free");
  load(library, a->create, "MPI_Comm_create_group");
  load(library, a->free, "MPI_Comm_free");
  load(library, a->test, "MPI_Test");
  load(library, a->barrier, "MPI_Ibarrier");
  load(library, a->all_gather, "MPI_Iallgatherv_c");
  load(library, a->all_to_all, "MPI_Ialltoallv_c");
  load(library, a->broadcast, "MPI_Ibcast_c");
  load(library, a->send, "MPI_Isend_c");
  load(library, a->receive, "MPI_Irecv_c");
  return a;
}

}  // namespace

std::string begin(const std::string& path) {
  const std::lock_guard guard(mutex());
  if (made) return version;
  auto opened = open(path);
  int already = 0, provided = 0;
  opened->initialized(&already);
  if (already) fail(ErrorKind::Distributed, "MPI: another part of this program has begun it already");
  const int status = opened->init(nullptr, nullptr, kSerialised, &provided);
  if (status) fail(ErrorKind::Distributed, "MPI: it cannot begin (status ", status, ")");
  if (provided < kSerialised) fail(ErrorKind::Distributed, "MPI: the library was built without threads");
  opened->set_errors(kWorld, kReturnErrors);
  std::string text(kMostText, 0);
  int length = 0;
  opened->library_version(text.data(), &length);
  version = text.substr(0, text.find_first_of("\n", 0));
  version.resize(std::min<size_t>(version.size(), length));
  made = std::move(opened);
  return version;
}

const Api& api() {
  TD_CHECK(made);
  return *made;
}

std::mutex& mutex() {
  static auto* one = new std::mutex;
  return *one;
}

void check(int status, const char* what) {
  if (!status) return;
  char text[513] = {};
  int length = 0;
  made->error_string(status, text, &length);
  fail(ErrorKind::Distributed, "MPI: ", what, " failed: ", text);
}

}  // namespace tandem::collectives::mpi
