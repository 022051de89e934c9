// For loops that wait for another thread without sleeping.
#pragma once

namespace tandem {

// Tells the processor that this thread only looks again and again.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tandem
