"""Graphs of primitives as StableHLO text, the input of XLA, IREE and the compilers of other accelerators.

Weights are arguments after the function's own.

Note [Dynamic sizes]
Sizes are static unless asked for: most compilers of accelerators want to know them. A free size is `?` in types. Where a shape is
an operand (broadcasts, reshapes, ramps), it is computed when the program runs, from the sizes of arguments. Operators that take
sizes as attributes refuse free ones.
"""

from __future__ import annotations

import struct

from tandem import dtypes
from tandem.codegen.expr import topological
from tandem.errors import UnsupportedError
from tandem.export.composition import composition, made_of
from tandem.export.scalars import FileScalars, native_functions
from tandem.graph.ir import Graph, Node, Type, Value
from tandem.graph.symbolic import FreeSizeError, Sym, known_nonnegative
from tandem.ops.define import Elementwise

_NAMES = {
    dtypes.bool_: "i1", dtypes.int8: "i8", dtypes.int16: "i16", dtypes.int32: "i32", dtypes.int64: "i64",
    dtypes.uint8: "ui8", dtypes.uint16: "ui16", dtypes.uint32: "ui32", dtypes.uint64: "ui64", dtypes.float16: "f16",
    dtypes.bfloat16: "bf16", dtypes.float32: "f32", dtypes.float64: "f64", dtypes.complex64: "complex<f32>",
    dtypes.complex128: "complex<f64>",
}  # fmt: skip
WRITERS: dict = {}
STATIC: set[str] = set()  # those that write sizes as attributes


def writes(*names: str, static: bool = False):
    """Registers how a primitive is written: fn(writer, node, *names of inputs) -> name or tuple of names.

    static: whether sizes are among its attributes, so that free ones cannot be written.
    """

    def register(function):
        STATIC.update(names if static else ())
        for name in names:
            if name in WRITERS:
                raise ValueError(f"{name} has two writers")
            WRITERS[name] = function
        return function

    return register


def tensor(dtype: dtypes.DType, shape=()) -> str:
    """The name of a tensor type: tensor<2x3xf32>."""
    return f"tensor<{''.join('?x' if isinstance(n, Sym) else f'{int(n)}x' for n in shape)}{_NAMES[dtype]}>"


def type_of(type: Type) -> str:
    return tensor(type.dtype, type.shape)


def is_dynamic(shape) -> bool:
    return any(isinstance(n, Sym) for n in shape)


def same_shape(a, b) -> bool:
    """Whether two shapes are the same; asks sizes for nothing, which would be a guard."""
    return [str(n) for n in a] == [str(n) for n in b]


