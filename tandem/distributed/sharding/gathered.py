"""Whole parameters of fully sharded modules: gathered for forward, let go, and gathered again where backward reads them."""

from __future__ import annotations

from tandem import _runtime
from tandem.autograd.modes import enable_grad, no_grad
from tandem.distributed.sharding.layout import Placements
from tandem.distributed.sharding.moved import moved
from tandem.distributed.sharding.parts import Parts, need_parts
from tandem.distributed.sharding.tensor import _placed


class GatheredParts(Parts):
    """Parts of a tensor that another one can be gathered to again, so that they need not be kept."""

    def __init__(self, source: Parts, placements: Placements, shape, tag: int):
        self._source, self._shape, self._kept, self._tag = source, tuple(shape), None, tag
        self.mesh, self.placements = source.mesh, placements

    @property
    def local(self):
        if self._kept is None:
            source = self._source
            self._kept = moved(source.local, self.mesh, self._shape, source.placements, self.placements, self._tag)
        return self._kept

    @local.setter
    def local(self, value):
        self._kept = value

    def release(self):
        """Lets the elements go until somebody asks for them."""
        self._kept = None


def gathered(parameter, placements: Placements, tag: int):
    """(The parameter under these placements, what to release after forward). Its gradient comes back reduced and divided. tag: of
    the collectives that move it (Note [Tags] in ops/collective.py)."""
    source = need_parts(parameter, "fully_shard")
    parts = GatheredParts(Parts(source.mesh, source.placements, source.local), placements, parameter.shape, tag)
    device = 0 if parameter.device == "cpu" else parameter.device.index + 1
    made = _runtime.make_sharded(parts, tuple(parameter.shape), parameter.dtype, device)
    if parameter.requires_grad and _runtime.grad_enabled():
        back = source.placements

        def backward(create_graph, g):
            with enable_grad() if create_graph else no_grad():
                return g if need_parts(g, "fully_shard").placements == back else _placed(g, source.mesh, back, tag=tag)

        _runtime.record_python(backward, "gather", [parameter], [made])
    return made, parts
