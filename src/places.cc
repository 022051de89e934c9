#include "places.h"

#include <utility>

namespace tandem {
namespace {

struct Placed {
  PyObject* place;

  void operator()(const Origin* origin) const {
    delete origin;
    if (!Py_IsInitialized()) return;  // the program ends
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(place);
    PyGILState_Release(state);
  }
};

}  // namespace

PyObject* modules_here = nullptr;

std::shared_ptr<const Origin> placed(Origin origin, PyObject* place) {
  Py_INCREF(place);
  return std::shared_ptr<const Origin>(new Origin(std::move(origin)), Placed{place});
}

PyObject* place_of(const std::shared_ptr<const Origin>& origin) {
  const Placed* found = origin ? std::get_deleter<Placed>(origin) : nullptr;
  return found ? found->place : nullptr;
}

}  // namespace tandem