class Writer:
    """Lines of one function."""

    def __init__(self):
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self._count = 0
        self._constants: dict = {}
        self.sources: dict[int, tuple[str, str, int]] = {}  # of a symbol: an argument, its type, the axis
        self.indent = "    "

    def fresh(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def line(self, text: str):
        self.lines.append(self.indent + text)

    def emit(self, text: str) -> str:
        """A line with one result."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def op(self, name: str, operands, dtype, shape, source=None, attributes: str = "") -> str:
        """An operator whose operands all have one type: the result's, or `source`'s where they differ."""
        result = tensor(dtype, shape)
        joined = ", ".join(operands)
        if source is None:
            return self.emit(f"stablehlo.{name} {joined}{attributes} : {result}")
        return self.emit(f"stablehlo.{name} {joined}{attributes} : ({', '.join(source)}) -> {result}")

    # -- constants

    def scalar(self, value, dtype: dtypes.DType) -> str:
        return self.full(value, dtype, ())

    def full(self, value, dtype: dtypes.DType, shape) -> str:
        """A constant of one value."""
        text = literal(value, dtype)
        key = (text, dtype, tuple(str(n) for n in shape))
        if is_dynamic(shape):
            if key not in self._constants:
                self._constants[key] = self.broadcast(self.full(value, dtype, ()), dtype, (), shape, [])
            return self._constants[key]
        if key not in self._constants:
            self._constants[key] = self.emit(f"stablehlo.constant dense<{text}> : {tensor(dtype, shape)}")
        return self._constants[key]

    def integers(self, array) -> str:
        """A constant of int64."""
        text = str(array.tolist()).replace(" ", "")
        return self.emit(f"stablehlo.constant dense<{text}> : {tensor(dtypes.int64, array.shape)}")

    # -- shapes

    def size(self, d) -> str:
        """A size as an int32 without axes."""
        if not isinstance(d, Sym):
            return self.scalar(d, dtypes.int32)
        key = ("size", str(d))
        if key not in self._constants:
            total = None
            for monomial, coefficient in d.terms.items():
                term = self.scalar(coefficient, dtypes.int32) if coefficient != 1 or not monomial else None
                for atom in monomial:
                    factor = self._atom(atom)
                    term = factor if term is None else self.op("multiply", [term, factor], dtypes.int32, ())
                total = term if total is None else self.op("add", [total, term], dtypes.int32, ())
            self._constants[key] = total
        return self._constants[key]

    def _atom(self, atom) -> str:
        kind, *rest = atom
        if kind == "sym":
            name, type_, axis = self.sources[rest[0]]
            return self.emit(f"stablehlo.get_dimension_size {name}, dim = {axis} : ({type_}) -> tensor<i32>")
        a, b = (self.size(v) for v in rest)
        if kind in ("floordiv", "mod") and not known_nonnegative(rest[0]):  # divide and remainder round to zero
            modulo = self._whole("remainder", self._whole("add", self._whole("remainder", a, b), b), b)
            return modulo if kind == "mod" else self._whole("divide", self._whole("subtract", a, modulo), b)
        name = {"floordiv": "divide", "mod": "remainder", "min": "minimum", "max": "maximum"}[kind]
        return self._whole(name, a, b)

    def _whole(self, name: str, a: str, b: str) -> str:
        return self.op(name, [a, b], dtypes.int32, ())

    def shape(self, dims) -> str:
        """Sizes as an int32 with one axis."""
        key = ("shape", tuple(str(d) for d in dims))
        if key not in self._constants:
            parts = [self.reshape(self.size(d), dtypes.int32, (), (1,)) for d in dims]
            types = ", ".join("tensor<1xi32>" for _ in parts)
            self._constants[key] = self.emit(
                f"stablehlo.concatenate {', '.join(parts)}, dim = 0 : ({types}) -> tensor<{len(parts)}xi32>"
            )
        return self._constants[key]

    def broadcast(self, x: str, dtype, shape, wanted, axes=None) -> str:
        """x with its axes at `axes` of the wanted shape."""
        axes = list(range(len(shape))) if axes is None else list(axes)
        if same_shape(shape, wanted):
            return x
        if is_dynamic((*shape, *wanted)):
            types = f"({tensor(dtype, shape)}, {tensor(dtypes.int32, (len(wanted),))}) -> {tensor(dtype, wanted)}"
            return self.emit(f"stablehlo.dynamic_broadcast_in_dim {x}, {self.shape(wanted)}, dims = {axes} : {types}")
        text = f"stablehlo.broadcast_in_dim {x}, dims = {axes} : ({tensor(dtype, shape)}) -> {tensor(dtype, wanted)}"
        return self.emit(text)

    def reshape(self, x: str, dtype, shape, wanted) -> str:
        if same_shape(shape, wanted):
            return x
        if is_dynamic((*shape, *wanted)):
            types = f"({tensor(dtype, shape)}, {tensor(dtypes.int32, (len(wanted),))}) -> {tensor(dtype, wanted)}"
            return self.emit(f"stablehlo.dynamic_reshape {x}, {self.shape(wanted)} : {types}")
        return self.emit(f"stablehlo.reshape {x} : ({tensor(dtype, shape)}) -> {tensor(dtype, wanted)}")

    def convert(self, x: str, source, dtype, shape) -> str:
        if source is dtype:
            return x
        narrow = source.is_floating and dtype.kind in ("int", "uint") and (dtype.itemsize < 4 or dtype is dtypes.uint32)
        if narrow:  # what does not fit wraps around here, and would become the type's nearest number there
            wide = dtypes.int64 if dtype is dtypes.uint32 else dtypes.int32
            return self.convert(self.convert(x, source, wide, shape), wide, dtype, shape)
        return self.emit(f"stablehlo.convert {x} : ({tensor(source, shape)}) -> {tensor(dtype, shape)}")

    def compare(self, how: str, a: str, b: str, dtype, shape) -> str:
        kind = "FLOAT" if dtype.is_inexact else "SIGNED" if dtype.kind == "int" else "UNSIGNED"
        types = f"({tensor(dtype, shape)}, {tensor(dtype, shape)}) -> {tensor(dtypes.bool_, shape)}"
        return self.emit(f"stablehlo.compare {how}, {a}, {b}, {kind} : {types}")

    def select(self, condition: str, a: str, b: str, dtype, shape) -> str:
        return self.emit(
            f"stablehlo.select {condition}, {a}, {b} : {tensor(dtypes.bool_, shape)}, {tensor(dtype, shape)}"
        )

    def iota(self, shape, axis: int, dtype=dtypes.int64) -> str:
        if is_dynamic(shape):
            types = f"(tensor<{len(shape)}xi32>) -> {tensor(dtype, shape)}"
            return self.emit(f"stablehlo.dynamic_iota {self.shape(shape)}, dim = {axis} : {types}")
        return self.emit(f"stablehlo.iota dim = {axis} : {tensor(dtype, shape)}")

    def reverse(self, x: str, type: Type, axes: list[int]) -> str:
        return self.emit(f"stablehlo.reverse {x}, dims = {axes} : {type_of(type)}") if axes else x

    def cut(self, x: str, type: Type, starts, sizes, steps=None) -> str:
        """A slice forward: so many elements along each axis."""
        steps = steps or [1] * len(sizes)
        ends = [
            a if isinstance(n, int) and n == 0 else a + (n - 1) * s + 1
            for a, n, s in zip(starts, sizes, steps, strict=True)
        ]
        out = tensor(type.dtype, sizes)
        if is_dynamic((*type.shape, *starts, *ends, *steps)):
            bounds = ", ".join(self.shape(dims) for dims in (starts, ends, steps))
            types = ", ".join([type_of(type), *[f"tensor<{len(sizes)}xi32>"] * 3])
            return self.emit(f"stablehlo.real_dynamic_slice {x}, {bounds} : ({types}) -> {out}")
        parts = ", ".join(f"{a}:{b}:{s}" for a, b, s in zip(starts, ends, steps, strict=True))
        return self.emit(f"stablehlo.slice {x} [{parts}] : ({type_of(type)}) -> {out}")

    def reduce(self, x: str, type: Type, name: str, begin, axes, shape) -> str:
        """A reduction by an operator of two elements, without the axes."""
        start = self.scalar(begin, type.dtype)
        types = f"({type_of(type)}, {tensor(type.dtype)}) -> {tensor(type.dtype, shape)}"
        return self.emit(
            f"stablehlo.reduce({x} init: {start}) applies stablehlo.{name} across dimensions = {list(axes)} : {types}"
        )

    # -- graphs

    def write(self, graph: Graph) -> list[str]:
        for node in graph.nodes:
            if node.op.is_input:
                continue
            try:
                with graph.symbols.closed():
                    results = self._results(graph, node, [self.names[v] for v in node.inputs])
            except FreeSizeError:
                self._refuse_free(node)
            self.names.update(zip(node.outputs, results, strict=True))
        return [self.names[v] for v in graph.outputs]

    def _results(self, graph: Graph, node: Node, operands: list[str]):
        """Names of what a node gives."""
        if node.op.checks:  # there are no errors while a program runs
            return operands
        writer = WRITERS.get(node.op.name)
        if node.op.name in STATIC and any(is_dynamic(v.shape) for v in (*node.inputs, *node.outputs)):
            self._refuse_free(node)
        if writer is not None:
            result = writer(self, node, *operands)
            return result if isinstance(result, tuple) else (result,)
        if isinstance(node.op, Elementwise):
            return (expression(self, node, operands),)
        if made_of(node) is None:
            self.refuse(node, "it")
        return self.inline(composition(node, graph.symbols), operands)

    def _refuse_free(self, node: Node):
        self.refuse(node, f"it needs to know its sizes, and one of {[v.type for v in node.inputs]} is free: it")

    def inline(self, graph: Graph, operands) -> tuple[str, ...]:
        """The nodes of a graph here, on these operands."""
        before, self.names = self.names, {**self.names, **dict(zip(graph.inputs, operands, strict=True))}
        results = tuple(self.write(graph))
        self.names = before
        return results

    def region(self, arguments: list[Type], build) -> list[str]:
        """Lines of a region with a block of these arguments; build(names) gives the names of what it returns."""
        lines, self.lines = self.lines, []
        constants, self._constants = self._constants, dict(self._constants)
        self.indent += "  "
        names = [self.fresh() for _ in arguments]
        results, types = build(names)
        self.line(f"stablehlo.return {', '.join(results)} : {', '.join(types)}")
        self.indent = self.indent[:-2]
        lines, self.lines = self.lines, lines
        self._constants = constants
        if names:
            block = ", ".join(f"{n}: {type_of(t)}" for n, t in zip(names, arguments, strict=True))
            lines.insert(0, f"{self.indent}^bb0({block}):")
        return lines

    def refuse(self, node: Node, what: str):
        where = f" (at {node.source})" if node.source else ""
        raise UnsupportedError(f"stablehlo {node.op.name}", f"{what} cannot be written as StableHLO{where}")


def literal(value, dtype: dtypes.DType) -> str:
    """A number as MLIR writes it; floats by their bits, so that none is rounded."""
    if dtype is dtypes.bool_:
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    if dtype.is_complex:
        part = dtypes.REAL_PART[dtype]
        return f"({literal(complex(value).real, part)}, {literal(complex(value).imag, part)})"
    bits = dtype.numpy.type(value).tobytes()[::-1].hex().upper()
    return f"0x{bits}"


# -- elementwise operators that StableHLO has not: by the scalar expressions that kernels are made of

_UNARY = {
    "neg": "negate",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "round": "round_nearest_even",
    "abs": "abs",
}
_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "min": "minimum", "max": "maximum", "and": "and",
    "or": "or", "xor": "xor", "shl": "shift_left", "idiv": "divide", "imod": "remainder",
}  # fmt: skip


@native_functions
class _Native(FileScalars):
    NATIVE = {
        "exp": "exponential", "expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one", "sin": "sine",
        "cos": "cosine", "tan": "tan", "tanh": "tanh", "sigmoid": "logistic", "atan2": "atan2", "pow": "power", "rsqrt": "rsqrt",
        "cbrt": "cbrt",
    }  # fmt: skip


def expression(w: Writer, node: Node, operands: list[str]) -> str:
    """The operator's scalar expression, on whole tensors."""
    builder = _Native()
    shape = node.outputs[0].shape
    leaves, made = [], {}
    for v, name in zip(node.inputs, operands, strict=True):
        leaf = builder.make("var", (), v.dtype, len(leaves))
        leaves.append(leaf)
        made[leaf.id] = w.broadcast(name, v.dtype, v.shape, shape, [])
    root = builder.cast(node.op.body(builder, *leaves), node.outputs[0].dtype)
    for e in topological([root]):
        if e.id not in made:
            made[e.id] = _scalar_op(w, node, e, [made[a.id] for a in e.args], shape)
    return made[root.id]


def _scalar_op(w: Writer, node: Node, e, args: list[str], shape) -> str:
    dtype = e.dtype
    given = e.args[0].dtype if e.args else dtype
    if e.op == "const":
        return w.full(_value(e), dtype, shape)
    if e.op == "native":
        return w.op(e.attr, args, dtype, shape)
    if e.op in _UNARY:
        return w.op(_UNARY[e.op], args, dtype, shape)
    if e.op in _BINARY:
        return w.op(_BINARY[e.op], args, dtype, shape)
    if e.op in ("eq", "ne", "lt", "le", "gt", "ge"):
        return w.compare(e.op.upper(), *args, given, shape)
    if e.op == "not":
        return w.op("not", args, dtype, shape)
    if e.op == "shr":
        return w.op("shift_right_arithmetic" if dtype.kind == "int" else "shift_right_logical", args, dtype, shape)
    if e.op == "cast":
        return _convert(w, args[0], given, dtype, shape)
    if e.op == "bitcast":
        return w.op("bitcast_convert", args, dtype, shape, [tensor(given, shape)])
    if e.op == "where":
        return w.select(*args, dtype, shape)
    if e.op == "rarely":
        condition, usual, slow = args
        return w.select(condition, slow, usual, dtype, shape)
    if e.op == "fma":
        return w.op("add", [w.op("multiply", args[:2], dtype, shape), args[2]], dtype, shape)
    if e.op == "isnan":
        return w.compare("NE", args[0], args[0], given, shape)
    if e.op == "trunc":
        whole = w.op("floor", [w.op("abs", args, dtype, shape)], dtype, shape)
        return w.op("multiply", [w.op("sign", args, dtype, shape), whole], dtype, shape)
    if e.op == "copysign":
        return _copysign(w, args, dtype, shape)
    if e.op == "near_angle":
        return args[0]
    if e.op in ("complex", "real", "imag"):
        parts = [tensor(a.dtype, shape) for a in e.args]
        return w.op(e.op, args, dtype, shape, parts)
    if e.op in ("floordiv", "mod"):
        return _integer_division(w, e.op, args, dtype, shape)
    return w.refuse(node, f"the scalar operation {e.op}")


def _value(e):
    if e.dtype is dtypes.float32:
        return struct.unpack("<f", struct.pack("<I", e.attr))[0]
    if e.dtype is dtypes.float64:
        return struct.unpack("<d", struct.pack("<Q", e.attr))[0]
    return e.attr


def _convert(w: Writer, x: str, source, dtype, shape) -> str:
    return w.convert(x, source, dtype, shape)


def _copysign(w: Writer, args, dtype, shape) -> str:
    """By bits, so that the sign of zeros counts."""
    bits = dtypes.uint32 if dtype is dtypes.float32 else dtypes.uint64
    width = 8 * dtype.itemsize
    a, b = (w.op("bitcast_convert", [x], bits, shape, [tensor(dtype, shape)]) for x in args)
    sign = w.op("and", [b, w.full(1 << (width - 1), bits, shape)], bits, shape)
    rest = w.op("and", [a, w.full((1 << (width - 1)) - 1, bits, shape)], bits, shape)
    return w.op("bitcast_convert", [w.op("or", [rest, sign], bits, shape)], dtype, shape, [tensor(bits, shape)])


def _integer_division(w: Writer, op: str, args, dtype, shape) -> str:
    """Toward minus infinity; by zero: zero."""
    a, b = args
    zero, one = w.full(0, dtype, shape), w.full(1, dtype, shape)
    none = w.compare("EQ", b, zero, dtype, shape)
    safe = w.select(none, one, b, dtype, shape)
    quotient, rest = w.op("divide", [a, safe], dtype, shape), w.op("remainder", [a, safe], dtype, shape)
    if dtype.kind == "int":
        uneven = w.compare("NE", rest, zero, dtype, shape)
        signs = w.compare("LT", w.op("xor", [rest, safe], dtype, shape), zero, dtype, shape)
        below = w.op("and", [uneven, signs], dtypes.bool_, shape)
        quotient = w.select(below, w.op("subtract", [quotient, one], dtype, shape), quotient, dtype, shape)
        rest = w.select(below, w.op("add", [rest, safe], dtype, shape), rest, dtype, shape)
    return w.select(none, zero, quotient if op == "floordiv" else rest, dtype, shape)
