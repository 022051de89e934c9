"""What lower layers ask of upper ones: functions that `tandem/connect.py` provides when the package is imported.

A graph can run itself, which takes all that compiles; a tensor can become sparse, which takes the folder of sparse tensors. The
graph and the tensor are below those, and import none of them: they call the function of that name here.
"""

from __future__ import annotations

from collections.abc import Callable


def _absent(*args, **kwargs):
    raise RuntimeError("tandem is imported in part only: import tandem first")


run_graph: Callable = _absent  # (graph, inputs, memory_budget) -> results; tandem/tracing/run_graph.py
graph_reports: Callable = _absent  # (graph) -> what running it compiled
read_deferred: Callable = _absent  # (text as JSON) -> deferred graph; tandem/session/serialize.py
compile_for: Callable = _absent  # (function, device) -> one that runs on an accelerator; tandem/pjrt
replayed_class: Callable = _absent  # () -> class of compiled functions that are replayed; tandem/replay
scalar_builder: Callable = _absent  # () -> (builder of scalar expressions, compute_dtype); tandem/codegen/expr.py
vjp: Callable = _absent  # (formula, inputs, grads) -> gradients of the inputs; tandem/autodiff/reverse.py
kernel_address: Callable = _absent  # (kernel) -> address of its machine code; tandem/codegen/compile.py
record_view: Callable = _absent  # (name, source, view): tandem/autograd/views.py
sparse_gather: Callable = _absent  # (x, axis, index) -> gather whose gradient is sparse; tandem/sparse/lookup.py
from_dense: Callable = _absent  # (x, sparse_dim, layout) -> sparse tensor; tandem/sparse/tensor.py
masked_by: Callable = _absent  # (x, mask) -> sparse tensor
share_memory: Callable = _absent  # (tensor) -> tensor in shared memory; tandem/multiprocessing
checkpoint: Callable = (
    _absent  # (function, *args) -> results that backward computes again; tandem/transforms/checkpoint.py
)
ranks_of: Callable = lambda group: (
    None
)  # (process group, None: all) -> (token, size); None where there is one rank, or it is not
# this one's group. tandem/distributed/group.py provides it when it is imported: without it there are no ranks
