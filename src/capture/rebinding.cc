// Places that outlive a compiled function, and what they hold should it fail: see Note [Rebinding] in capture.h.
#include <utility>

#include "capture/capture.h"

namespace tandem {

void note_rebinding(PyObject* owner, PyObject* key, PyObject* before) {
  if (active_capture) active_capture->note_rebinding(owner, key, before);
}

static bool is_deferred(PyObject* value) {
  return value && is_tensor(value) && reinterpret_cast<Tensor*>(value)->storage->pending();
}

// A deferred tensor is not held here: somebody would seem to need its value. What it replaced was stored when it came.
void Capture::note_rebinding(PyObject* owner, PyObject* key, PyObject* before) {
  if (!region.empty() || is_deferred(owner) || is_deferred(before)) return;
  rebindings_.push_back({Py_NewRef(owner), Py_XNewRef(key), Py_XNewRef(before)});
}

void Capture::undo_rebindings() {
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  for (auto it = rebindings_.rbegin(); it != rebindings_.rend(); ++it) {
    if (!it->key) {
      AutogradExtra* extra = reinterpret_cast<Tensor*>(it->owner)->extra;
      if (extra && is_deferred(extra->grad)) Py_XSETREF(extra->grad, Py_XNewRef(it->before));
    } else if (is_deferred(PyDict_GetItem(it->owner, it->key))) {
      if (it->before ? PyDict_SetItem(it->owner, it->key, it->before) : PyDict_DelItem(it->owner, it->key))
        PyErr_Clear();
    }
  }
  forget_rebindings();
  PyErr_Restore(type, error, trace);
}

void Capture::forget_rebindings() {
  for (Rebinding& r : std::exchange(rebindings_, {})) {
    Py_DECREF(r.owner);
    Py_XDECREF(r.key);
    Py_XDECREF(r.before);
  }
}

}  // namespace tandem
