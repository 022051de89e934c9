#include "dispatch/results.h"

#include "callbacks.h"
#include "modes.h"

namespace tandem::dispatching {

void note_base(Tensor* view, Tensor* base) {
  view->inference = grad_mode.inference || base->inference;
  if (view->inference) return;
  AutogradExtra& extra = extra_of(view);
  PyObject* root = base->extra && base->extra->base ? base->extra->base : reinterpret_cast<PyObject*>(base);
  extra.base = Py_NewRef(root);
  extra.history_version = base->storage->version();
}

TensorRef make_output(const Plan& plan, const Plan::Output& output, PlanRun& run, Argument* arguments) {
  if (output.same_as_input >= 0) return TensorRef::share(arguments[output.same_as_input].tensor);
  View v = run.view(output.value);
  if (output.view_of_input >= 0) {
    Tensor* base = arguments[output.view_of_input].tensor;
    Tensor* made = new_view(base, v.data, v.dtype, v.ndim, v.shape, v.strides);
    note_base(made, base);
    return TensorRef::adopt(made);
  }
  int32_t root = output.value;
  while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
  Tensor* made = new_tensor(run.share_storage(root), v.data, v.dtype, v.ndim, v.shape, v.strides);
  made->inference = grad_mode.inference;
  return TensorRef::adopt(made);
}

void check_outputs(OpFunction* op, const TensorList& outputs) {
  if (!callbacks.check_finite) return;
  for (const TensorRef& t : outputs) {
    if (!is_floating(t->view.dtype)) continue;
    PyObject* args[] = {op->name, t.object(), Py_None};
    PyObject* done = PyObject_Vectorcall(callbacks.check_finite, args, 3, nullptr);
    if (!done) throw PythonError{};
    Py_DECREF(done);
  }
}

bool make_views(Batch* batch, const Plan& plan, PlanRun& run, Argument* arguments, TensorList& views) {
  for (const Plan::Output& output : plan.outputs) {
    Tensor* base = arguments[output.same_as_input >= 0 ? output.same_as_input : output.view_of_input].tensor;
    if (base->storage->batch() != batch || !batch->takes_views(base)) {
      batch->run(base->storage);
      return false;
    }
  }
  for (const Plan::Output& output : plan.outputs) {
    if (output.same_as_input >= 0) {
      views.push_back(TensorRef::share(arguments[output.same_as_input].tensor));
      continue;
    }
    Tensor* base = arguments[output.view_of_input].tensor;
    views.push_back(batch->view(base, run.view(output.value), output.differentiable));
    note_base(views[views.size() - 1].get(), base);
  }
  return true;
}

}  // namespace tandem::dispatching
