"""Which values of a graph get memory: what somebody asks for, what many read, and what costs more to compute again than to keep."""

from __future__ import annotations

from tandem.codegen.buffer import is_one, same
from tandem.codegen.costs import hinted_size
from tandem.codegen.target import Target
from tandem.graph.ir import Graph, Value
from tandem.ops.arithmetic import Cast
from tandem.ops.complexes import AsComplex, AsReal
from tandem.ops.create import Constant, Iota, RandomBits, Size
from tandem.ops.define import Elementwise, Input, LibraryOp, Movement
from tandem.ops.index import Gather
from tandem.ops.movement import Embed, Expand, Permute, Reshape, Slice
from tandem.ops.reduce import Reduce

LARGE = 1 << 20  # elements
INLINE_NODES = 200  # longest chain of operators computed without a compute in between


class Kept:
    """`nodes` that are needed, in order; `users` of each value; values that are `forced` into memory because somebody outside or a
    library call reads them, `mutated` ones that become an input's contents, and `kept` ones, which some kernel computes."""

    def __init__(self, graph: Graph, saved, target: Target, exact_views: bool = False, in_pieces: bool = False):
        self.graph = graph
        self.target = target
        self.exact_views = exact_views
        self.in_pieces = in_pieces
        self.resolve = _Resolver(graph.symbols)
        self._shapes: dict[Value, tuple] = {}
        self._reads: dict[Value, int] = {}
        self._analyse(saved)

    def shape_of(self, value: Value) -> tuple:
        found = self._shapes.get(value)
        if found is None:
            found = self._shapes[value] = tuple([self.resolve(d) for d in value.type.shape])
        return found

    def _analyse(self, saved):
        graph = self.graph
        self.forced: set[Value] = {*graph.outputs, *saved}
        self.mutated: set[Value] = {v for _, v in graph.mutations}
        self.looks = _looks_at_inputs(graph) if self.exact_views else ()
        live = {v.node for v in self.forced | self.mutated} | {n for n in graph.nodes if n.op.effect or n.op.stays}
        self.users: dict[Value, list] = {}
        self.waits = False  # whether any node has control inputs
        nodes = []
        for node in reversed(graph.nodes):
            if node not in live:
                continue
            nodes.append(node)
            op = node.op
            for v in node.outputs:
                self._reads[v] = self._readers(v)
            for v in node.inputs:
                live.add(v.node)
                self.users.setdefault(v, []).append(node)
            for n in node.control:  # what somebody waits for must run, though nobody may read it
                live.add(n)
                self.waits = True
                if not isinstance(n.op, (Input, Constant, Size, Iota)):
                    self.forced.update(n.outputs)
            if isinstance(op, LibraryOp):
                self.forced.update(node.inputs)
            elif isinstance(op, (Permute, Reshape, AsReal, AsComplex)) and (
                node.outputs[0] in self.forced or node.outputs[0] in self.mutated
            ):
                # the source is computed in its own order, and this is a view of it where strides allow
                self.forced.add(node.inputs[0])
        self.updates = self._only_for_updates(nodes) if self.in_pieces else set()
        nodes.reverse()
        self.nodes = nodes
        self.kept: set[Value] = set()
        self._along: set[Value] = set()  # those that kernels of reductions compute along the way
        lengths: dict[Value, int] = {}
        shared: list[Value] = []  # those that are kept because several read them
        for node in nodes:
            op = node.op
            value = node.outputs[0] if node.outputs else None
            if isinstance(op, (LibraryOp, Input)):
                continue
            lengths[value] = length = 1 + max([lengths.get(v, 0) for v in node.inputs], default=0)
            if isinstance(op, Reduce):
                keep = True
            elif isinstance(op, Movement) and not isinstance(op, Embed):
                keep = False
                if isinstance(op, Expand):
                    self._keep_if_costly(node.inputs[0])
            elif value in self.forced or value in self.mutated:
                keep = True
            elif isinstance(op, (Constant, Size, Iota)):
                keep = False
            else:
                keep = length > INLINE_NODES
                if isinstance(op, Gather):
                    self._keep_if_costly(node.inputs[0])
                    keep = keep or self._picks(node)
                if not keep and self._reads[value] > 1:
                    keep = not self._is_cheap(value)
                    if keep and self.target.keeps_derivatives:
                        shared.append(value)
                    if keep and self.target.keeps_narrow and self._narrower(value):
                        keep = False
            if keep:
                self.kept.add(value)
                lengths[value] = 0
        for value in shared:
            self._keep_what_it_becomes(value)

    def _readers(self, value: Value) -> int:
        """How often an element of value is read, about: by operators that rearrange it as often as their results are; different
        slices are taken to have nothing in common."""
        found, parts = 0, 0
        for node in self.users.get(value, ()):
            if isinstance(node.op, Slice):
                parts = max(parts, self._reads[node.outputs[0]])
            elif isinstance(node.op, (Reshape, Permute)):
                found += self._reads[node.outputs[0]]
            else:
                found += 1
        return found + parts

    def _keep_what_it_becomes(self, value: Value):
        """Keeps a derivative in place of what it is computed from. Where a shared value ends up in one other value that is made of
        the same tensor alone, such as gelu'(x) of the integral that gelu(x) needs too, that one is computed along with it: one
        tensor in memory instead of two."""
        sources = self._made_of(value)
        if len(sources) != 1 or not isinstance(next(iter(sources)).op, LibraryOp):
            return
        sources.add(value)
        ends, family, stack = [], {value}, [value]
        while stack and len(family) < INLINE_NODES:
            v = stack.pop()
            for node in self.users.get(v, ()):
                result = node.outputs[0] if isinstance(node.op, Elementwise) else None
                if result is None or not self._alike(result, value) or not self._made_of(result) <= sources:
                    ends.append(v)
                elif result not in family:
                    family.add(result)
                    stack.append(result)
        others = [v for v in dict.fromkeys(ends) if v not in self.forced and v not in self.mutated]
        if len(others) == 1 and others[0] is not value:
            self.kept.add(others[0])

    def _alike(self, a: Value, b: Value) -> bool:
        return len(a.type.shape) == len(b.type.shape) and all(map(same, self.shape_of(a), self.shape_of(b)))

    def _made_of(self, value: Value) -> set[Value]:
        """The large tensors in memory that value is computed from."""
        found, stack, seen = set(), list(value.node.inputs), set()
        size = hinted_size(self.shape_of(value))
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            if v in self.kept or isinstance(v.op, (Input, LibraryOp)) or v in self.forced:
                if 4 * hinted_size(self.shape_of(v)) >= size:
                    found.add(v)
            else:
                stack.extend(v.node.inputs)
        return found

    def _picks(self, node) -> bool:
        """Whether a program picks few elements of something large that others read too: done at once, and the memory is theirs."""
        if not self.target.picks_at_once or not self.in_pieces or len(self.users[node.inputs[0]]) < 2:
            return False
        source, picked = (hinted_size(self.shape_of(v)) for v in (node.inputs[0], node.outputs[0]))
        return source >= LARGE and picked <= source // 256

    def _only_for_updates(self, nodes) -> set[Value]:
        """Values that nothing but new contents of inputs is made of, and these; `nodes`: the last one first."""
        found: set[Value] = set()
        for node in nodes:
            for v in node.outputs:
                users = self.users.get(v, ())
                if v not in self.forced and (users or v in self.mutated):
                    if all(not isinstance(u.op, LibraryOp) and found.issuperset(u.outputs) for u in users):
                        found.add(v)
        return found

    def _keep_if_costly(self, value: Value):
        """value is about to be read many times per element."""
        while isinstance(value.op, Movement) and not isinstance(value.op, Embed) and value not in self.kept:
            value = value.node.inputs[0]
        if isinstance(value.op, (Elementwise, Gather, RandomBits)) and value not in self.kept:
            if all(is_one(d) for d in self.shape_of(value)):
                return
            if not self._is_cheap(value, reads=2):
                self.kept.add(value)
            elif self.target.keeps_along and self._follows_reduction(value):
                self.kept.add(value)
                self._along.add(value)

    def _follows_reduction(self, value: Value) -> bool:
        """Whether value is made of results of reductions and nothing larger: their kernel computes it along the way."""
        size, stack, seen = hinted_size(self.shape_of(value)), list(value.node.inputs), set()
        found = False
        while stack and len(seen) < INLINE_NODES:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            if v in self._along or (isinstance(v.op, Reduce) and hinted_size(self.shape_of(v)) == size):
                found = True
            elif isinstance(v.op, Reduce) or (v in self.kept and hinted_size(self.shape_of(v)) <= size):
                continue
            elif hinted_size(self.shape_of(v)) > size or not isinstance(
                v.op, (Elementwise, Movement, Constant, Size, Input)
            ):
                return False
            else:
                stack.extend(v.node.inputs)
        return found

    def _narrower(self, value: Value) -> bool:
        """Keeps the 16-bit numbers that value is a wider form of, if it is one: half the memory."""
        op = value.op
        if not isinstance(op, Cast) or value.node.inputs[0].dtype.itemsize >= op.dtype.itemsize:
            return False
        source = value.node.inputs[0]
        if isinstance(source.op, (Elementwise, Gather)):
            self.kept.add(source)
        return isinstance(source.op, (Elementwise, Gather, Input, LibraryOp)) or source in self.kept

    def _is_cheap(self, value: Value, reads: int = 1) -> bool:
        return self.target.is_cheap(self, value, reads)


class _Resolver:
    """symbols.resolve with a memory."""

    def __init__(self, symbols):
        self._symbols = symbols
        self._known: dict = {}

    def __call__(self, d):
        if type(d) is int:
            return d
        found = self._known.get(d)
        if found is None:
            found = self._known[d] = self._symbols.resolve(d)
        return found

    def forget(self):
        """More has been learned."""
        self._known.clear()


def _looks_at_inputs(graph: Graph) -> set[Value]:
    """Outputs that only rearrange an input, and what lies between."""
    found: set[Value] = set()
    for value in graph.outputs:
        chain = []
        while value is not None and isinstance(value.op, Movement) and not isinstance(value.op, Embed):
            chain.append(value)
            value = value.node.inputs[0]
        if value is not None and isinstance(value.op, Input):
            found.update(chain)
    return found
