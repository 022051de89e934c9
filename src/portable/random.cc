// What an archive of the C++ library asks of the C library, in the words of older ones. See cmake/release.cmake.
#include <sys/random.h>

#include <cstdint>

// arc4random (glibc 2.36) is all that std::random_device would keep a package from systems with glibc 2.34 for.
extern "C" uint32_t __wrap_arc4random() {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}
