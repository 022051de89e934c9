// What was launched lately, and what kernels found wrong, so that an error that shows late still names its culprit.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "check.h"
#include "device/cuda/driver.h"

namespace tandem::cuda {

// Note [Early launches]
// Our kernels begin by waiting for what was queued before them (BEGIN in tandem/codegen/cuda/ops.py). So the device may
// set one up while the one before still runs, which the launch has to allow: it then costs the host less (on one
// H200 3.3 instead of 4.1 µs) and hides what lies between two kernels. In graphs it gained nothing that could be
// measured. Devices before compute capability 9.0 have no such instruction, and kernels there no such wait.
// TANDEM_EARLY=0: no launches so.
//
// Queues one of our kernels: `arguments` is its one parameter.
Status launch(int device, Function function, unsigned blocks, const unsigned (&threads)[2], unsigned shared_bytes,
              Stream stream, void* arguments);
extern constinit thread_local bool recording;  // this thread's launches become a graph

// Notes a launch; cheap enough for every one. Gives its number.
uint64_t note_launch(const char* label);
uint64_t launches_so_far();  // the number of the next one

std::string recent_launches(int count);  // for messages: "\n  last launches: ..."

// A kernel that checks indices writes the first bad one into memory that the host can read:
// the launch's number, the value, the bound and the axis. See tandem/codegen/cuda/routines.py. It also sets the flag
// that kernels which write what existed before look at (Note [Guarded writes] in tandem/codegen/cuda/kernel.py).
struct Report {
  uint64_t claimed;  // set by the first thread to complain
  uint64_t number;
  int64_t value;
  int64_t bound;
  int64_t axis;
  uint64_t written;
  Address failed;  // the flag, in the device's memory
};
Report* reports(int device);       // of the device, in memory that both sides see; made when first needed
Address failure_flag(int device);  // made with the report

// Which operator and line a launch that checks belongs to, for the message that shows much later: told before the
// launch. Launches of recorded graphs come again and again; what is said of them stays until `forget_checked_launches`.
void note_checked_launch(uint64_t number, std::shared_ptr<const Origin> origin);
void forget_checked_launches(uint64_t first, uint64_t last);  // of recorded ones, those with these numbers

// Throws Error(Index), as the routine of the CPU does, if a kernel has complained since the last call. Nothing is
// written between the launch that complained and this.
void raise_device_errors(int device);

}  // namespace tandem::cuda
