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

    def place(self, module: Module, mesh: Mesh):
        raise NotImplementedError

    def apply(self, module: Module, mesh: Mesh) -> Module:
        self.place(module, mesh)
        distribute_module(module, mesh)
        module.register_forward_pre_hook(lambda m, inputs: (self.incoming(inputs[0], mesh), *inputs[1:]))
        module.register_forward_hook(lambda m, inputs, outputs: self.outgoing(outputs, mesh))
        return module

    def incoming(self, x, mesh: Mesh):
        if parts_of(x) is None:
            x = from_local(x, mesh, _of(self.input_layouts, mesh, x))
        return (
            x if self.desired_input_layouts is None else redistribute(x, mesh, _of(self.desired_input_layouts, mesh, x))
        )

    def outgoing(self, y, mesh: Mesh):
        if self.output_layouts is not None and parts_of(y) is not None:
            y = redistribute(y, mesh, _of(self.output_layouts, mesh, y))
            if self.use_local_output:
                return _to_local(y, _of(self.output_layouts, mesh, y))
        return y


def _of(layout: Placement | None, mesh: Mesh, x):
    return as_placements([layout or Replicate()] * mesh.ndim, mesh, x.ndim, "parallelize_module")


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

    def place(self, module, mesh):
        for name, axis in _axes(self._table, module, type(self).__name__).items():
            _place_parameter(module, name, mesh, [Replicate() if axis is None else Shard(axis)] * mesh.ndim)


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

    def incoming(self, x, mesh):
        linear = x.dtype.is_floating
        self.input_layouts = self.input_layouts or (Shard(-1) if linear else Replicate())
        self.desired_input_layouts = Shard(-1) if linear else Replicate()
        return super().incoming(x, mesh)


class SequenceParallel(ParallelStyle):
    """A layer that treats every position alike (LayerNorm, Dropout), on inputs (batch, positions, ...) divided by positions."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False):
        self.input_layouts = self.desired_input_layouts = self.output_layouts = Shard(sequence_dim)
        self.use_local_output = use_local_output

    def place(self, module, mesh):
        pass  # parameters are on all ranks


class PrepareModuleInput(ParallelStyle):
    """What comes into a module, brought to desired_input_layouts; one placement, or one for each argument (None: left alone)."""

    def __init__(self, *, input_layouts=None, desired_input_layouts=None, use_local_output: bool = False):
        self.layouts = [p if isinstance(p, (list, tuple)) else [p] for p in (input_layouts, desired_input_layouts)]

    def apply(self, module, mesh):
        def prepare(m, inputs):
            made = list(inputs)
            for i, (given, wanted) in enumerate(zip(*self.layouts, strict=True)):
                if given is None and wanted is None:
                    continue
                x = made[i] if parts_of(made[i]) is not None else from_local(made[i], mesh, _of(given, mesh, made[i]))
                made[i] = redistribute(x, mesh, _of(wanted, mesh, x))
            return tuple(made)

        module.register_forward_pre_hook(prepare)
        return module


class PrepareModuleOutput(ParallelStyle):
    """What a module gives, brought to desired_output_layouts."""

    def __init__(self, *, output_layouts=None, desired_output_layouts=None, use_local_output: bool = False):
        self.input_layouts, self.output_layouts = output_layouts, desired_output_layouts
        self.use_local_output = use_local_output

    def apply(self, module, mesh):
        def prepare(m, inputs, y):
            y = y if parts_of(y) is not None else from_local(y, mesh, _of(self.input_layouts, mesh, y))
            return self.outgoing(y, mesh)

        module.register_forward_hook(prepare)
        return module


def parallelize_module(module: Module, device_mesh: Mesh, parallelize_plan, *, src_data_rank: int | None = 0) -> Module:
    """Divides the layers of a module among the ranks of a mesh with one axis, in place: {name: style}, or one style for the module.
    Names may have `*`. Parameters that no style names are replicated.

    >>> td.distributed.init_process_group()
    >>> mesh = td.distributed.Mesh(1, "model")
    >>> mlp = td.nn.Sequential(td.nn.Linear(4, 8), td.nn.ReLU(), td.nn.Linear(8, 4))
    >>> plan = {"0": td.distributed.ColwiseParallel(), "2": td.distributed.RowwiseParallel()}
    >>> _ = td.distributed.parallelize_module(mlp, mesh, plan)
    >>> mlp[0].weight.placements, mlp[2].weight.placements
    ((Shard(0),), (Shard(1),))
    >>> td.distributed.destroy_process_group()
    """
    if device_mesh.ndim != 1:
        raise ValueRangeError(
            "parallelize_module", f"{device_mesh!r} has {device_mesh.ndim} axes", fix='give one of them: mesh["model"]'
        )
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
            style.apply(modules[name], device_mesh)
    return distribute_module(module, device_mesh)
