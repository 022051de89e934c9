// Subclasses of Tensor that say by __torch_function__ what operators do: Note [Overrides] in tandem/torch/overrides.py.
#pragma once

namespace tandem {

extern bool tensors_override;                           // whether there is such a class
extern constinit thread_local bool overrides_disabled;  // while one of them computes its answer, and in backward

}  // namespace tandem
