// Memory that several processes see. It has no name: it lives as long as somebody has it open or mapped, so nothing is
// left behind whatever dies.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tandem {

class SharedMemory {
 public:
  static std::shared_ptr<SharedMemory> create(size_t bytes);
  static std::shared_ptr<SharedMemory> attach(int fd);  // takes the descriptor over, also when it throws
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  uint64_t inode() const { return inode_; }  // the same in all processes
  int fd() const { return fd_; }             // -1 once it was closed
  void close_fd();                           // the memory stays, but can be given to no further process

  std::atomic<int64_t> users{0};  // storages on this memory in this process

 private:
  SharedMemory(int fd) : fd_(fd) {}
  void map();

  int fd_;
  char* data_ = nullptr;
  size_t bytes_ = 0;
  uint64_t inode_ = 0;
};

}  // namespace tandem
