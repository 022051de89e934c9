"""What fusion works with: computes, the groups they form, and what an operator costs."""

from __future__ import annotations

from tandem.codegen.buffer import Buffer
from tandem.codegen.expr import ScalarBuilder, compute_dtype
from tandem.codegen.loops import expression_cost
from tandem.graph.ir import Value

LONG = 1 << 40  # a loop over more than any tensor has


class Compute:
    """A value that some kernel produces."""

    __slots__ = ("axes", "axis_of", "domain", "group", "node", "order", "partial_of", "parts", "parts_order", "reads",
                 "reduced", "role", "run", "stored", "targets", "uncounted", "unit", "units", "value",
                 "_weight")  # fmt: skip

    def __init__(self, value: Value, axes: tuple[int, ...], domain: tuple, reads: list, weight: float, nodes: list):
        self.value = value
        self.node = value.node
        self.axes = axes  # axes of the iteration space that are not of size 1
        self.domain = domain  # their sizes
        self.reads = reads  # [(value in memory, axis map or None)], see _Walk
        self.reduced: frozenset = frozenset()
        self._weight = weight
        self.uncounted = nodes  # operators whose cost is not in _weight yet: many are never asked, and bodies are long
        self.order: tuple = ()  # `axes`, from the slowest to the fastest in memory
        self.unit = None  # axis along which most of what is read lies in memory
        self.units: frozenset = frozenset()  # and those of all large tensors, where the target keeps them apart
        self.run: int = LONG  # elements of the innermost loop, where the target minds short ones
        self.group: Group | None = None
        self.role = "full"  # or "kept", "reduce", "partial", "combine"
        self.axis_of: dict[int, int] = {}  # own axis -> axis of the group
        self.stored = False
        self.targets: list[Buffer] = []  # memory of mutated inputs that takes the value as well
        self.parts: Buffer | None = None  # role "partial": where its partial results go
        self.parts_order: tuple = ()  # and the kept axes they lie along
        self.partial_of: Compute | None = None  # role "combine": the partial results it combines

    @property
    def weight(self) -> float:
        """Cost of an element."""
        while self.uncounted:
            self._weight += operator_cost(self.uncounted.pop())
        return self._weight

    def __repr__(self):
        return f"<{self.role} {self.value.op.name} {list(self.domain)} reduced {sorted(self.reduced)}>"


class Group:
    __slots__ = ("_cost", "domain", "key", "kind", "members", "node", "order", "parts_of", "position", "reads", "reduced",
                 "run", "split", "uncounted", "unit", "units")  # fmt: skip

    def __init__(self, kind: str, position: int, domain=(), key=None, reduced=frozenset(), node=None):
        self.kind = kind
        self.position = position
        self.domain = domain
        self.key = key  # what another compute's domain must equal to run over the same points
        self.reduced = reduced
        self.node = node
        self.members: list[Compute] = []
        self.order: tuple = ()
        self.reads: set[Value] = set()
        self._cost = 0.0
        self.uncounted: list[Compute] = []  # whose cost is not in _cost yet
        self.split = False
        self.unit: int | None = None
        self.units: frozenset = frozenset()  # of what its members read, as its own axes
        self.run: int = LONG  # of its innermost loop
        self.parts_of: Group | None = None

    @property
    def cost(self) -> float:
        while self.uncounted:
            self._cost += self.uncounted.pop().weight
        return self._cost

    @property
    def kept(self) -> list[int]:
        return [a for a in range(len(self.domain)) if a not in self.reduced]


_op_costs: dict = {}


def operator_cost(node, approximates: bool = False) -> float:
    """Cost units of one element of an elementwise operator; `approximates`: on a device that does (ScalarBuilder)."""
    key = (approximates, node.op, *(v.type.dtype for v in node.inputs))
    found = _op_costs.get(key)
    if found is None:
        b = ScalarBuilder()
        b.approximates = approximates
        leaves = [b.make("var", (), compute_dtype(v.type.dtype), i) for i, v in enumerate(node.inputs)]
        result = node.op.body(b, *leaves)
        found = _op_costs[key] = expression_cost([result]) if hasattr(result, "op") else 0.0
    return found
