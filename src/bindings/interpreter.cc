// Python as the interpreter of the runtime (interpreter.h).
#include "interpreter.h"

#include <Python.h>

#include <cstring>
#include <string_view>
#include <unordered_map>

#include "bindings/bindings.h"
#include "callbacks.h"
#include "frames.h"
#include "known_source.h"
#include "places.h"
#include "source.h"

namespace tandem {
namespace {

// The folder of the package, with a slash at its end. Not our own location: an editable install keeps the extension
// elsewhere.
const std::string& package_folder() {
  static std::string folder;
  if (!folder.empty()) return folder;
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* package = modules ? PyDict_GetItemString(modules, "tandem") : nullptr;
  PyObject* file = package ? PyObject_GetAttrString(package, "__file__") : nullptr;
  if (const char* path = file && PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : nullptr) {
    std::string_view text(path);
    size_t slash = text.rfind('/');
    if (slash != std::string_view::npos) folder = std::string(text.substr(0, slash + 1));
  }
  Py_XDECREF(file);
  PyErr_Clear();
  return folder;
}

// The same rule as tandem/errors.
bool judge_code(PyCodeObject* code) {
  const char* path = PyUnicode_AsUTF8(code->co_filename);
  if (!path) {
    PyErr_Clear();
    return false;
  }
  std::string_view file(path);
  const std::string& package = package_folder();
  return !(!package.empty() && file.starts_with(package)) && !file.starts_with("<frozen importlib") &&
         !file.ends_with("/contextlib.py") && !file.ends_with("/functools.py") && !file.ends_with("/threading.py");
}

// Every recorded operator asks, mostly from the same few places: answers are kept, and with them the code objects.
bool is_user_code(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, bool>();
  constexpr size_t kRecent = 64;
  static PyCodeObject* recent[2][kRecent];  // by answer
  const size_t slot = (reinterpret_cast<uintptr_t>(code) >> 5) % kRecent;
  if (recent[0][slot] == code) return false;
  if (recent[1][slot] == code) return true;
  auto found = known->find(code);
  if (found == known->end()) {
    if (known->size() > 100000) return judge_code(code);
    Py_INCREF(code);
    found = known->emplace(code, judge_code(code)).first;
  }
  recent[found->second][slot] = code;
  return found->second;
}

}  // namespace

namespace {

Source find_user_source() {
  if (known_source) {
    Py_XINCREF(known_source->code);
    return *known_source;
  }
  for (Frames frames; !frames.at_end(); frames.next())
    if (is_user_code(frames.code())) {
      Py_INCREF(frames.code());
      return {reinterpret_cast<PyObject*>(frames.code()), frames.instruction()};
    }
  return {};
}

Origin find_origin(const Source& source, const std::string& op) {
  if (!source.code) return {op, "", "", 0};
  auto* code = reinterpret_cast<PyCodeObject*>(source.code);
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const char* qualified = PyUnicode_AsUTF8(code->co_qualname);
  PyErr_Clear();
  std::string function = qualified ? qualified : "";
  constexpr std::string_view inside = "<locals>.";  // as tandem/errors shows it
  if (const size_t at = function.rfind(inside); at != std::string::npos) function.erase(0, at + inside.size());
  return {op, file ? file : "", function, PyCode_Addr2Line(code, source.instruction)};
}

std::string describe_source(const Source& source) {
  if (!source.code) return "";
  auto* code = reinterpret_cast<PyCodeObject*>(source.code);
  const char* path = PyUnicode_AsUTF8(code->co_filename);
  if (!path) {
    PyErr_Clear();
    return "";
  }
  const char* slash = std::strrchr(path, '/');
  return std::string(slash ? slash + 1 : path) + ":" + std::to_string(PyCode_Addr2Line(code, source.instruction));
}

std::shared_ptr<const Origin> find_caller(const std::string& op) {
  if (!PyGILState_Check()) return std::make_shared<const Origin>(Origin{op, "", "", 0});
  Source source = user_source();
  Origin origin = find_origin(source, op);
  Py_XDECREF(source.code);
  if (!modules_here) return std::make_shared<const Origin>(std::move(origin));
  PyObject* place = PyObject_CallNoArgs(modules_here);  // see Note [Modules of late errors]
  if (!place) {
    PyErr_Clear();
    return std::make_shared<const Origin>(std::move(origin));
  }
  auto made = placed(std::move(origin), place);
  Py_DECREF(place);
  return made;
}

void* find_own_kernel(const char* kind, int argument, int device) {
  PyObject* loaded = PyObject_CallFunction(callbacks.own_kernel, "sii", kind, argument, device);
  if (!loaded) throw PythonError{};
  void* found = PyLong_AsVoidPtr(loaded);
  Py_DECREF(loaded);
  if (!found) throw PythonError{};
  return found;
}

std::vector<std::string> find_library_paths(const char* name) {
  PyObject* paths = PyObject_CallFunction(callbacks.library_paths, "s", name);
  if (!paths) throw PythonError{};
  std::vector<std::string> found;
  for (Py_ssize_t i = 0; i < PySequence_Size(paths); ++i) {
    PyObject* path = PySequence_GetItem(paths, i);
    if (const char* text = path ? PyUnicode_AsUTF8(path) : nullptr) found.emplace_back(text);
    Py_XDECREF(path);
  }
  Py_DECREF(paths);
  PyErr_Clear();
  return found;
}

}  // namespace

Callbacks callbacks;

void connect_interpreter() {
  interpreter = {
      .holds_lock = [] { return Py_IsInitialized() && PyGILState_Check(); },
      .unlock = []() -> void* { return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr; },
      .lock =
          [](void* state) {
            if (state) PyEval_RestoreThread(static_cast<PyThreadState*>(state));
          },
      .is_gone = [] { return Py_IsInitialized() == 0; },
      .enter = [] { return static_cast<int>(PyGILState_Ensure()); },
      .leave = [](int state) { PyGILState_Release(static_cast<PyGILState_STATE>(state)); },
      .release = [](Object* object) { Py_XDECREF(object); },
      .retain = [](Object* object) { Py_XINCREF(object); },
      .interrupted = [] { return PyErr_CheckSignals() != 0; },
      .clear_error = [] { PyErr_Clear(); },
      .user_source = &find_user_source,
      .origin_of = &find_origin,
      .format_source = &describe_source,
      .called_from = &find_caller,
      .own_kernel = &find_own_kernel,
      .library_paths = &find_library_paths,
  };
}

}  // namespace tandem
