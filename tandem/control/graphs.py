"""Control flow in deferred graphs: bodies are graphs of calls, recorded when the graph is built and traced at each new run.

A body's graph takes what it uses from around it as inputs (`lift`), so that only runs which need the loop read those, and gradients
find their way. Sizes that are unknown when the graph is built are unknown in the body too.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.control.regions import make_cond, make_scan, make_while
from tandem.errors import DTypeError, ShapeError, TandemError, UnsupportedError, ValueRangeError
from tandem.graph.ir import Origin, Type, Value, source_scope
from tandem.graph.substitution import substitute
from tandem.graph.symbolic import Sym
from tandem.ops.prepare import as_value
from tandem.session.bodies import BodyGraph, Recorded, record_body
from tandem.session.graph import Graph, Recorder, SymbolicTensor, infer
from tandem.session.nodes import Call, Fed, Step
from tandem.session.program import Order, draws_from_the_run, located
from tandem.session.unknown import show_shape, unknown_index
from tandem.session.wired import wire_while
from tandem.tensors.constructors import tensor
from tandem.tree import Structure, flatten, unflatten


class Bound:
    """A recorded body in a run (or while types are inferred)."""

    def __init__(self, body: Recorded, trace, consts: list[int] | None = None):
        self.body, self.outer, self.random = body, trace, body.random
        self.consts = body.consts if consts is None else consts

    def trace(self, inputs, consts, draws):
        body = self.body
        run = BodyTrace(self.outer, body.graph, draws)
        run.values.update(zip(body.arguments, inputs, strict=False))
        run.values.update(zip(body.graph.lifted.values(), (consts[i] for i in self.consts), strict=True))
        for node in body.graph.nodes:
            if not isinstance(node.op, Fed):
                run.step(node)
        return [run.values[r] for r in body.results]


class _Sizes(dict):
    def __init__(self, trace: BodyTrace):
        self.trace = trace

    def __missing__(self, index):
        kind, owner, *rest = self.trace.graph.symbols.origins[index]
        if kind == "axis":
            owner = self.trace.graph.lifted.get(owner, owner)
            if owner in self.trace.values:
                return self.trace.values[owner].shape[rest[0]]
        return self.trace.outer.sizes[index]


class _Own:
    """Random numbers with a seed of their own; iterations draw from it one after the other."""

    def __init__(self, seed: Value, draws):
        self.seed = F.Add()(seed, draws.seed)
        self.take = draws.take


class BodyTrace:
    """What each tensor of a body's graph is in the region being built."""

    def __init__(self, outer, graph: BodyGraph, draws):
        self.outer, self.graph, self.draws = outer, graph, draws
        self.values: dict[Value, Value] = {}
        self.sizes = _Sizes(self)
        self.order = Order(any(n.control for n in graph.nodes))

    def random_state(self, seed: Value | None):
        return self.draws if seed is None else _Own(seed, self.draws)

    def region_state(self, seeded: bool):
        return self.draws

    @staticmethod
    def is_variable(v) -> bool:
        return False

    def step(self, node):
        try:
            with source_scope(node.source and Origin(node.op.name, node.source, None)), self.order.of(node) as order:
                results = node.op.run(self, node, order.operands([self.values[v] for v in node.inputs]))
                if isinstance(node.op, Call):
                    results = [as_value(r) for r in results if r is not None]
        except TandemError as error:
            raise located(error, node) from None
        self.values.update(zip(node.outputs, results, strict=True))


class Control(Step):
    """A region of a deferred graph. The first `operands` of its inputs are its own, the others what its bodies lifted."""

    def __init__(self, name: str, bodies: list[Recorded], operands: int):
        super().__init__()
        self.name, self.bodies, self.operands = name, bodies, operands

    sizes = None  # a number of iterations that is given as a size

    def build(self, trace, bodies: list[Bound], operands: list, consts: list, generator) -> list[Value]:
        raise NotImplementedError

    def run(self, trace, node, operands):
        bound = [Bound(body, trace) for body in self.bodies]
        random = any(b.random for b in self.bodies)
        generator = trace.region_state(not draws_from_the_run(self)) if random else None
        return self.build(trace, bound, operands[: self.operands], operands[self.operands :], generator)


