#include <Python.h>
#if PY_VERSION_HEX < 0x030E0000
#define Py_BUILD_CORE 1  // nothing but the layout of frames
#include <internal/pycore_frame.h>
#define TANDEM_KNOWS_FRAMES 1
#endif

#include "frames.h"

namespace tandem {

#ifdef TANDEM_KNOWS_FRAMES

static _PyInterpreterFrame* complete(_PyInterpreterFrame* frame) {
  while (frame && _PyFrame_IsIncomplete(frame)) frame = frame->previous;
  return frame;
}

Frames::Frames() {
#if PY_VERSION_HEX < 0x030D0000
  frame_ = complete(PyThreadState_Get()->cframe->current_frame);
#else
  frame_ = complete(PyThreadState_Get()->current_frame);
#endif
  look();
}

Frames::~Frames() = default;

void Frames::look() {
  if (!frame_) return;
#if PY_VERSION_HEX < 0x030D0000
  code_ = static_cast<_PyInterpreterFrame*>(frame_)->f_code;
#else
  code_ = _PyFrame_GetCode(static_cast<_PyInterpreterFrame*>(frame_));
#endif
}

int Frames::instruction() const {
  return _PyInterpreterFrame_LASTI(static_cast<_PyInterpreterFrame*>(frame_)) * static_cast<int>(sizeof(_Py_CODEUNIT));
}

void Frames::next() {
  frame_ = complete(static_cast<_PyInterpreterFrame*>(frame_)->previous);
  look();
}

#else

Frames::Frames() : frame_(PyThreadState_GetFrame(PyThreadState_Get())) {
  look();
}

Frames::~Frames() {
  Py_XDECREF(static_cast<PyFrameObject*>(frame_));
}

void Frames::look() {
  if (!frame_) return;
  code_ = PyFrame_GetCode(static_cast<PyFrameObject*>(frame_));
  Py_DECREF(code_);  // the frame holds it
}

int Frames::instruction() const {
  return PyFrame_GetLasti(static_cast<PyFrameObject*>(frame_));
}

void Frames::next() {
  PyFrameObject* outer = PyFrame_GetBack(static_cast<PyFrameObject*>(frame_));
  Py_DECREF(static_cast<PyFrameObject*>(frame_));
  frame_ = outer;
  look();
}

#endif

}  // namespace tandem
