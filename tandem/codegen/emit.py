"""Values as scalar expressions: what a kernel computes at one index.

Elementwise operators ask for their inputs at the same index, movement operators at a remapped one, Gather at positions that it
loads. Values that lie in memory become loads. The walk is iterative, because fused chains can be long.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, as_real, factor_groups, is_one, is_zero, part, same
from tandem.codegen.expr import Expr, ScalarBuilder, compute_dtype
from tandem.codegen.index import Linear, LinearForms
from tandem.graph.ir import Value
from tandem.graph.symbolic import Dim, maximum
from tandem.ops.complexes import AsComplex, AsReal, Part
from tandem.ops.create import Constant, Iota, RandomBits, Size
from tandem.ops.define import Elementwise, Movement
from tandem.ops.index import Gather
from tandem.ops.movement import Diagonal, Embed, Expand, Permute, Reshape, Slice
from tandem.ops.reduce import Reduce


class Emitter:
    """Expressions, slots, runtime integers and index forms of one kernel under construction."""

    def __init__(self, resolve, shape_of, buffer_of, inside: set[Value], sizes: dict[int, Dim]):
        self.resolve = resolve
        self.shape_of = shape_of
        self.buffer_of = buffer_of  # value -> Buffer, for values in memory
        self.sizes = sizes  # of the loops
        self.inside = inside  # values this kernel computes itself
        self.b = ScalarBuilder()
        self.forms = LinearForms()
        self.given: dict = {}  # (value, index) or value -> Expr: results of this kernel's own reductions
        self.slots: dict[int, int] = {}
        self.buffers: list[Buffer] = []
        self.locals: list = []
        self.ints: dict = {}
        self.linears: list[Linear] = []
        self._linear_exprs: dict[int, Expr] = {}
        self._memo: dict = {}
        self._parts: dict[int, Buffer] = {}  # complex buffers seen as their parts
        self._words: dict[int, list[Buffer]] = {}  # complex numbers on the host, real and imaginary
        self.loads: list[tuple[Expr, Linear]] = []  # loads without a guard
        self.nodes: dict = {}  # nodes that this kernel covers, in order
        self.clamp = False  # positions that are loaded are brought into range
        self.rounds = True  # random bits are written out round by round, rather than left to the renderer

    # -- leaves

    def slot(self, buffer: Buffer) -> int:
        found = self.slots.get(id(buffer))
        if found is None:
            found = self.slots[id(buffer)] = len(self.buffers)
            self.buffers.append(buffer)
        return found

    def local(self, dtype, size: int) -> int:
        self.locals.append((dtype, size))
        return -len(self.locals)

    def var(self, v: int) -> Expr:
        return self.b.make("var", (), dtypes.int64, v)

    def dim(self, d: Dim) -> Expr:
        if type(d) is int:
            return self.b.const(d, dtypes.int64)
        return self.argument(d)

    def argument(self, d: Dim) -> Expr:
        """A size that comes with the call, also where it is known: kernels that differ in nothing else are one."""
        number = self.ints.setdefault(d, len(self.ints))
        return self.b.make("int", (), dtypes.int64, number)

    def forget(self):
        """What was emitted is emitted again: results that are given are others from here on."""
        self._memo.clear()

    def constant(self, value: Expr) -> Expr:
        """A constant of the graph: a number in the code, unless a target has it otherwise."""
        return value

    def linear(self, form: Linear) -> Expr:
        if not form.terms:
            return self.dim(form.const)
        found = self._linear_exprs.get(id(form))
        if found is None:
            found = self.b.make("linear", (), dtypes.int64, len(self.linears))
            self._linear_exprs[id(form)] = found
            self.linears.append(form)
        return found

    def settle(self, form: Linear, order: list[int], size=None) -> Expr:
        """The form as arithmetic; `order` lists loop variables from the outermost, whose terms come first. `size`: of the factors,
        where they are not what `dim` gives."""
        size = size or (lambda role, d: self.dim(d))
        total = size("start", form.const)
        for atom, coefficient in form.terms.items():
            if type(atom) is not int:
                total = total + atom * size("place", coefficient)
        for v in order:
            coefficient = form.terms.get(v)
            if coefficient is not None:
                total = total + self.var(v) * size(v, coefficient)
        return total

    def load(self, buffer: Buffer, index, guard: Expr | None) -> Expr:
        b = self.b
        if buffer.on_host and buffer.dtype.itemsize > 8:  # what comes with a launch comes in words of 8 bytes
            if id(buffer) not in self._words:
                self._words[id(buffer)] = [part(buffer, k) for k in (0, 1)]
            return b.complex(*[self.load(word, index, guard) for word in self._words[id(buffer)]])
        form = self.forms.dot(index, buffer.strides)
        offset = self.linear(form)
        if guard is None:
            loaded = b.make("load", (offset,), buffer.dtype, self.slot(buffer))
            self.loads.append((loaded, form))
        else:
            loaded = b.make("load_if", (guard, offset), buffer.dtype, self.slot(buffer))
        return b.widen(loaded)

    # -- values

    def emit(self, value: Value, index: tuple, guard: Expr | None = None) -> Expr:
        memo = self._memo
        root = (value, index, guard)
        stack = [root]
        while stack:
            key = stack[-1]
            if key in memo:
                stack.pop()
                continue
            done = self._try(*key)
            if type(done) is list:
                stack.extend(done)
            else:
                memo[key] = done
                stack.pop()
        return memo[root]

    def _try(self, value: Value, index: tuple, guard):
        """The expression, or the list of what must be emitted first."""
        found = self.given.get(value)
        if found is not None:
            return found
        node = value.node
        op = node.op
        if value not in self.inside:
            buffer = self.buffer_of.get(value)
            if buffer is not None and not (isinstance(op, Movement) and buffer.kind == "view"):
                return self.load(buffer, index, guard)
        memo, b = self._memo, self.b
        self.nodes[node] = None
        if isinstance(op, Elementwise):
            wants = [(v, index if v.type.shape else (), guard) for v in node.inputs]
            missing = [w for w in wants if w not in memo]
            if missing:
                return missing
            return self._checked(op, op.body(b, *[memo[w] for w in wants]), value)
        if isinstance(op, Gather):
            return self._gather(node, index, guard)
        if isinstance(op, Embed):
            return self._embed(op, node, index, guard)
        if isinstance(op, (Reshape, Permute, Expand, Slice, Diagonal)):
            want = (node.inputs[0], self._moved(op, node, index), guard)
            return memo.get(want, [want])
        if isinstance(op, (Part, AsReal, AsComplex)):
            return self._retyped(op, node, index, guard)
        if isinstance(op, Reduce):  # over axes of size 1 only; the others are in `given`
            want = (node.inputs[0], index, guard)
            return reduce_operand(b, op, memo[want], value) if want in memo else [want]
        if isinstance(op, Constant):
            return self.constant(b.widen(b.const(op.value, op.dtype)))
        if isinstance(op, Size):
            return b.cast(self.dim(self.resolve(op.value)), compute_dtype(op.dtype))
        if isinstance(op, Iota):
            return b.cast(self.linear(index[op.axis]), compute_dtype(op.dtype))
        if isinstance(op, RandomBits):
            wants = [(v, (), guard) for v in node.inputs]
            missing = [w for w in wants if w not in memo]
            if missing:
                return missing
            seed, offset = (b.cast(memo[w], dtypes.int64) for w in wants)
            flat = self.linear(self._flat(index, self.shape_of(value)))
            if self.rounds:
                return b.philox(seed, offset + flat, op.lane)
            seed, counter = b.cast(seed, dtypes.uint64), b.cast(offset + flat, dtypes.uint64)
            return b.make("philox", (seed, counter), dtypes.uint32, op.lane)
        raise NotImplementedError(f"no kernel can compute {op!r}")

    def _checked(self, op, result, value: Value) -> Expr:
        b, wanted = self.b, compute_dtype(value.dtype)
        if not isinstance(result, Expr):
            return b.const(result, wanted)
        result = b.widen(result)
        if result.dtype is not wanted:
            raise TypeError(f"the body of {op!r} gives {result.dtype}, but infer says {value.dtype}")
        return result

    def _flat(self, index, shape) -> Linear:
        flat, step = self.forms.zero, 1
        for i, n in zip(reversed(index), reversed(shape)):
            flat = self.forms.add(flat, self.forms.scale(i, step))
            step = step * n
        return flat

    def _moved(self, op, node, index) -> tuple:
        forms, source = self.forms, node.inputs[0]
        if isinstance(op, Permute):
            moved = [None] * len(index)
            for i, axis in enumerate(op.axes):
                moved[axis] = index[i]
            return tuple(moved)
        if isinstance(op, Diagonal):
            return (*index, index[-1])
        shape = self.shape_of(source)
        if isinstance(op, Expand):
            return tuple(forms.zero if is_one(n) else i for n, i in zip(shape, index))
        if isinstance(op, Slice):
            moved = []
            for i, start, step in zip(index, op.starts, op.steps):
                start, step = self.resolve(start), self.resolve(step)
                moved.append(forms.add(forms.make(start, {}), forms.scale(i, step)))
            return tuple(moved)
        moved = [forms.zero] * len(shape)
        outer = self.shape_of(node.outputs[0])
        for left, right in factor_groups(shape, outer):
            flat = self._flat([index[a] for a in right], [outer[a] for a in right])
            for axis in reversed(left[1:]):
                flat, moved[axis] = self._divide(flat, shape[axis])
            if left:
                moved[left[0]] = flat
        return tuple(moved)

    def _divide(self, form: Linear, divisor: Dim) -> tuple[Linear, Linear]:
        """(form // divisor, form % divisor) as forms."""
        forms, b = self.forms, self.b
        if not form.terms and is_zero(form.const):
            return form, form
        if is_zero(divisor):  # an axis without elements: there is no index to compute
            return forms.zero, forms.zero
        parts = forms.divide(form, divisor, self.sizes)
        if parts is not None:
            return parts
        by = self.dim(maximum(divisor, 1))  # a hoisted division must not trap where a size is 0
        x = self.linear(form)
        quotient, remainder = b.idiv(x, by), b.imod(x, by)
        forms.quotients[quotient] = (True, form, divisor, remainder)
        forms.quotients[remainder] = (False, form, divisor, quotient)
        return forms.atom(quotient), forms.atom(remainder)

    def _retyped(self, op, node, index, guard):
        """Complex numbers as their parts, and the other way round."""
        source, memo, b = node.inputs[0], self._memo, self.b
        if isinstance(op, AsComplex):
            wants = [(source, (*index, self.forms.make(k, {})), guard) for k in (0, 1)]
            missing = [w for w in wants if w not in memo]
            return missing or b.complex(*[memo[w] for w in wants])
        last = index[-1] if isinstance(op, AsReal) else None
        if last is not None and last.terms and self._lies_in_memory(source):
            buffer = self.buffer_of[source]
            if id(buffer) not in self._parts:
                self._parts[id(buffer)] = as_real(buffer)
            return self.load(self._parts[id(buffer)], index, guard)
        want = (source, index if last is None else index[:-1], guard)
        if want not in memo:
            return [want]
        x = memo[want]
        if last is None:
            return b.imag(x) if op.index else b.real(x)
        return b.where(self.linear(last) == 0, b.real(x), b.imag(x))

    def _lies_in_memory(self, value: Value) -> bool:
        """Whether value was in memory before this kernel began."""
        if value not in self.buffer_of:
            return False
        while isinstance(value.op, Movement) and self.buffer_of[value].kind == "view":
            value = value.node.inputs[0]
        return value not in self.inside and value not in self.given

    def _gather(self, node, index, guard):
        x, *positions = node.inputs
        rank = len(positions[0].type.shape)
        lead, rest = index[:rank], index[rank:]
        memo, b = self._memo, self.b
        wants = [(p, lead, guard) for p in positions]
        missing = [w for w in wants if w not in memo]
        if missing:
            return missing
        shape = self.shape_of(x)
        address = []
        for axis, w in enumerate(wants):
            at = b.cast(memo[w], dtypes.int64)
            if w[0].dtype.kind == "int" and at.op != "const":  # negative positions count from the end
                at = at + ((at >> 63) & self.dim(shape[axis]))
            if self.clamp and at.op != "const":
                at = b.max(b.min(at, self.dim(shape[axis]) - 1), 0)
            address.append(self.forms.atom(at) if at.op != "const" else self.forms.make(at.attr, {}))
        want = (x, (*address, *rest), guard)
        return memo.get(want, [want])

    def _embed(self, op, node, index, guard):
        """Inside the copied part, x; outside, zero."""
        forms, b, source = self.forms, self.b, node.inputs[0]
        shape = self.shape_of(source)
        outer = self.shape_of(node.outputs[0])
        condition = guard
        moved = []
        for i, n, m, start, step in zip(index, shape, outer, op.starts, op.steps):
            start, step = self.resolve(start), self.resolve(step)
            if is_zero(start) and is_one(step) and same(n, m):
                moved.append(i)
                continue
            shifted = forms.add(i, forms.make(-start, {}))
            if not (type(step) is int and step == 1):
                if not step > 0:
                    shifted, step = forms.scale(shifted, -1), -step
                if is_zero(step):
                    step = 1
                at = self.linear(shifted)
                condition = _both(condition, at >= 0)
                at = b.max(at, 0)
                condition = _both(condition, b.imod(at, self.dim(step)) == 0)
                at = b.idiv(at, self.dim(step))
                condition = _both(condition, at < self.dim(n))
                moved.append(forms.atom(at))
            else:
                at = self.linear(shifted)
                if not is_zero(start):
                    condition = _both(condition, at >= 0)
                condition = _both(condition, at < self.dim(n))
                moved.append(shifted)
        want = (source, tuple(moved), condition)
        if want not in self._memo:
            return [want]
        inner = self._memo[want]
        if condition is guard or inner.op == "load_if":
            return inner
        if inner.op == "cast" and inner.args[0].op == "load_if":
            return inner
        return b.where(condition, inner, 0)


def _both(x: Expr | None, y: Expr) -> Expr:
    return y if x is None else x & y


def reduce_operand(b: ScalarBuilder, op: Reduce, x: Expr, value: Value) -> Expr:
    """x as a reduction of one element gives it."""
    if op.kind in ("argmax", "argmin"):
        return b.const(0, dtypes.int64)
    return b.cast(x, compute_dtype(value.dtype))
