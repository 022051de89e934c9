// Where this thread's signal handlers run.
#pragma once

namespace tandem {

// Gives the thread a stack for signal handlers, unless it has one, until the thread ends. Python's handlers use it.
//
// Note [Signals in foreign code]
// oneDNN's float32 gemm for AVX-512 keeps the stack pointer of its kernels in memory of the heap. The system writes the
// frame of a signal handler below that pointer, so a signal at the wrong moment (an interval timer, a child that ended,
// Ctrl-C) overwrote what lay before that memory. A handler with a stack of its own leaves the pointer alone. Threads of
// our own block signals.
void set_signal_stack();

}  // namespace tandem
