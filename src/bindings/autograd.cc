// Autograd for Python: modes, backward, hooks, custom records.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "autograd/engine.h"
#include "autograd/record.h"
#include "autograd/record_hooks.h"
#include "autograd/shown.h"
#include "bindings/bindings.h"
#include "check.h"
#include "modes.h"
#include "operators/capturing.h"
#include "overrides.h"
#include "raise.h"

namespace nb = nanobind;

namespace tandem {

namespace {

Tensor* as_tensor(nb::handle h) {
  if (!is_tensor(h.ptr())) throw nb::type_error("expected a tandem.Tensor");
  return reinterpret_cast<Tensor*>(h.ptr());
}

struct NodeHandle {  // Tensor.grad_fn
  Ref<Node> node;
};

nb::object backward(nb::list roots, nb::list grads, nb::object inputs, bool retain_graph, bool create_graph) {
  std::vector<Tensor*> root_list, input_list;
  std::vector<TensorRef> grad_list;
  for (nb::handle h : roots) root_list.push_back(as_tensor(h));
  for (nb::handle h : grads) grad_list.push_back(TensorRef::share(as_tensor(h)));
  bool targeted = !inputs.is_none();
  if (targeted)
    for (nb::handle h : nb::cast<nb::list>(inputs)) input_list.push_back(as_tensor(h));
  try {
    std::vector<TensorRef> result =
        run_backward(root_list, std::move(grad_list), input_list, retain_graph, create_graph);
    if (!targeted) return nb::none();
    nb::list out;
    for (TensorRef& t : result) {
      if (t)
        out.append(nb::steal(reinterpret_cast<PyObject*>(t.leak())));
      else
        out.append(nb::none());
    }
    return out;
  } catch (const PythonError&) {
    nb::raise_python_error();
  }
}

bool other_leaves(nb::list roots, nb::list inputs) {
  std::vector<Tensor*> root_list, input_list;
  for (nb::handle h : roots) root_list.push_back(as_tensor(h));
  for (nb::handle h : inputs) input_list.push_back(as_tensor(h));
  return has_other_leaves(root_list, input_list);
}

// backward() of a loss, without further arguments. False if it is not such a case: Python then explains what is wrong.
bool backward_from_loss(nb::handle h, bool retain_graph) {
  Tensor* t = as_tensor(h);
  if (!t->requires_grad || t->view.numel() != 1 || !t->storage->on_host() || t->storage->sharded()) return false;
  TensorRef one = TensorRef::adopt(new_contiguous(t->view.dtype, t->view.ndim, t->view.shape));
  if (t->view.dtype == DType::Float32)
    *one->view.as<float>() = 1.0f;
  else if (t->view.dtype == DType::Float64)
    *one->view.as<double>() = 1.0;
  else
    return false;
  std::vector<TensorRef> grads;
  grads.push_back(std::move(one));
  try {
    run_backward({t}, std::move(grads), {}, retain_graph, false);
  } catch (const PythonError&) {
    nb::raise_python_error();
  }
  return true;
}

// What forward of a custom function left on its context: in PyTorch the two are one object.
nb::object attribute_of(const NodeHandle& h, const char* name) {
  if (PyObject* function = h.node->python_object()) {
    nb::object context = nb::getattr(nb::handle(function), "context", nb::none());
    if (!context.is_none() && nb::hasattr(context, name)) return context.attr(name);
  }
  throw nb::attribute_error(
      ("the record of '" + std::string(h.node->name()) + "' has no attribute '" + name + "'").c_str());
}

nb::object variable_of(const NodeHandle& h) {
  if (!h.node->is_accumulator()) return attribute_of(h, "variable");
  return nb::borrow(reinterpret_cast<PyObject*>(static_cast<AccumulateGrad*>(h.node.get())->leaf()));
}

// One record whose backward is a Python function: history of `outputs`, leading to `inputs`.
void record_python(nb::object function, const std::string& name, nb::list inputs, nb::list outputs) {
  auto node = Ref<PythonNode>::adopt(new PythonNode(function.ptr(), name));
  node->sequence = next_sequence();
  node->source = user_source();
  for (nb::handle h : inputs) {
    if (!h.is_none()) run_deferred(as_tensor(h)->storage);
    node->link(h.is_none() ? Edge{} : gradient_edge(as_tensor(h)));
  }
  uint32_t index = 0;
  for (nb::handle h : outputs) {
    Tensor* t = as_tensor(h);
    set_history(t, node.get(), index++);
  }
  node->num_outputs = index;
}

// The dict of hooks of a record itself, which run before or after it; made if need be.
nb::object hooks_of_record(const NodeHandle& h, bool before) {
  const uint32_t kind = before ? kBeforeRecord : kAfterRecord;
  for (auto& [output, hooks] : h.node->hooks)
    if (output == kind) return nb::borrow(hooks);
  PyObject* fresh = PyDict_New();
  show_gradients(h.node.get());
  h.node->hooks.emplace_back(kind, fresh);
  h.node->holds_python = true;
  return nb::borrow(fresh);
}

nb::object hooks_of(nb::handle h) {  // the dict of hooks that run on this tensor's gradient; made if need be
  Tensor* t = as_tensor(h);
  if (t->history) {
    for (auto& [output, hooks] : t->history->hooks)
      if (output == t->output_index) return nb::borrow(hooks);
    PyObject* fresh = PyDict_New();
    show_gradients(t->history);
    t->history->hooks.emplace_back(t->output_index, fresh);
    t->history->holds_python = true;
    return nb::borrow(fresh);
  }
  AutogradExtra& extra = extra_of(t);
  if (!extra.hooks) extra.hooks = PyDict_New();
  return nb::borrow(extra.hooks);
}

nb::object hooks_after(nb::handle h) {  // likewise of hooks that run when a leaf's gradient was added up
  AutogradExtra& extra = extra_of(as_tensor(h));
  if (!extra.after) extra.after = PyDict_New();
  return nb::borrow(extra.after);
}

}  // namespace

void register_autograd(nb::module_& m) {
  nb::class_<NodeHandle>(m, "GradFn")
      .def("name", [](NodeHandle& h) { return std::string(h.node->name()); })
      .def_prop_ro("source", [](NodeHandle& h) { return format_source(h.node->source); })
      .def_prop_ro("next_functions",
                   [](NodeHandle& h) {
                     nb::list out;
                     for (const Edge& edge : h.node->edges) {
                       if (edge.node)
                         out.append(nb::make_tuple(nb::cast(NodeHandle{edge.node}), edge.index));
                       else
                         out.append(nb::make_tuple(nb::none(), 0));
                     }
                     return nb::tuple(out);
                   })
      .def_prop_ro("variable", &variable_of)
      .def("__getattr__", &attribute_of)
      .def(
          "__eq__",
          [](NodeHandle& h, nb::object other) {
            return nb::isinstance<NodeHandle>(other) && nb::cast<NodeHandle&>(other).node.get() == h.node.get();
          },
          nb::arg("other").none())
      .def("__hash__", [](NodeHandle& h) { return reinterpret_cast<intptr_t>(h.node.get()) >> 4; })
      .def("__repr__", [](NodeHandle& h) { return "<" + std::string(h.node->name()) + " backward>"; });
  m.def("grad_fn", [](nb::handle h) -> nb::object {
    Tensor* t = as_tensor(h);
    if (!t->history) return nb::none();
    return nb::cast(NodeHandle{Ref<Node>::share(t->history)});
  });
  m.def("backward", &backward, nb::arg("roots"), nb::arg("grads"), nb::arg("inputs").none(), nb::arg("retain_graph"),
        nb::arg("create_graph"));
  m.def("has_other_leaves", &other_leaves, nb::arg("roots"), nb::arg("inputs"));
  m.def("backward_from_loss", &backward_from_loss, nb::arg("tensor"), nb::arg("retain_graph"));
  m.def("record_python", &record_python);
  m.def("hooks_of", &hooks_of);
  m.def("hooks_after", &hooks_after);
  m.def("hooks_of_record", &hooks_of_record, nb::arg("record"), nb::arg("before"));
  m.def("retain_grad_flag", [](nb::handle h) { return as_tensor(h)->extra && as_tensor(h)->extra->retains_grad; });
  m.def("set_retain_grad_flag", [](nb::handle h) { extra_of(as_tensor(h)).retains_grad = true; });
  m.def("grad_enabled", [] { return grad_mode.enabled; });
  m.def("set_grad_enabled", [](bool on) { return std::exchange(grad_mode.enabled, on); });
  m.def("inference_enabled", [] { return grad_mode.inference; });
  m.def("set_inference", [](bool on) { return std::exchange(grad_mode.inference, on); });
  m.def("tensors_override", [] { return tensors_override; });
  m.def("overrides_disabled", [] { return overrides_disabled; });
  m.def("set_tensors_override", [](bool on) { tensors_override = on; });
  m.def("set_overrides_disabled", [](bool on) { return std::exchange(overrides_disabled, on); });
  m.def("anomaly_detection", [] { return anomaly_detection; });
  m.def("set_anomaly_detection", [](bool on) { return std::exchange(anomaly_detection, on); });
  m.def("detach", [](nb::handle h) {
    Tensor* t = as_tensor(h);
    const View& v = t->view;
    return nb::steal(reinterpret_cast<PyObject*>(new_view(t, v.data, v.dtype, v.ndim, v.shape, v.strides)));
  });
  m.def("drop_history", [](nb::handle h) { set_history(as_tensor(h), nullptr, 0); });
  m.def("share_history", [](nb::handle to, nb::handle from) {  // `to` becomes the same result as `from`
    Tensor* source = as_tensor(from);
    set_history(as_tensor(to), source->history, source->output_index);
  });
  m.def("take_geometry",
        [](nb::handle to, nb::handle from) {  // x.squeeze_(): `to` sees its memory as a view of it does
          Tensor *target = as_tensor(to), *source = as_tensor(from);
          if (target->storage != source->storage) fail(ErrorKind::Internal, "take_geometry of another tensor's memory");
          target->view = source->view;
        });
  m.def("view_base", [](nb::handle h) -> nb::object {
    Tensor* t = as_tensor(h);
    return t->extra && t->extra->base ? nb::borrow(t->extra->base) : nb::none();
  });
  m.def("note_write", [](nb::handle h) { as_tensor(h)->storage->bump_version(); });  // what a plan wrote in place
  m.def("is_inference", [](nb::handle h) { return as_tensor(h)->inference; });
  m.def("captured_source", [] {
    Source s = user_source();
    std::string text = format_source(s);
    Py_XDECREF(s.code);
    return text;
  });
}

void register_dispatch(nb::module_& m) {
  init_dispatch(m.ptr());
  m.def("set_callback", [](const std::string& name, nb::object f) {
    PyObject** slot = name == "compile"           ? &callbacks.compile
                      : name == "compile_capture" ? &callbacks.compile_capture
                      : name == "convert"         ? &callbacks.convert
                      : name == "clone"           ? &callbacks.clone
                      : name == "add"             ? &callbacks.add
                      : name == "add_"            ? &callbacks.add_
                      : name == "rebase"          ? &callbacks.rebase
                      : name == "refresh_view"    ? &callbacks.refresh_view
                      : name == "select_view"     ? &callbacks.select_view
                      : name == "put_view"        ? &callbacks.put_view
                      : name == "check_finite"    ? &callbacks.check_finite
                      : name == "extras"          ? &callbacks.extras
                      : name == "overridden"      ? &callbacks.overridden
                      : name == "in_parts"        ? &callbacks.in_parts
                      : name == "to_dense"        ? &callbacks.to_dense
                      : name == "join_backward"   ? &callbacks.join_backward
                      : name == "host_call"       ? &callbacks.host_call
                      : name == "batch_cell"      ? &callbacks.batch_cell
                      : name == "batch_plan"      ? &callbacks.batch_plan
                      : name == "contiguous"      ? &callbacks.contiguous
                      : name == "index_basic"     ? &callbacks.index_basic
                      : name == "place_row"       ? &callbacks.place_row
                      : name == "take_view"       ? &callbacks.take_view
                      : name == "take_row"        ? &callbacks.take_row
                      : name == "add_matmul"      ? &callbacks.add_matmul
                      : name == "add_at"          ? &callbacks.add_at
                      : name == "concat"          ? &callbacks.concat
                      : name == "sharded"         ? &callbacks.sharded
                      : name == "gather"          ? &callbacks.gather
                      : name == "sharded_grad"    ? &callbacks.sharded_grad
                      : name == "add_sharded"     ? &callbacks.add_sharded
                      : name == "load_kernels"    ? &callbacks.load_kernels
                      : name == "own_kernel"      ? &callbacks.own_kernel
                      : name == "axes_first"      ? &callbacks.axes_first
                      : name == "library_paths"   ? &callbacks.library_paths
                                                  : nullptr;
    if (!slot) throw nb::value_error("no such callback");
    Py_XDECREF(*slot);
    *slot = f.release().ptr();
  });
  m.def("enter_trace", [] { return ++tracing_depth; });
  m.def("exit_trace", [] { return --tracing_depth; });
}

}  // namespace tandem
