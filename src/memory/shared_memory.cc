#include "memory/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "check.h"
#include "memory/format.h"

namespace tandem {

std::shared_ptr<SharedMemory> SharedMemory::create(size_t bytes) {
  int fd = memfd_create("tandem", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) fail(ErrorKind::Memory, "no shared memory: memfd_create failed: ", strerror(errno));
  std::shared_ptr<SharedMemory> memory(new SharedMemory(fd));
  if (ftruncate(fd, static_cast<off_t>(bytes ? bytes : 1)) != 0)
    fail(ErrorKind::Memory, "no shared memory of ", format_bytes(bytes), ": ", strerror(errno));
  // Nobody who has the descriptor can pull the memory away from under the others.
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  memory->map();
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::attach(int fd) {
  std::shared_ptr<SharedMemory> memory(new SharedMemory(fd));
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK))
    fail(ErrorKind::Value, "descriptor ", fd, " is not shared memory of tandem.multiprocessing");
  memory->map();
  return memory;
}

void SharedMemory::map() {
  struct stat info;
  if (fstat(fd_, &info) != 0) fail(ErrorKind::Value, "shared memory: ", strerror(errno));
  inode_ = info.st_ino;
  void* data = mmap(nullptr, info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (data == MAP_FAILED)
    fail(ErrorKind::Memory, "shared memory of ", format_bytes(info.st_size), " cannot be mapped: ", strerror(errno));
  data_ = static_cast<char*>(data);
  bytes_ = static_cast<size_t>(info.st_size);
}

void SharedMemory::close_fd() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, bytes_);
  close_fd();
}

}  // namespace tandem
