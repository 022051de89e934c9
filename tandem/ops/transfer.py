"""Moving a tensor between devices, as an operator: programs are cut where it stands (graph/partition.py)."""

from __future__ import annotations

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
