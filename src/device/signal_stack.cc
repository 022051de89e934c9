#include "device/signal_stack.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

namespace tandem {
namespace {

class SignalStack {
 public:
  SignalStack() {
    stack_t old{};
    if (sigaltstack(nullptr, &old) != 0 || !(old.ss_flags & SS_DISABLE)) return;
    long least = MINSIGSTKSZ;
#ifdef _SC_SIGSTKSZ  // grows with the registers of the processor
    least = std::max(least, sysconf(_SC_SIGSTKSZ));
#endif
    stack_t own{};
    own.ss_size = static_cast<size_t>(least) + (64 << 10);
    memory_.reset(new char[own.ss_size]);
    own.ss_sp = memory_.get();
    if (sigaltstack(&own, nullptr) != 0) memory_.reset();
  }

  ~SignalStack() {
    stack_t now{};
    if (!memory_ || sigaltstack(nullptr, &now) != 0 || now.ss_sp != memory_.get()) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }

 private:
  std::unique_ptr<char[]> memory_;
};

}  // namespace

void set_signal_stack() {
  thread_local SignalStack stack;
}

}  // namespace tandem
