// Captured calls run one after the other, each by its own plan: what is left to do when no program can be made of them.
#include <algorithm>
#include <string>
#include <string_view>

#include "capture/capture.h"
#include "check.h"
#include "library/registry.h"
#include "tensor/deferred.h"
#include "tensor/device_copy.h"

namespace tandem {

namespace {

struct Made {  // a result
  View view;
  Ref<Storage> storage;  // null where it lies in the memory of a leaf
};

bool is_dense(const View& v) {
  uint8_t order[kMaxDims];
  return classify(v, order) != LayoutClass::Strided;
}

Made copied(const View& from, const View& geometry, int device) {
  View to = geometry;
  Ref<Storage> storage = Ref<Storage>::adopt(Storage::allocate(checked_bytes(to.dtype, to.ndim, to.shape), device));
  to.data = storage->data();
  library::Call copy{&from, 1, &to, 1, nullptr, 0, nullptr, 0};
  if (device)
    cuda::copy_elements(device - 1, from, to);
  else
    library::find("copy")(copy);
  return {to, std::move(storage)};
}

}  // namespace

std::shared_ptr<const Origin> Capture::today(int32_t call) const {
  if (static_cast<size_t>(call) >= calls_.size()) return nullptr;
  const Source& source = calls_[call].source;
  if (!source.code) return nullptr;
  Origin origin = origin_of(source, calls_[call].plan->name);
  origin.call = static_cast<int>(-2 - (captured_before_ + call));
  return std::make_shared<const Origin>(std::move(origin));
}

void Capture::run_fallback(const std::vector<size_t>& escaping) {
  const auto count = static_cast<int32_t>(calls_.size());
  std::vector<int32_t> last_use(calls_.size());
  for (int32_t c = 0; c < count; ++c) {
    last_use[c] = c;
    for (const Operand& o : calls_[c].operands)
      if (o.kind == Operand::Kind::Result) last_use[o.index] = c;
  }
  for (size_t i : escaping) last_use[deferred_[i].value.index] = count;
  std::vector<std::vector<int32_t>> done(calls_.size());
  for (int32_t c = 0; c < count; ++c)
    if (last_use[c] < count) done[last_use[c]].push_back(c);

  std::vector<std::vector<Made>> made(calls_.size());
  for (int32_t c = 0; c < count; ++c) {
    Call& call = calls_[c];
    Plan& plan = *call.plan;
    std::vector<InputView> inputs(call.operands.size());
    std::vector<const Made*> results(call.operands.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Operand& o = call.operands[i];
      switch (o.kind) {
        case Operand::Kind::Leaf:
          inputs[i].view = &leaves_[o.index].view;
          break;
        case Operand::Kind::Result:
          results[i] = &made[o.index][o.output];
          inputs[i].view = &results[i]->view;
          break;
        case Operand::Kind::Number:
          inputs[i].cell = reinterpret_cast<char*>(&numbers_[o.index].integer);
          inputs[i].integer = numbers_[o.index].integer;
          break;
        case Operand::Kind::Int:
          inputs[i].integer = ints_[o.index];
          break;
        case Operand::Kind::None:
          break;
      }
    }
    prepare_plan(plan);
    PlanRun run(plan, inputs.data());
    TD_CHECK(run.guards_hold(), "the plan of ", plan.name, " does not accept the call that it was captured for");
    try {
      run.execute();
    } catch (Error& error) {
      if (!error.origin) error.origin = today(c);
      for (size_t i : escaping) {
        // What a deferred tensor holds now: later calls would have written into it.
        Site site = deferred_[i].value;
        while (site.kind == Site::Kind::Result && site.index >= c) {
          const int32_t written = calls_[site.index].plan->outputs.size() > static_cast<size_t>(site.output)
                                      ? calls_[site.index].plan->outputs[site.output].same_as_input
                                      : -1;
          if (written < 0) break;
          const Operand& before = calls_[site.index].operands[written];
          if (before.kind != Operand::Kind::Result) break;
          site = {Site::Kind::Result, before.index, before.output};
        }
        if (site.kind != Site::Kind::Result || site.index >= c) continue;
        const Made& have = made[site.index][site.output];
        DeferredTensor& deferred = deferred_[i];
        deferred.storage->fulfil(*copied(have.view, deferred.view, deferred.storage->device()).storage);
      }
      resolve_deferred();
      throw;
    }
    const auto in_place = [&](int32_t position, const View& view) {
      return Made{view, results[position] ? results[position]->storage : Ref<Storage>()};
    };
    const auto value_of = [&](int32_t value) {
      int32_t root = value;
      while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
      const View view = run.view(value);
      if (plan.values[root].kind == ValueKind::Input) return in_place(plan.values[root].source, view);
      Ref<Storage> storage = Ref<Storage>::adopt(run.share_storage(root));
      if (is_dense(view)) return Made{view, std::move(storage)};
      View dense = view;  // as defer_result() has it
      int64_t step = 1;
      for (int d = dense.ndim - 1; d >= 0; --d) {
        dense.strides[d] = step;
        step *= std::max<int64_t>(dense.shape[d], 1);
      }
      return copied(view, dense, plan.device_of(value));
    };
    for (const Plan::Output& output : plan.outputs) {
      if (output.same_as_input >= 0) {  // written in place, or handed through
        made[c].push_back(in_place(output.same_as_input, *inputs[output.same_as_input].view));
        continue;
      }
      made[c].push_back(value_of(output.value));
    }
    for (int32_t value : call.temporaries) made[c].push_back(value_of(value));
    for (int32_t finished : done[c]) made[finished].clear();
  }

  std::vector<Storage*> handed_out;
  for (size_t i : escaping) {
    DeferredTensor& deferred = deferred_[i];
    Made& result = made[deferred.value.index][deferred.value.output];
    Storage* storage = result.storage.get();
    const View &have = result.view, &want = deferred.view;
    bool same = have.ndim == want.ndim && storage && storage->data() == have.data &&
                storage->bytes() == deferred.storage->bytes();
    for (int d = 0; same && d < have.ndim; ++d)
      same = have.shape[d] == want.shape[d] && have.strides[d] == want.strides[d];
    if (same && std::find(handed_out.begin(), handed_out.end(), storage) == handed_out.end()) {
      handed_out.push_back(storage);
      deferred.storage->fulfil(*storage);
      continue;
    }
    Made own = copied(have, want, deferred.storage->device());
    deferred.storage->fulfil(*own.storage);
  }
}

}  // namespace tandem
