"""Branches and loops."""

from __future__ import annotations

from tandem import dtypes
from tandem.export.stablehlo.writer import is_dynamic, tensor, type_of, writes
from tandem.graph.ir import Type


def _results(w, node, text: str) -> tuple[str, ...]:
    count = len(node.outputs)
    name = w.fresh()
    w.line(f"{name}{f':{count}' if count > 1 else ''} = {text}")
    return tuple(f"{name}#{i}" for i in range(count)) if count > 1 else (name,)


@writes("cond")
def cond(w, node, which, *operands):
    branches = node.op.branches
    types = [type_of(v.type) for v in node.outputs]
    index = node.inputs[0].dtype
    at = w.convert(which, index, dtypes.int32, ())
    regions = ["\n".join(w.region([], lambda _, b=branch: (list(w.inline(b, operands)), types))) for branch in branches]
    body = "\n" + f"\n{w.indent}}}, {{\n".join(regions)
    return _results(w, node, f'"stablehlo.case"({at}) ({{{body}\n{w.indent}}}) : (tensor<i32>) -> ({", ".join(types)})')


def _loop(w, names: list[str], types: list[Type], condition, body) -> tuple[str, ...]:
    """condition(values) -> name of a bool; body(values) -> names of the values after it."""
    texts = [type_of(t) for t in types]
    test = w.region(types, lambda values: ([condition(values)], [tensor(dtypes.bool_)]))
    step = w.region(types, lambda values: (list(body(values)), texts))
    name, count = w.fresh(), len(types)
    joined = ", ".join(texts)
    w.line(
        f'{name}{f":{count}" if count > 1 else ""} = "stablehlo.while"({", ".join(names)}) ({{\n' + "\n".join(test)
        + f"\n{w.indent}}}, {{\n" + "\n".join(step) + f"\n{w.indent}}}) : ({joined}) -> ({joined})"
    )  # fmt: skip
    return tuple(f"{name}#{i}" for i in range(count)) if count > 1 else (name,)


_COUNT = Type(dtypes.int64, ())


@writes("while")
def while_(w, node, *operands):
    op, carried = node.op, node.op.carried
    consts = operands[carried:]
    zero, one = w.scalar(0, dtypes.int64), w.scalar(1, dtypes.int64)
    types = [*(v.type for v in node.inputs[:carried]), _COUNT]

    def condition(values):
        (going,) = w.inline(op.cond, [*values[:-1], *consts, values[-1]])
        if op.maximum is None:
            return going
        limit = w.scalar(int(op.maximum), dtypes.int64)
        return w.op("and", [going, w.compare("LT", values[-1], limit, dtypes.int64, ())], dtypes.bool_, ())

    def body(values):
        new = w.inline(op.body, [*values[:-1], *consts, values[-1]])
        return [*new, w.op("add", [values[-1], one], dtypes.int64, ())]

    return _loop(w, [*operands[:carried], zero], types, condition, body)


@writes("scan")
def scan(w, node, *operands):
    op, c, x = node.op, node.op.carried, node.op.scanned
    scanned, consts = operands[c : c + x], operands[c + x :]
    zero, one = w.scalar(0, dtypes.int64), w.scalar(1, dtypes.int64)
    limit = w.convert(w.size(op.length), dtypes.int32, dtypes.int64, ())
    stacked = [v.type for v in node.outputs[c:]]
    empty = [w.full(0, t.dtype, t.shape) for t in stacked]
    types = [*(v.type for v in node.inputs[:c]), *stacked, _COUNT]

    def body(values):
        count = values[-1]
        at = count
        if op.reverse:
            at = w.op("subtract", [w.op("subtract", [limit, one], dtypes.int64, ()), count], dtypes.int64, ())
        rows = [_row(w, s, v.type, at) for s, v in zip(scanned, node.inputs[c : c + x], strict=True)]
        made = w.inline(op.body, [*values[:c], *rows, *consts, at])
        new = [_put(w, old, t, row, at) for old, t, row in zip(values[c:-1], stacked, made[c:], strict=True)]
        return [*made[:c], *new, w.op("add", [count, one], dtypes.int64, ())]

    results = _loop(
        w, [*operands[:c], *empty, zero], types, lambda v: w.compare("LT", v[-1], limit, dtypes.int64, ()), body
    )
    return results[:-1]


def _row(w, x: str, type: Type, at: str) -> str:
    zero = w.scalar(0, dtypes.int64)
    starts = [at, *(zero for _ in type.shape[1:])]
    cut = (1, *type.shape[1:])
    if is_dynamic(cut):
        return w.reshape(_row_of_free_size(w, x, type, at), type.dtype, cut, type.shape[1:])
    text = f"stablehlo.dynamic_slice {x}, {', '.join(starts)}, sizes = {[int(n) for n in cut]} : "
    text += f"({', '.join([type_of(type), *('tensor<i64>' for _ in starts)])}) -> {tensor(type.dtype, cut)}"
    return w.reshape(w.emit(text), type.dtype, cut, type.shape[1:])


def _row_of_free_size(w, x: str, type: Type, at: str) -> str:
    """dynamic_slice has sizes as attributes; of a gather they may be an operand."""
    k = len(type.shape)
    numbers = f"offset_dims = {list(range(k))}, start_index_map = [0], index_vector_dim = 0"
    start = w.reshape(at, dtypes.int64, (), (1,))
    cut = (1, *type.shape[1:])
    return w.emit(
        f'"stablehlo.dynamic_gather"({x}, {start}, {w.shape(cut)}) <{{dimension_numbers = #stablehlo.gather<{numbers}>, '
        f"indices_are_sorted = true}}> : ({type_of(type)}, tensor<1xi64>, tensor<{k}xi32>) -> {tensor(type.dtype, cut)}"
    )


def _put(w, x: str, type: Type, row: str, at: str) -> str:
    zero = w.scalar(0, dtypes.int64)
    starts = [at, *(zero for _ in type.shape[1:])]
    cut = (1, *type.shape[1:])
    row = w.reshape(row, type.dtype, type.shape[1:], cut)
    types = ", ".join([type_of(type), tensor(type.dtype, cut), *("tensor<i64>" for _ in starts)])
    return w.emit(f"stablehlo.dynamic_update_slice {x}, {row}, {', '.join(starts)} : ({types}) -> {type_of(type)}")
