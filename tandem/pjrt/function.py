"""td.compile(fn, device="pjrt:PLUGIN"): functions on the devices of a PJRT plugin."""

from __future__ import annotations

import functools

from tandem import _runtime
from tandem.errors import UnsupportedError
from tandem.export.stablehlo import stablehlo
from tandem.export.trace import to_numpy
from tandem.pjrt.client import Client, open_plugin
from tandem.tensors.constructors import asarray
from tandem.tree import unflatten


@functools.cache
def client_of(plugin: str) -> Client:
    return Client(open_plugin(plugin))


class PjrtFunction:
    """A function of tensors by position, compiled for every set of their types and sizes. Results are tensors on the CPU.

    Weights are sent when they are first used, and again when they have changed. Gradients are not recorded: what a function
    computes of them inside is part of its program.
    """

    def __init__(self, fn, plugin: str):
        self.fn, self.plugin = fn, plugin
        self._programs: dict = {}
        self._sent: dict = {}  # (tensor, version, buffer) by identity
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args, **kwargs):
        if kwargs:
            raise UnsupportedError("pjrt", f"arguments come by position, not by the names {sorted(kwargs)}")
        client = client_of(self.plugin)
        tensors = [a if isinstance(a, _runtime.Tensor) else asarray(a) for a in args]
        key = tuple((t.dtype, tuple(t.shape)) for t in tensors), getattr(self.fn, "training", None)
        if key not in self._programs:
            program = stablehlo(self.fn, tuple(tensors))
            self._programs[key] = client.compile(program.text), program
        executable, program = self._programs[key]
        given = [client.buffer(to_numpy(t), t.dtype.name) for t in tensors]
        given += [self._weight(client, t) for t in program.weights.values()]
        outputs = program.exported.graph.outputs
        found = [asarray(b.read(v.dtype.numpy), dtype=v.dtype) for b, v in zip(executable(given), outputs, strict=True)]
        return unflatten(program.exported.structure, found)

    def _weight(self, client: Client, t):
        known = self._sent.get(id(t))
        if known is None or known[0] is not t or known[1] != t._version:
            known = self._sent[id(t)] = (t, t._version, client.buffer(to_numpy(t), t.dtype.name))
        return known[2]


def compile_for(fn, device: str) -> PjrtFunction:
    """fn for a device "pjrt:PLUGIN", where PLUGIN is a path or a name that `open_plugin` knows."""
    return PjrtFunction(fn, device.removeprefix("pjrt:"))
