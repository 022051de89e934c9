// Whether calls of this thread are noted down for a program, for those who need not know more of it
// (capture/capture.h).
#pragma once
#include <Python.h>

namespace tandem {

class Capture;
extern thread_local Capture* active_capture;

// Before a result takes the place of `before` (may be null) in owner[key]; see Note [Rebinding] in capture/capture.h.
void note_rebinding(PyObject* owner, PyObject* key, PyObject* before);

}  // namespace tandem