class Cond(Control):
    saved = ("name", "bodies", "operands")

    def build(self, trace, bodies, operands, consts, generator):
        return make_cond(bodies, operands[0], operands[1:], consts, generator)


class Scan(Control):
    """carry: how many of the operands are carried on; the others are rows. length: of a scan without rows."""

    saved = ("name", "bodies", "operands", "carry", "length", "reverse")

    def __init__(self, name: str, bodies: list[Recorded], operands: int, carry: int, length, reverse: bool):
        super().__init__(name, bodies, operands)
        self.carry, self.length, self.reverse = carry, length, reverse
        self.sizes = length

    def build(self, trace, bodies, operands, consts, generator):
        xs = operands[self.carry :]
        length = steps = substitute(self.length, trace.sizes)
        if xs:
            steps = xs[0].shape[0]
            if any(x.shape[0] != steps for x in xs[1:]) or (isinstance(length, int) and steps != length):
                raise ShapeError(self.name, f"xs have lengths {[x.shape[0] for x in xs]}; they must be the same")
        return make_scan(bodies[0], operands[: self.carry], xs, consts, steps, self.reverse, generator)


class While(Control):
    """most: the number of iterations after which it ends in any case."""

    saved = ("name", "bodies", "operands", "most")

    def __init__(self, name: str, bodies: list[Recorded], operands: int, most):
        super().__init__(name, bodies, operands)
        self.most = self.sizes = most

    def build(self, trace, bodies, operands, consts, generator):
        return make_while(*bodies, operands, consts, substitute(self.most, trace.sizes), generator)


def add_region(recorder: Recorder, op: Control, operands: list) -> list[SymbolicTensor]:
    graph, bodies = recorder.graph, op.bodies
    consts = list(dict.fromkeys(v for body in bodies for v in body.graph.lifted))
    for body in bodies:
        body.consts = [consts.index(v) for v in body.graph.lifted]
    if isinstance(graph, BodyGraph) and any(b.random for b in bodies):
        graph.random = True
    # A run must know the sizes that the loop asks for: tensors that have them come in too.
    measured = [v for v in recorder._measured(op.sizes) if v not in operands and v not in consts]
    inputs = [*operands, *consts, *measured]
    types = infer(graph, lambda trace, values: op.run(trace, None, values), inputs)
    return list(graph.add_node(op, inputs, types, op.name).outputs)


def _operands(recorder: Recorder, values) -> tuple[list, Structure]:
    leaves, structure = flatten(values)
    return [recorder._operand(leaf) for leaf in leaves], structure


def _one(name: str, predicate):
    """What decides a branch or a loop: one element, as far as its size is known."""
    if isinstance(predicate, (SymbolicTensor, _runtime.Tensor)):
        known = [d for d in predicate.shape if isinstance(d, int)]
        if any(d != 1 for d in known):
            raise ShapeError(
                name,
                f"the predicate has shape {show_shape(predicate.shape)}; it must have one element",
                fix="use .any() or .all()",
            )
    return F.reshape(predicate, ())


def record_cond(recorder: Recorder, name: str, index, functions, args):
    if isinstance(index, (bool, int)):
        return functions[int(index)](*args)
    with recorder.graph:
        index = _one(name, recorder._operand(index))
        if name != "cond":
            index = index.astype(dtypes.int64)
        elif index.dtype is not dtypes.bool_:
            index = index != 0
    leaves, structure = flatten(args)
    dynamic = [isinstance(leaf, (Value, _runtime.Tensor)) for leaf in leaves]
    operands = [recorder._operand(leaf) for leaf, d in zip(leaves, dynamic, strict=True) if d]

    def body(fn):
        def run(*values):
            given = iter(values)
            return fn(
                *unflatten(structure, [next(given) if d else leaf for leaf, d in zip(leaves, dynamic, strict=True)])
            )

        return run

    bodies = [
        record_body(recorder.graph, f"branch_{i}", [v.type for v in operands], body(fn))
        for i, fn in enumerate(functions)
    ]
    names = ["false_fn", "true_fn"] if name == "cond" else [f"branch {i}" for i in range(len(bodies))]
    for what, other in zip(names[1:], bodies[1:], strict=True):
        _same_results(name, names[0], bodies[0], what, other)
    results = add_region(recorder, Cond(name, bodies, 1 + len(operands)), [index, *operands])
    return unflatten(bodies[0].structure, results)


