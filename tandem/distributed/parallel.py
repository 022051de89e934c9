"""Parallel layers as choices of placements: parallelize_module and its styles.

A style places the parameters of a module, and says how its input and its result lie. The module stays what it is, with parameters
of the same names and shapes: they are sharded tensors now.
"""

from __future__ import annotations

import fnmatch

from tandem import _runtime, nn
from tandem.autograd.modes import no_grad
from tandem.distributed.sharding.mesh import Mesh
from tandem.distributed.sharding.parts import parts_of
from tandem.distributed.sharding.placements import Placement, Replicate, Shard, as_placements
from tandem.distributed.sharding.tensor import _to_local, distribute_tensor, from_local, redistribute
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.nn.module import Module

_BY_COLUMNS = {  # kind of layer -> the axis of each parameter that belongs to results
    nn.Linear: {"weight": 0, "bias": 0},
    nn.Embedding: {"weight": 1},
}
_BY_ROWS = {nn.Linear: {"weight": 1, "bias": None}, nn.Embedding: {"weight": 0}}


def _place_parameter(module: Module, name: str, mesh: Mesh, placements):
    """The parameter stays the same object, for whoever holds it: optimisers, and modules that share it."""
    p = module._parameters.get(name)
    if p is None or parts_of(p) is not None:
        return
    with no_grad():
        _runtime.set_data(p, distribute_tensor(p.detach(), mesh, placements))


def distribute_module(module: Module, device_mesh: Mesh, partition_fn=None, input_fn=None, output_fn=None) -> Module:
    """Makes all parameters and buffers of a module sharded tensors: as partition_fn(name, module, mesh) does it, or replicated.

    input_fn(module, inputs, mesh) and output_fn(module, outputs, mesh) are applied to what goes in and comes out.
    """
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, device_mesh)
        for key, p in list(part._parameters.items()):
            if p is not None and parts_of(p) is None:
                _place_parameter(part, key, device_mesh, None)
        for b in list(part._buffers.values()):
            if b is not None and parts_of(b) is None:
                _runtime.set_data(b, distribute_tensor(b, device_mesh))
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, device_mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, outputs: output_fn(m, outputs, device_mesh))
    return module


class ParallelStyle:
    """How a module is divided. Subclasses say how parameters, inputs and results lie."""

    input_layouts: Placement | None = None  # of a plain tensor that comes in
    desired_input_layouts: Placement | None = None
    output_layouts: Placement | None = None
    use_local_output = False

    def place(self, module: Module, mesh: Mesh, axis: int):
        raise NotImplementedError

    def apply(self, module: Module, mesh: Mesh, axis: int = 0) -> Module:
        """Divides a module along an axis of the mesh, in place."""
        self.place(module, mesh, axis)
        distribute_module(module, mesh)
        module.register_forward_pre_hook(lambda m, inputs: (self.incoming(inputs[0], mesh, axis), *inputs[1:]))
        module.register_forward_hook(lambda m, inputs, outputs: self.outgoing(outputs, mesh, axis))
        return module

    def incoming(self, x, mesh: Mesh, axis: int):
        if parts_of(x) is None:
            x = from_local(x, mesh, _of(self.input_layouts, mesh, axis, x))
        return (
            x
            if self.desired_input_layouts is None
            else redistribute(x, mesh, _of(self.desired_input_layouts, mesh, axis, x))
        )

    def outgoing(self, y, mesh: Mesh, axis: int):
        if self.output_layouts is not None and parts_of(y) is not None:
            y = redistribute(y, mesh, _of(self.output_layouts, mesh, axis, y))
            if self.use_local_output:
                return _to_local(y, _of(self.output_layouts, mesh, axis, y))
        return y


def _of(layout: Placement | None, mesh: Mesh, axis: int, x) -> list[Placement]:
    """The placements of x with this one along an axis of the mesh."""
    parts = parts_of(x)
    made = [Replicate()] * mesh.ndim if parts is None else list(parts.placements)
    made[axis] = layout or Replicate()
    return as_placements(made, mesh, x.ndim, "parallelize_module")


def _along(placement: Placement, mesh: Mesh, axis: int) -> list[Placement]:
    return [placement if m == axis else Replicate() for m in range(mesh.ndim)]


def _axes(table: dict, module: Module, style: str) -> dict:
    for kind, axes in table.items():
        if isinstance(module, kind):
            return axes
    raise UnsupportedError(
        style, f"a {type(module).__name__} is not divided this way; {', '.join(k.__name__ for k in table)} are",
        fix="use distribute_module(module, mesh, partition_fn)",
    )  # fmt: skip


