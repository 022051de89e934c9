// Whether calls of this thread are captured for a program, for those who need not know more of it
// (capture/capture.h).
#pragma once
#include <Python.h>

#include <utility>

namespace tandem {

class Capture;
class Storage;
extern constinit thread_local Capture* active_capture;

// Before a result takes the place of `before` (may be null) in owner[key]; see Note [Rebinding] in capture/capture.h.
// The same for calls that are deferred to run in batches (autobatch/batch.h).
class Batch;
extern constinit thread_local Batch* active_batch;
void run_deferred(const Storage* storage);  // what a deferred tensor of a batch needs, if it is one

struct NotDeferred {  // calls in this scope run at once
  Batch* batch = std::exchange(active_batch, nullptr);
  NotDeferred() = default;
  NotDeferred(const NotDeferred&) = delete;
  ~NotDeferred() { active_batch = batch; }
};

void note_rebinding(PyObject* owner, PyObject* key, PyObject* before);

}  // namespace tandem