def _same_results(name, first, a: Recorded, second, b: Recorded):
    if a.structure != b.structure:
        raise ShapeError(
            name, f"{first} gives {a.structure!r} and {second} gives {b.structure!r}; the containers must be the same"
        )
    for path, x, y in zip(a.structure.paths(), a.results, b.results, strict=True):
        if not _fits(x, y) or x.dtype is not y.dtype:
            error = DTypeError if _fits(x, y) else ShapeError
            raise error(
                name,
                f"result{path} is {_show(x)} from {first} and {_show(y)} from {second}; all branches must give the same",
            )


def _fits(a, b) -> bool:
    return a.ndim == b.ndim and all(
        isinstance(m, Sym) or isinstance(n, Sym) or m == n for m, n in zip(a.type.shape, b.type.shape, strict=True)
    )


def _show(x) -> str:
    return f"{x.dtype} {show_shape(x.type.shape)}"


def _check_carry(name: str, what: str, before: list, after: list, old: Structure, new: Structure):
    if old != new:
        raise ShapeError(
            name, f"{what} were {old!r} before the body and are {new!r} after it; the containers must be the same"
        )
    for path, a, b in zip(old.paths(), before, after, strict=True):
        if not _fits(a, b) or a.dtype is not b.dtype:
            error, rule = (ShapeError, "shape") if not _fits(a, b) else (DTypeError, "dtype")
            raise error(
                name,
                f"{what}{path} is {_show(a)} before an iteration and {_show(b)} after it; its {rule} must stay the same",
            )


def record_scan(recorder: Recorder, name: str, f, init, xs, length, reverse: bool, indexed=None):
    """indexed(position, carry) -> carry in place of f."""
    carry, structure = _operands(recorder, init)
    rows, row_structure = _operands(recorder, xs)
    known = length
    for x, path in zip(rows, row_structure.paths(), strict=True):
        n = x.type.shape[0] if x.ndim else None
        if n is None:
            raise ShapeError(name, f"xs{path} has no axis to go along; it is 0-d")
        if isinstance(n, int) and isinstance(known, int) and n != known:
            raise ShapeError(name, f"xs{path} has length {n}, but {known} steps are to be made")
        known = n if known is None or isinstance(known, Sym) else known
    if known is None:
        raise ValueRangeError(name, "there are no xs, so the number of steps is not known", fix="pass length=")
    ys_structure = after_structure = None

    def body(*values):
        nonlocal ys_structure, after_structure
        at = len(carry)
        before = unflatten(structure, values[:at])
        if indexed is not None:
            result = indexed(values[-1], before), None
        else:
            result = f(before, unflatten(row_structure, values[at:-1]))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise ShapeError(
                name, "the function must give a pair: what is carried on, and what this step adds to the results"
            )
        after, after_structure = flatten(result[0])
        y, ys_structure = flatten(result[1])
        return [*after, *y]

    types = [*(v.type for v in carry), *(Type(v.dtype, v.type.shape[1:]) for v in rows), Type(dtypes.int64, ())]
    recorded = record_body(recorder.graph, name, types, body)
    _check_carry(name, "carry", carry, recorded.results[: len(carry)], structure, after_structure)

    if not recorded.results:
        return unflatten(structure, []), unflatten(ys_structure, [])
    op = Scan(name, [recorded], len(carry) + len(rows), len(carry), length, reverse)
    results = add_region(recorder, op, [*carry, *rows])
    return unflatten(structure, results[: len(carry)]), unflatten(ys_structure, results[len(carry) :])


