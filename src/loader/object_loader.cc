#include "loader/object_loader.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "check.h"
#include "fork_guard.h"
#include "loader/argument_reduction.h"
#include "loader/object_linker.h"

namespace tandem {
namespace {

#if defined(__x86_64__)
constexpr int host_machine = int(Machine::X86_64);
#elif defined(__aarch64__)
constexpr int host_machine = int(Machine::AArch64);
#else
constexpr int host_machine = 0;
#endif

// What kernels call: our own routine; and old processors take fma and rounding from the math library, which is not in
// every process's global scope.
uint64_t find_in_process(const char* name) {
  if (!std::strcmp(name, reduce_angles_name)) return reinterpret_cast<uint64_t>(&reduce_angles);
  static void* const math = dlopen("libm.so.6", RTLD_LAZY);
  void* address = dlsym(RTLD_DEFAULT, name);
  if (!address && math) address = dlsym(math, name);
  return reinterpret_cast<uint64_t>(address);
}

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Executable memory that kernels share, so that a kernel of 500 bytes does not take a page.
//
// Note [Code memory]
// No page is ever writable and executable. The memory is an anonymous file; the executable mapping stays, and a
// writable one exists while a kernel is copied in. Such a mapping is shared with forked children, so a child starts a
// new arena and only runs what is in the old one.
class Arena {
 public:
  // Room for `size` bytes at a fixed address, or null where the system does not allow such mappings.
  uint8_t* reserve(size_t size) {
    if (owner_ != getpid() || size > capacity_ - used_) {
      if (!renew(std::max(size, arena_size))) return nullptr;
    }
    uint8_t* place = code_ + used_;
    used_ = std::min(capacity_, round_up(used_ + size, ObjectLinker::alignment));
    return place;
  }

  bool write(uint8_t* place, const std::vector<uint8_t>& image) {
    size_t begin = place - code_, page = sysconf(_SC_PAGESIZE), first = begin / page * page;
    size_t length = begin + image.size() - first;
    void* view = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(first));
    if (view == MAP_FAILED) return false;
    std::memcpy(static_cast<uint8_t*>(view) + (begin - first), image.data(), image.size());
    munmap(view, length);
    return true;
  }

 private:
  static constexpr size_t arena_size = size_t{1} << 20;

  bool renew(size_t size) {
#ifdef __linux__
    size = round_up(size, sysconf(_SC_PAGESIZE));
    int file = memfd_create("tandem-kernels", MFD_CLOEXEC);
    if (file < 0) return false;
    void* code = MAP_FAILED;
    if (ftruncate(file, static_cast<off_t>(size)) == 0)
      code = mmap(nullptr, size, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    if (code == MAP_FAILED) {
      close(file);
      return false;
    }
    if (file_ >= 0) close(file_);  // its mapping stays
    file_ = file, code_ = static_cast<uint8_t*>(code), capacity_ = size, used_ = 0, owner_ = getpid();
    return true;
#else
    (void)size;
    return false;
#endif
  }

  int file_ = -1;
  uint8_t* code_ = nullptr;
  size_t capacity_ = 0, used_ = 0;
  pid_t owner_ = -1;
};

// The way for systems that forbid the arena's mappings: pages of its own for each kernel.
uint8_t* own_pages(const ObjectLinker& linker) {
  size_t size = round_up(std::max<size_t>(linker.size(), 1), sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(ErrorKind::Memory, "no memory for generated code: ", std::strerror(errno));
  try {
    auto image = linker.link(reinterpret_cast<uint64_t>(memory), find_in_process);
    std::memcpy(memory, image.data(), image.size());
    if (mprotect(memory, size, PROT_READ | PROT_EXEC) != 0)
      fail(ErrorKind::Memory, "this system does not allow generated code to run: ", std::strerror(errno));
  } catch (...) {
    munmap(memory, size);
    throw;
  }
  return static_cast<uint8_t*>(memory);
}

}  // namespace

void* load_object(std::string_view object, const std::string& entry) {
  static std::mutex mutex;  // guards arena
  static ForkGuard fork(mutex);
  static Arena arena;

  ObjectLinker linker(object);
  if (int(linker.machine()) != host_machine) fail(ErrorKind::Value, "object code is for another kind of machine");
  size_t start = linker.symbol(entry);
  uint8_t* code = nullptr;
  {
    std::lock_guard lock(mutex);
    if (uint8_t* place = arena.reserve(linker.size())) {
      auto image = linker.link(reinterpret_cast<uint64_t>(place), find_in_process);
      if (arena.write(place, image)) code = place;
    }
  }
  if (!code) code = own_pages(linker);
  auto* begin = reinterpret_cast<char*>(code);
  __builtin___clear_cache(begin, begin + linker.size());
  return code + start;
}

}  // namespace tandem
