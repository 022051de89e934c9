"""Moving a tensor between devices, as an operator: programs are cut where it stands (graph/partition.py)."""

from __future__ import annotations

from tandem import _runtime
from tandem.devices import DEVICES
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.define import Op, op, register


@register
class Transfer(Op):
    """The same elements on another device. `source`: the device of its operand, where gradients go."""

    name = "transfer"
    batching = "leading"
    holomorphic = False
    takes = "?[*s]"
    device: str
    source: str

    def infer(self, x: Type) -> Type:
        return x

    def rule(self, x: Type):
        rules.allowed(self, self.device and self.source, f"it goes from {self.source!r} to {self.device!r}")

    def grad(self, g, x):
        return Transfer(self.source, self.device)(g)


@op(internal=True)
def transfer(x: Tensor, device: str, source: str):
    """x on another device; `source` is the one that it is on."""
    return Transfer(device, source)(x)


_NAMES = [str(device) for device in DEVICES]


def moved(x, code: int, non_blocking: bool = False):
    """x on the device of this number: an operator where somebody records or captures it, or td.autobatch may join it with others,
    and else a copy at once."""
    source = _runtime.device_index(x)
    if code == source:
        return x
    joined = _runtime.batching() and not source
    if joined or _runtime.capturing() or (x.requires_grad and _runtime.grad_enabled()):
        return transfer(x, _NAMES[code], _NAMES[source])
    return _runtime.move(x, code, non_blocking)