class ColwiseParallel(ParallelStyle):
    """A linear layer, or an embedding, whose results are divided along their last axis. Its input is whole."""

    _table = _BY_COLUMNS

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = False):  # fmt: skip
        self.input_layouts = input_layouts or Replicate()
        self.desired_input_layouts = Replicate()
        self.output_layouts = output_layouts or Shard(-1)
        self.use_local_output = use_local_output

    def place(self, module, mesh, axis):
        for name, dim in _axes(self._table, module, type(self).__name__).items():
            _place_parameter(module, name, mesh, _along(Replicate() if dim is None else Shard(dim), mesh, axis))


class RowwiseParallel(ColwiseParallel):
    """A linear layer whose input is divided along its last axis, or an embedding whose table is divided by its rows. Results are
    sums over ranks: an all-reduce, or a reduce-scatter where output_layouts is Shard(1)."""

    _table = _BY_ROWS

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = False):  # fmt: skip
        self.input_layouts = input_layouts
        self.desired_input_layouts = None
        self.output_layouts = output_layouts or Replicate()
        self.use_local_output = use_local_output

    def incoming(self, x, mesh, axis):
        linear = x.dtype.is_floating
        self.input_layouts = self.input_layouts or (Shard(-1) if linear else Replicate())
        self.desired_input_layouts = Shard(-1) if linear else Replicate()
        return super().incoming(x, mesh, axis)


class SequenceParallel(ParallelStyle):
    """A layer that treats every position alike (LayerNorm, Dropout), on inputs (batch, positions, ...) divided by positions."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False):
        self.input_layouts = self.desired_input_layouts = self.output_layouts = Shard(sequence_dim)
        self.use_local_output = use_local_output

    def place(self, module, mesh, axis):
        pass  # parameters are on all ranks


class PrepareModuleInput(ParallelStyle):
    """What comes into a module, brought to desired_input_layouts; one placement, or one for each argument (None: left alone)."""

    def __init__(self, *, input_layouts=None, desired_input_layouts=None, use_local_output: bool = False):
        self.layouts = [p if isinstance(p, (list, tuple)) else [p] for p in (input_layouts, desired_input_layouts)]

    def apply(self, module, mesh, axis=0):
        def prepare(m, inputs):
            made = list(inputs)
            for i, (given, wanted) in enumerate(zip(*self.layouts, strict=True)):
                if given is None and wanted is None:
                    continue
                x = (
                    made[i]
                    if parts_of(made[i]) is not None
                    else from_local(made[i], mesh, _of(given, mesh, axis, made[i]))
                )
                made[i] = redistribute(x, mesh, _of(wanted, mesh, axis, x))
            return tuple(made)

        module.register_forward_pre_hook(prepare)
        return module


class PrepareModuleOutput(ParallelStyle):
    """What a module gives, brought to desired_output_layouts."""

    def __init__(self, *, output_layouts=None, desired_output_layouts=None, use_local_output: bool = False):
        self.input_layouts, self.output_layouts = output_layouts, desired_output_layouts
        self.use_local_output = use_local_output

    def apply(self, module, mesh, axis=0):
        def prepare(m, inputs, y):
            y = y if parts_of(y) is not None else from_local(y, mesh, _of(self.input_layouts, mesh, axis, y))
            return self.outgoing(y, mesh, axis)

        module.register_forward_hook(prepare)
        return module


def parallelize_module(
    module: Module, device_mesh: Mesh, parallelize_plan, *, axis=None, src_data_rank: int | None = 0
) -> Module:
    """Divides the layers of a module among the ranks along an axis of a mesh, in place: {name: style}, or one style for the module.
    Names may have `*`. Parameters that no style names are replicated.

    axis: of the mesh, by name or number; its only one, or "model", unless given

    >>> td.distributed.init_process_group()
    >>> mesh = td.distributed.Mesh(1, "model")
    >>> mlp = td.nn.Sequential(td.nn.Linear(4, 8), td.nn.ReLU(), td.nn.Linear(8, 4))
    >>> plan = {"0": td.distributed.ColwiseParallel(), "2": td.distributed.RowwiseParallel()}
    >>> _ = td.distributed.parallelize_module(mlp, mesh, plan)
    >>> mlp[0].weight.placements, mlp[2].weight.placements
    ((Shard(0),), (Shard(1),))
    >>> td.distributed.destroy_process_group()
    """
    if axis is None:
        if device_mesh.ndim > 1 and "model" not in device_mesh.axis_names:
            raise ValueRangeError(
                "parallelize_module", f"{device_mesh!r} has {device_mesh.ndim} axes", fix="say which one: axis=..."
            )
        axis = 0 if device_mesh.ndim == 1 else "model"
    number = device_mesh.axis(axis, "parallelize_module")
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan = {"": parallelize_plan}
    modules = dict(module.named_modules())
    for pattern, style in parallelize_plan.items():
        found = [name for name in modules if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            raise ValueRangeError(
                "parallelize_module", f"the module has no {pattern!r}; it has {sorted(modules)[1:20]}"
            )
        for name in found:
            style.apply(modules[name], device_mesh, number)
    return distribute_module(module, device_mesh)
