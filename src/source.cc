#include "source.h"

#include <cstring>
#include <string_view>
#include <unordered_map>

#include "known_source.h"

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

// The same rule as tandem/errors.py.
bool judge_code(PyCodeObject* code) {
  const char* path = PyUnicode_AsUTF8(code->co_filename);
  if (!path) {
    PyErr_Clear();
    return false;
  }
  std::string_view file(path);
  const std::string& package = package_folder();
  return !(!package.empty() && file.starts_with(package)) && !file.starts_with("<frozen importlib") &&
         !file.ends_with("/contextlib.py") && !file.ends_with("/functools.py");
}

// Every recorded operator asks, mostly from the same few places: answers are kept, and with them the code objects.
bool is_user_code(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, bool>();
  static PyCodeObject* last = nullptr;
  static bool last_answer = false;
  if (code == last) return last_answer;
  auto found = known->find(code);
  if (found == known->end()) {
    if (known->size() > 100000) return judge_code(code);
    Py_INCREF(code);
    found = known->emplace(code, judge_code(code)).first;
  }
  last = code;
  return last_answer = found->second;
}

}  // namespace

thread_local const Source* known_source = nullptr;

Source user_source() {
  if (known_source) {
    Py_XINCREF(known_source->code);
    return *known_source;
  }
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (is_user_code(code)) {
      Source source{reinterpret_cast<PyObject*>(code), PyFrame_GetLasti(frame)};
      Py_DECREF(frame);
      return source;
    }
    Py_DECREF(code);
    PyFrameObject* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  return {};
}

Origin origin_of(const Source& source, const std::string& op) {
  if (!source.code) return {op, "", "", 0};
  auto* code = reinterpret_cast<PyCodeObject*>(source.code);
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const char* qualified = PyUnicode_AsUTF8(code->co_qualname);
  PyErr_Clear();
  std::string function = qualified ? qualified : "";
  constexpr std::string_view inside = "<locals>.";  // as tandem/errors.py shows it
  if (const size_t at = function.rfind(inside); at != std::string::npos) function.erase(0, at + inside.size());
  return {op, file ? file : "", function, PyCode_Addr2Line(code, source.instruction)};
}

std::string format_source(const Source& source) {
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

}  // namespace tandem
