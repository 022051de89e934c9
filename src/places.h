// In which of the user's modules an error has its origin that shows when they have returned long ago.
//
// Note [Modules of late errors]
// A device finds a bad index after the call that had it. So whoever queues a launch that may complain asks Python which
// modules run (errors/module_calls.py), and programs are told so of each of their calls when they are made. The answer
// is a Python object; it lives as long as the Origin that it belongs to, and names the module should the error come.
#pragma once
#include <Python.h>

#include <memory>

#include "check.h"

namespace tandem {

extern PyObject* modules_here;  // () -> place of what runs now

// An origin with its place, of which it takes a reference. Needs the GIL.
std::shared_ptr<const Origin> placed(Origin origin, PyObject* place);
PyObject* place_of(const std::shared_ptr<const Origin>& origin);  // borrowed; nullptr where nothing was said

}  // namespace tandem