def record_while(recorder: Recorder, test, body, init, most, vary: bool):
    name = "while_loop"
    if vary:
        return _record_varying(recorder, test, body, init, most)
    variables, structure = _operands(recorder, init)
    if not variables:
        raise ValueRangeError(name, "there are no variables, so the loop could not end")
    types = [*(v.type for v in variables), Type(dtypes.int64, ())]

    def condition(*values):
        result = test(unflatten(structure, values[:-1]))
        return _one(name, result).astype(dtypes.bool_)

    cond = record_body(recorder.graph, f"{name}_cond", types, condition)
    once = record_body(recorder.graph, name, types, lambda *values: body(unflatten(structure, values[:-1])))
    _check_carry(name, "variable", variables, once.results, structure, once.structure)
    results = add_region(recorder, While(name, [cond, once], len(variables), most), variables)
    return unflatten(structure, results)


def _record_varying(recorder: Recorder, test, body, init, most):
    """A loop whose variables may change their sizes, wired from primitives: only the tagged executor asks for sizes as it goes."""
    name = "while_loop"
    graph = recorder.graph
    if isinstance(graph, BodyGraph):
        raise UnsupportedError(name, "shapes that change are not possible inside another loop or a branch")
    variables, structure = _operands(recorder, init)
    if not variables:
        raise ValueRangeError(name, "there are no variables, so the loop could not end")
    types = _open_types(graph, name, variables, structure, body)
    counted = [] if most is None else [recorder._operand(tensor(0))]

    def going(*values):
        result = test(unflatten(structure, values[: len(variables)]))
        if not isinstance(result, SymbolicTensor):
            raise DTypeError(
                name,
                f"the condition gives the Python value {result!r} when the graph is built, which would hold for ever",
                fix="compare tensors; v.numel() of a size that changes is not known yet, td.ones_like(v).sum() is a tensor",
            )
        result = _one(name, result).astype(dtypes.bool_)
        return result if most is None else F.logical_and(result, values[-1] < most)

    def once(*values):
        leaves, _ = flatten(body(unflatten(structure, values[: len(variables)])))
        return [*leaves, *(v + 1 for v in values[len(variables) :])]

    shapes = [show_shape(t.shape) for t in types] + [()] * len(counted)
    results = wire_while(going, once, [*variables, *counted], 10, name, shapes)
    return unflatten(structure, results[: len(variables)])


def _open_types(graph: Graph, name: str, variables, structure: Structure, body) -> list[Type]:
    """The variables' types, with sizes unknown that the body changes."""
    types = [v.type for v in variables]
    while True:
        once = record_body(graph, name, types, lambda *values: body(unflatten(structure, values)))
        if once.structure != structure:
            raise ShapeError(
                name,
                f"variables were {structure!r} before the body and are {once.structure!r} after it; they must be alike",
            )
        opened = []
        for path, before, after in zip(structure.paths(), types, once.results, strict=True):
            if before.dtype is not after.dtype or len(before.shape) != after.ndim:
                raise DTypeError(
                    name,
                    f"variable{path} is {before.dtype} {show_shape(before.shape)} before an iteration and {_show(after)} after it; "
                    "its dtype and number of axes must stay the same",
                )
            shape = tuple(
                m if _same_size(m, n) else graph.symbols.new_unknown(f"variable{path}", axis)
                for axis, (m, n) in enumerate(zip(before.shape, after.type.shape, strict=True))
            )
            opened.append(Type(before.dtype, shape))
        # A size that is unknown may come out as another unknown one; a known one that changes must be looked at again.
        if all(show_shape(a.shape) == show_shape(b.shape) for a, b in zip(types, opened, strict=True)):
            return opened
        types = opened


def _same_size(m, n) -> bool:
    if isinstance(m, int) or isinstance(n, int):
        return isinstance(m, int) and isinstance(n, int) and m == n
    return unknown_index(m) is not None and unknown_index(m) == unknown_index(n)
