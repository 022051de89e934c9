// Pages from the operating system.
#pragma once
#include <cstddef>

namespace tandem {

void* system_map(size_t bytes, size_t alignment);  // null when refused; zero-filled on first touch
void system_unmap(void* address, size_t bytes) noexcept;
size_t machine_memory();  // main memory and swap, or less where a container says so

}  // namespace tandem
